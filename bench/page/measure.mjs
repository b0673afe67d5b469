// Measures a page in Chromium for the bench, which writes orders as lines of JSON and reads the results.
// Arguments: the browser, the selector of what scrolls, and that of texts of the agent.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [executablePath, scroller, texts] = process.argv.slice(2);
const { chromium } = createRequire(new URL("../../web/package.json", import.meta.url))("playwright-core");
let page;
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });

// probe is what runs in the page before its own scripts.
function probe([scroller, texts]) {
  const long = []; // tasks over 50 ms: when each began, and how long it was
  new PerformanceObserver((list) => {
    for (const e of list.getEntries()) long.push([e.startTime, e.duration]);
  }).observe({ type: "longtask", buffered: true });
  const frame = () => new Promise(requestAnimationFrame);
  const elements = () => document.getElementsByTagName("*").length;

  // drawn reports whether the last text of the agent contains a word and its end is in view.
  function drawn(word) {
    const last = [...document.querySelectorAll(texts)].at(-1);
    if (!last?.textContent.includes(word)) return false;
    const view = document.querySelector(scroller).getBoundingClientRect();
    const end = last.getBoundingClientRect().bottom;
    return end > view.top && end <= view.bottom + 1;
  }

  // during runs a function in each frame until it returns false, and tells what the page was like meanwhile.
  async function during(each) {
    const began = await frame();
    const frames = [];
    let most = 0;
    for (let last = began; ; ) {
      const goes = each(last - began);
      if (frames.length % 15 === 0) most = Math.max(most, elements());
      const now = await frame();
      frames.push(now - last);
      last = now;
      if (!goes) break;
    }
    const [took, end] = [performance.now() - began, Date.now()];
    await new Promise((done) => setTimeout(done, 100)); // for the last entries
    const blocked = long.filter(([at]) => at >= began).reduce((sum, [, ms]) => sum + ms, 0);
    frames.sort((a, b) => a - b);
    return {
      p95: frames[Math.ceil(frames.length * 0.95) - 1],
      worst: frames.at(-1),
      elements: Math.max(most, elements()),
      long: blocked / took,
      end,
    };
  }

  globalThis.probe = {
    // opened waits until the last text is drawn.
    async opened(word) {
      while (!drawn(word)) await frame();
      await frame(); // the one before was drawn
      const drawnAt = performance.now();
      let paint;
      while (!(paint = performance.getEntriesByName("first-contentful-paint")[0])) await frame();
      return { drawn: drawnAt, paint: paint.startTime };
    },
    // scrolled moves by so many pixels a second, upwards if that is negative.
    scrolled(speed, ms) {
      const view = document.querySelector(scroller);
      let last = 0;
      return during((t) => {
        const by = (speed * (t - last)) / 1000;
        last = t;
        setTimeout(() => (view.scrollTop += by)); // between two frames, as a wheel does
        return t < ms;
      });
    },
    // streamed waits until the end of an answer is drawn.
    async streamed(word, ms) {
      const result = await during((t) => !drawn(word) && t < ms);
      return { ...result, ended: drawn(word) };
    },
  };
}

async function goTo(url) {
  await page?.context().close();
  page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
  await page.addInitScript(probe, [scroller, texts]);
  await page.goto(url, { waitUntil: "commit" });
}

const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];

const orders = {
  // open opens the page several times, each as a new person, and leaves it open.
  async open({ url, word, times }) {
    const opened = [];
    for (let i = 0; i < times; i++) {
      await goTo(url);
      opened.push(await page.evaluate((w) => globalThis.probe.opened(w), word));
    }
    return { paint: median(opened.map((o) => o.paint)), drawn: median(opened.map((o) => o.drawn)) };
  },
  async follow({ url, ready }) {
    await goTo(url);
    await page.waitForSelector(ready);
    return {};
  },
  scroll: ({ speed, ms }) => page.evaluate(([s, t]) => globalThis.probe.scrolled(s, t), [speed, ms]),
  stream: ({ word, ms }) => page.evaluate(([w, t]) => globalThis.probe.streamed(w, t), [word, ms]),
};
await goTo("data:text/html,<p>The browser has started.</p>");
// A browser that stops drawing frames ends the measurement, which would wait for ever.
const late = (op) =>
  new Promise((_, reject) => setTimeout(() => reject(new Error(`${op} took more than 5 minutes`)), 300_000).unref());
for await (const line of createInterface({ input: process.stdin })) {
  const { op, ...order } = JSON.parse(line);
  console.log(JSON.stringify(await Promise.race([orders[op](order), late(op)])));
}
await browser.close();
