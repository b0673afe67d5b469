// Shared terminals in a browser, against the program that was built.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  accessible,
  browser,
  button,
  composer,
  eachTest,
  patience,
  phone,
  server,
  startServer,
  until,
} from "./harness.mjs";

eachTest();

const rows = (p) => p.page.locator(".terminals .xterm-rows");
const about = (p, text) => p.page.locator(".terminals [role=status]", { hasText: text }).waitFor();

/** shows waits until the screen of the active terminal has a text. */
const shows = (p, text) => rows(p).filter({ hasText: text }).waitFor();

/** screen returns the text of the screen, without the spaces at the end. */
async function screen(p) {
  const lines = await p.page.locator(".xterm-rows > div").allInnerTexts();
  return lines.map((l) => l.replaceAll("\u00a0", " ").trimEnd()).join("\n");
}

/** enter opens the page and its terminals by key. */
async function enter(link, options) {
  const p = await browser.open(link, options);
  await p.page.goto(`${server.url}/#session=${server.session}`);
  await composer(p).or(p.page.locator(".closed")).first().waitFor();
  await p.page.locator(".head").click({ position: { x: 200, y: 20 } });
  await p.page.keyboard.press("`");
  await p.page.locator(".terminals").waitFor();
  return p;
}

const into = (p) => rows(p).click({ force: true }); // the rows take no clicks, what is below them does

/** typeLine waits for the prompt of the shell and types a command. */
async function typeLine(p, line) {
  await p.page.locator(".terminals .xterm.focus").waitFor();
  await p.page.keyboard.type(`${line}\n`);
}

