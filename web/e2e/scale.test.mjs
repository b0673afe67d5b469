// A session of 100,000 events: the page keeps few elements and the place of its reader.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { browser, button, composer, eachTest, patience, server, startServer } from "./harness.mjs";

eachTest();

const prose =
  "The token is compared with **local time**, although it was issued in `UTC`, so the test fails on Mondays.\n\n" +
  "1. take the time as an argument\n2. compare in *UTC* everywhere\n\n```go\nreturn now.UTC().Before(t.Expires)\n```\n\n";
const answer = [
  { say: { text: prose, chunk: 4 } },
  { tool: { name: "bash", args: { command: "go test ./login" }, output: "ok\n".repeat(30) } },
  { say: { text: "| Test | Now |\n|---|---|\n| TestLogin | passes |\n\n", chunk: 4 } },
  { end: true },
];
const answers = 350; // of each of the prompts
const prompts = 4;
const script = {
  prompts: [
    { match: "history", steps: [{ repeat: { times: answers, steps: answer } }, { say: "That was all." }] },
    { match: "live", steps: [{ repeat: { times: 100_000, rate: 100, steps: [{ say: "Line {{n}} of the news.\n\n" }] } }] },
  ],
};
const folder = mkdtempSync(join(tmpdir(), "maestro-scale-"));
writeFileSync(join(folder, "script.json"), JSON.stringify(script));
after(() => rmSync(folder, { recursive: true }));

async function summary() {
  const { sessions } = await server.call("GET", "/api/headless/sessions");
  return sessions[0];
}

async function until(condition) {
  while (!condition(await summary())) await pause(50);
}

// scrollUp scrolls a page up by so many pixels, some in each frame. It returns the most elements that the document
// had, the most that a row on the screen moved by more or less than that, and how often older rows came.
async function scrollUp([pixels, step]) {
  const view = document.querySelector(".transcript");
  const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const rows = () =>
    new Map(
      [...document.querySelectorAll(".row")].map((r) => [r, [r.getBoundingClientRect().top, Number(r.dataset.index)]]),
    );
  const { top, bottom } = view.getBoundingClientRect();
  let [elements, worst, by, loads] = [0, 0, 0, 0];
  let before = rows();
  for (let moved = 0; moved < pixels; moved += by) {
    by = Math.min(step, view.scrollTop); // at the top it waits for the page before
    view.scrollTop -= by;
    await painted();
    const now = rows();
    const stayed = [...now].filter(([row, [at]]) => before.has(row) && at <= bottom && at + row.offsetHeight >= top);
    for (const [row, [at]] of stayed) worst = Math.max(worst, Math.abs(at - before.get(row)[0] - by));
    if (stayed.length === 0) worst = Infinity; // the screen shows something else
    else if (stayed[0][1][1] > before.get(stayed[0][0])[1]) loads++; // rows came before it
    before = now;
    elements = Math.max(elements, document.getElementsByTagName("*").length);
  }
  return { elements, worst, loads };
}

/** follows waits until the last text of a page is at least a line of the news, and returns which one. */
async function follows(p, line) {
  const found = await p.page.waitForFunction((line) => {
    const last = [...document.querySelectorAll(".prose")].at(-1)?.innerText;
    const n = Number(/^Line (\d+) of the news/.exec(last)?.[1]);
    return n >= line && n;
  }, line);
  return found.jsonValue();
}

test("a reader keeps the place in 100,000 events while more arrive", { timeout: 5 * patience }, async () => {
  await startServer(["--agent", `script:${join(folder, "script.json")}`]);
  const driver = await browser.open(await server.link());
  for (let n = 1; n <= prompts; n++) {
    await composer(driver).fill(`history ${n}`);
    await button(driver, "Send").click();
    await until((s) => !s.is_responding && s.cursor > (n * 100_000) / prompts);
  }

  const reader = await browser.open(await server.link({ role: "viewer" }));
  await reader.page.locator(".prose", { hasText: "That was all." }).waitFor();
  await composer(driver).fill("live");
  await button(driver, "Send").click();
  await follows(reader, 20);

  // One step up is enough to stay, also when the window changes its height.
  await reader.page.evaluate(() => document.querySelector(".transcript").scrollBy(0, -600));
  await button(reader, "Follow the answer").waitFor();
  await reader.page.setViewportSize({ width: 1280, height: 780 });
  const { elements, worst, loads } = await reader.page.evaluate(scrollUp, [60_000, 200]);
  assert.ok(elements < 3000, `got ${elements} elements, want less than 3000`);
  assert.ok(worst <= 2, `got a row that jumped by ${worst} pixels, want none`);
  assert.ok(loads >= 3, `got ${loads} older pages, want at least 3`);

  // A reader who stays sees the same while more arrives.
  const place = () =>
    [...document.querySelectorAll(".row")].map((r) => `${Math.round(r.getBoundingClientRect().top)} ${r.innerText}`);
  await button(reader, "Follow the answer").waitFor();
  const before = await reader.page.evaluate(place);
  const { cursor } = await summary();
  await until((s) => s.cursor > cursor + 200);
  await reader.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  assert.deepEqual(await reader.page.evaluate(place), before);

  await button(reader, "Follow the answer").click();
  await follows(reader, await follows(reader, 200) + 100);
  assert.deepEqual(await reader.complaints(), []);
  assert.deepEqual(await driver.complaints(), []);
});