/** prompted waits for a shell, and gives it a prompt of its own. */
async function prompted(p) {
  await shows(p, /[#$] /);
  await typeLine(p, "PS1='ready> '; clear");
  await p.page.waitForFunction(() => document.querySelector(".xterm-rows").innerText.trim() === "ready>");
}

/**
 * longest runs something and returns the milliseconds of processor time of the longest task of the page meanwhile. Time
 * by the clock would also count what other programs do on a busy machine.
 */
async function longest(p, run) {
  const whole = p.context.browser();
  await whole.startTracing(p.page, { categories: ["toplevel", "__metadata"] });
  await run();
  const { traceEvents: events } = JSON.parse(await whole.stopTracing());
  const main = new Set(
    events.filter((e) => e.name === "thread_name" && e.args.name === "CrRendererMain").map((e) => `${e.pid} ${e.tid}`),
  );
  const tasks = events.filter((e) => e.tdur !== undefined && main.has(`${e.pid} ${e.tid}`));
  assert.ok(tasks.length > 100, `there were only ${tasks.length} tasks`);
  return Math.max(...tasks.map((e) => e.tdur)) / 1000;
}

async function heap(p) {
  const tools = await p.context.newCDPSession(p.page);
  await tools.send("HeapProfiler.collectGarbage");
  const { usedSize } = await tools.send("Runtime.getHeapUsage");
  await tools.detach();
  return usedSize;
}

/** spot returns where a text is on the screen, which is drawn again at any time. */
async function spot(p, text) {
  const found = await p.page.waitForFunction((t) => {
    const span = [...document.querySelectorAll(".xterm-rows span")].find((s) => s.innerText.includes(t));
    const box = span?.getBoundingClientRect();
    return box && { x: box.x + 5, y: box.y + 5 };
  }, text);
  return found.jsonValue();
}

const share = (role) =>
  server.call("POST", `/api/headless/sessions/${server.session}/shares`, { role, label: "Ben" });

test("the controller types, and everybody sees it at once and later", { timeout: 6 * patience }, async () => {
  await startServer();
  const ann = await enter(await server.link());
  await prompted(ann);
  const ben = await enter(await server.link());
  await about(ben, /owner's terminal, \d+ × \d+; you watch/);
  await typeLine(ann, "echo $((6*7))");
  await until("the same screen", async () => {
    const [hers, his] = await Promise.all([ann, ben].map(screen));
    return hers === his && /42\nready>/.test(hers);
  });
  await into(ben);
  await ben.page.keyboard.type("echo no\n");
  const late = await enter(`${server.url}/#share=${(await share("viewer")).token}`);
  await shows(late, /42/);
  assert.equal(await button(late, "New terminal").count(), 0, "a viewer starts nothing");

  // The size is that of the window of who started it.
  await ann.page.getByRole("separator").focus();
  const before = await ann.page.locator(".about").innerText();
  await ann.page.keyboard.press("ArrowUp"); // at least one row, and one new size
  await ann.page.waitForFunction((text) => document.querySelector(".about").innerText !== text, before);
  await into(ann);
  await typeLine(ann, "stty size");
  const [, columns, lines] = /(\d+) × (\d+)/.exec(await ann.page.locator(".about").innerText());
  for (const p of [ann, ben, late]) {
    await shows(p, `${lines} ${columns}`);
    await about(p, `${columns} × ${lines}`);
    await until(`${lines} rows`, async () => (await p.page.locator(".xterm-rows > div").count()) === Number(lines));
  }
  assert.equal((await screen(ann)).includes("no"), false, "a watcher types nothing");

  // Who takes over cannot type into what another connection started, but has terminals too.
  await button(ben, "Take over").click();
  await about(ann, "You can type again when you drive.");
  await into(ann);
  await ann.page.keyboard.type("echo lost\n");
  await button(ben, "New terminal").click();
  await ben.page.getByRole("tab", { name: "Terminal 2" }).waitFor();
  await prompted(ben);
  await typeLine(ben, "echo $((7*7))");
  await ann.page.getByRole("tab", { name: "Terminal 2" }).click();
  await shows(ann, "49");
  await about(ann, "owner's terminal");

  // It ends when its owner ends it, and a closed tab is gone.
  await button(ben, "End Terminal 2").click();
  await button(ben, "End it").click();
  await about(ann, "Its owner ended this terminal.");
  await button(ann, "Put Terminal 2 away").click();
  await about(ann, "You can type again when you drive.");
  assert.equal((await screen(ann)).includes("lost"), false);
  await button(ann, "Take over").click();
  await about(ann, /^Your terminal, \d+ × \d+$/);
  await into(ann);
  await typeLine(ann, "exit 3");
  await about(ann, "This terminal ended with the exit code 3.");
  assert.deepEqual(await Promise.all([ann, ben, late].map((p) => p.complaints())), [[], [], []]);
});

test("a terminal outlives everything but its server", { timeout: 6 * patience }, async () => {
  await startServer();
  const ann = await enter(await server.link());
  await prompted(ann);
  await typeLine(ann, "export kept=12; echo $((6*6))");
  await shows(ann, "36"); // what a page that is loaded again has not sent yet is lost
  await ann.page.reload();
  await about(ann, /^Your terminal/);
  await shows(ann, "ready>");
  await into(ann);
  await typeLine(ann, "echo $((kept+1))");
  await shows(ann, "13");

  const before = ann.page.url();
  await ann.page.getByRole("button", { name: "New session" }).first().click();
  await ann.page.waitForURL((url) => url.href !== before);
  await button(ann, "New terminal").first().waitFor();
  await ann.page.locator(`.session[href="#session=${server.session}"]`).click();
  await about(ann, /^Your terminal/);
  await into(ann);
  await typeLine(ann, "echo $((kept+2))");
  await shows(ann, "14");

  const ben = await enter(await server.link());
  await shows(ben, "14");
  await ann.context.setOffline(true);
  await ann.page.evaluate(() => dispatchEvent(new Event("online"))); // so that the page looks at once
  await about(ann, "Keys are sent when the connection is back.");
  await ann.page.keyboard.type("echo $((kept+3))\n");
  await ann.context.setOffline(false);
  await Promise.all([ann, ben].map((p) => shows(p, "15")));

  await server.stop("SIGKILL");
  await server.start();
  for (const p of [ann, ben]) {
    await about(p, "The server was restarted, which ended this terminal.");
    await shows(p, "15");
  }
  const known = [/WebSocket|Failed to (load|fetch)|ERR_|net::/];
  assert.deepEqual(await Promise.all([ann, ben].map((p) => p.complaints(known))), [[], []]);
});

test("a flood of output neither freezes the page nor grows it", { timeout: 12 * patience }, async () => {
  await startServer();
  const ann = await enter(await server.link());
  await prompted(ann);
  const ben = await enter(await server.link());
  await about(ben, "you watch");
  const before = await Promise.all([ann, ben].map(heap));
  const flood = async () => {
    await typeLine(ann, "yes | head -c 20000000; echo the $((6*7))nd end");
    const over = (p) => rows(p).filter({ hasText: "the 42nd end" }).waitFor({ timeout: 3 * patience });
    await Promise.all([ann, ben].map(over));
    await typeLine(ann, "yes again");
    await shows(ann, /again\n?again/); // it runs; an earlier Control+C could drop the keys that follow
    await ann.page.keyboard.press("Control+c");
    await Promise.all([ann, ben].map((p) => shows(p, /ready>\s*$/)));
    await typeLine(ann, "clear");
    await Promise.all([ann, ben].map((p) => shows(p, /^ready>\s*$/)));
  };
  // Other programs make a task long by chance, because they empty the caches of the processor. A flood that freezes the
  // page does it each time.
  const tasks = [];
  do tasks.push(await longest(ann, flood));
  while (tasks.at(-1) >= 50 && tasks.length < 4);
  assert.ok(tasks.at(-1) < 50, `the longest tasks took ${tasks} ms`);
  for (const [i, p] of [ann, ben].entries()) {
    const grown = (await heap(p)) - before[i];
    assert.ok(grown < 20 << 20, `the page grew by ${grown} bytes`);
  }
  assert.deepEqual(await Promise.all([ann, ben].map((p) => p.complaints())), [[], []]);
});

test("keys go into the terminal, and out of it", { timeout: 6 * patience }, async () => {
  await startServer();
  const ann = await enter(await server.link());
  await prompted(ann);
  const inTerminal = () => ann.page.evaluate(() => document.activeElement.className.includes("xterm"));
  await ann.page.keyboard.press("Control+k"); // kills the line, and does not open the commands
  await ann.page.keyboard.type("echo jkgsbt?/`'`\t\n");
  await shows(ann, "jkgsbt?/");
  assert.equal(await ann.page.locator("dialog[open]").count(), 0);
  assert.equal(new URL(ann.page.url()).hash, `#session=${server.session}`);
  await ann.page.keyboard.press("Tab");
  assert.equal(await inTerminal(), true, "Tab is for the shell");

  await ann.page.keyboard.press("Control+Backquote");
  const tab = ann.page.getByRole("tab", { name: "Terminal 1" });
  assert.equal(await tab.evaluate((t) => t === document.activeElement), true);
  await accessible(ann, "a terminal");
  await ann.page.keyboard.press("Tab");
  assert.equal(await button(ann, "New terminal").evaluate((b) => b === document.activeElement), true);
  await ann.page.keyboard.press("Enter");
  await ann.page.getByRole("tab", { name: "Terminal 2" }).waitFor();
  await ann.page.waitForFunction(() => document.activeElement.className.includes("xterm"));
  await shows(ann, /[#$] /);
  await ann.page.keyboard.press("Control+Backquote");
  await ann.page.keyboard.press("ArrowLeft");
  await shows(ann, "jkgsbt?/");
  await ann.page.keyboard.press("ArrowLeft");
  await ann.page.waitForFunction(() => !document.querySelector(".xterm-rows").innerText.includes("jkgsbt"));
  await ann.page.keyboard.press("`");
  await ann.page.locator(".terminals").waitFor({ state: "detached" });
  const terminals = button(ann, "Terminals, 2 running");
  assert.equal(await terminals.evaluate((b) => b === document.activeElement), true);
  await ann.page.keyboard.press("Control+Backquote");
  await ann.page.waitForFunction(() => document.activeElement.className.includes("xterm"));

  // Copying and pasting. A pasted text presses no keys.
  await ann.context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await ann.page.getByRole("tab", { name: "Terminal 1" }).click();
  await typeLine(ann, "clear; printf 'word\\n'");
  await shows(ann, /^word\s*ready>/);
  await ann.page.locator(".xterm-rows > div").first().dblclick({ position: { x: 12, y: 8 }, force: true });
  for (const copy of [() => button(ann, "Copy").click(), () => ann.page.keyboard.press("Control+Shift+C")]) {
    await ann.page.evaluate(() => navigator.clipboard.writeText("nothing"));
    await copy();
    assert.equal(await ann.page.evaluate(() => navigator.clipboard.readText()), "word");
  }
  await ann.page.evaluate(() => navigator.clipboard.writeText("echo one\x1b[201~\x03; echo $((8*8))\necho two"));
  await ann.page.keyboard.press("Control+Shift+V");
  await shows(ann, "echo two");
  assert.equal((await screen(ann)).includes("64"), false, "nothing of it ran");
  await ann.page.keyboard.press("Control+c");

  // With a screen reader.
  await ann.page.keyboard.press("Control+Backquote");
  await button(ann, "Screen reader mode").click();
  await ann.page.locator(".xterm-accessibility-tree", { hasText: "echo two" }).waitFor({ state: "attached" });
  await accessible(ann, "a terminal for a screen reader");
  assert.deepEqual(await ann.complaints(), []);
});

test("a terminal is legible in light and dark, and on a phone", { timeout: 6 * patience }, async () => {
  await startServer();
  for (const colorScheme of ["light", "dark"]) {
    const ann = await enter(await server.link(), { colorScheme });
    await prompted(ann);
    const colours = 'for i in {0..7}; do printf "\\e[3${i}mm$i\\e[0m \\e[9${i}mn$i\\e[0m "; done; echo all';
    await typeLine(ann, `clear; ${colours}; echo done`);
    await shows(ann, /all\n?done/);
    const contrasts = await ann.page.evaluate(() => {
      const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
      const luminance = (colour) => {
        pen.fillStyle = colour;
        pen.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map((c) =>
          c <= 10 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4,
        );
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
      };
      const ground = luminance(getComputedStyle(document.querySelector(".xterm-scrollable-element")).backgroundColor);
      return [...document.querySelectorAll(".xterm-rows span")]
        .filter((s) => /^[mn]\d$/.test(s.innerText))
        .map((s) => [s.innerText, getComputedStyle(s).color])
        .map(([name, colour]) => [name, luminance(colour) / ground])
        .map(([name, ratio]) => [name, Math.max(ratio, 1 / ratio)]);
    });
    assert.equal(contrasts.length, 16);
    for (const [name, ratio] of contrasts) assert.ok(ratio >= 4.5, `${colorScheme} ${name}: ${ratio}`);
    assert.deepEqual(await ann.complaints(), []);
    await button(ann, "End Terminal 1").click();
    await button(ann, "End it").click();
    await ann.page.getByText("No terminal is open.").waitFor();
    await ann.context.close();
  }

  const ben = await enter(await server.link(), phone);
  await prompted(ben);
  const box = await ben.page.locator(".terminals").boundingBox();
  assert.deepEqual(box, { x: 0, y: 0, width: 360, height: 640 });
  await accessible(ben, "a terminal on a phone");
  await ben.page.keyboard.type("echo $((2*3)); sleep 100\n");
  await shows(ben, /100\s*6/); // it runs; before, Control+C would drop what the shell has not read
  await button(ben, "Control").tap();
  await ben.page.keyboard.type("c");
  await shows(ben, /\^C\s*ready>\s*$/);
  await ben.page.keyboard.type("echo $((5*5))");
  await button(ben, "Left").tap();
  await button(ben, "Left").tap();
  await ben.page.keyboard.type("1\n");
  await shows(ben, /255\s*ready>\s*$/); // a key before the prompt is echoed
  await button(ben, "Up").tap();
  await button(ben, "Up").tap();
  await shows(ben, /ready> echo \$\(\(2\*3\)\); sleep 100\s*$/);
  const columns = Number(/(\d+) ×/.exec(await ben.page.locator(".about").innerText())[1]);
  assert.ok(columns >= 40, `${columns} columns`);
  assert.equal(await ben.page.evaluate(() => document.documentElement.scrollWidth), 360);
  await button(ben, "Close the terminals").tap();

  // A question is not hidden below the terminals.
  await composer(ben).fill("Please fix the login test");
  await button(ben, "Send").tap();
  await button(ben, "Allow").waitFor();
  await button(ben, "Terminals, 1 running").tap();
  await ben.page.getByText("1 question waits for an answer.").waitFor();
  await button(ben, "Show").tap();
  await button(ben, "Allow").tap();
  assert.deepEqual(await ben.complaints(), []);
});

test("what a program writes does nothing but draw", { timeout: 6 * patience }, async () => {
  await startServer();
  const ann = await enter(await server.link());
  await prompted(ann);
  await ann.context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await ann.page.evaluate(() => navigator.clipboard.writeText("mine"));
  const evil = [
    "\\e]52;c;ZXZpbA==\\a", // writes to the clipboard
    "\\e]0;<img src=x onerror=globalThis.ran=1>\\u202etitle\\a",
    "\\e]8;;javascript:globalThis.ran=1\\a<b>link</b>\\e]8;;\\a ",
    "\\e]8;;http://127.0.0.1:9/\\aplain\\e]8;;\\a ",
    "<script>globalThis.ran=1</script>",
    "\\e[8;200;500t\\e[3;0;0t\\e[?1049h\\e[?1049l\\e[21t\\e[c\\e[6n\\eP$qm\\e\\\\", // sizes, questions
    "\\eP0;0;0q#0;2;0;0;0#0!9999999~\\e\\\\\\e]1337;File=inline=1:AAAA\\a", // pictures
  ];
  const marks = "printf 'a%.0s' 1; printf '\\u0301%.0s' {1..60000}; echo";
  await typeLine(ann, `clear; printf '${evil.join("")}\\n'; ${marks}; echo $((6*7))nd; cat >/dev/null`);
  await shows(ann, "42nd"); // and the questions before it are answered
  await ann.page.locator(".about", { hasText: "title" }).waitFor();
  await ann.page.keyboard.press("Control+d");
  await ann.page.keyboard.press("Control+c");
  await shows(ann, "ready>");
  const link = await spot(ann, "link");
  await ann.page.mouse.move(link.x, link.y);
  await ann.page.mouse.click(link.x, link.y);
  const plain = await spot(ann, "plain");
  await ann.page.mouse.move(plain.x, plain.y);
  await ann.page.locator(".about", { hasText: "http://127.0.0.1:9/" }).waitFor();
  assert.equal(ann.context.pages().length, 1, "nothing was opened");
  assert.equal(await ann.page.evaluate(() => navigator.clipboard.readText()), "mine");
  assert.equal(await ann.page.evaluate(() => globalThis.ran), undefined);
  const about = await ann.page.locator(".about").innerText();
  assert.equal(about.includes("\u202e"), false);

  // A replay of the questions is not answered: the answer would be typed into the shell.
  await typeLine(ann, "printf '\\e[c\\e[6n'; read -rsdR; clear"); // R ends the second answer
  await ann.page.waitForFunction(() => document.querySelector(".xterm-rows").innerText.trim() === "ready>");
  await ann.page.reload();
  await shows(ann, "ready>");
  await into(ann);
  await typeLine(ann, "echo $((6*7))");
  await shows(ann, /ready> echo \$\(\(6\*7\)\)\n?42/);
  assert.deepEqual(await ann.complaints(), []);
});
