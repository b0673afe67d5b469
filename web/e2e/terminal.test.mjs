// Shared terminals in a browser, against the program that was built.
import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, browser, button, composer, eachTest, patience, phone, server, startServer } from "./harness.mjs";

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
  await composer(p).or(p.page.locator(".closed")).first().waitFor();
  await p.page.locator(".head").click({ position: { x: 200, y: 20 } });
  await p.page.keyboard.press("`");
  await p.page.locator(".terminals").waitFor();
  return p;
}

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

const share = (role) =>
  server.call("POST", `/api/headless/sessions/${server.session}/shares`, { role, label: "Ben" });

test("the controller types, and everybody sees it at once and later", { timeout: 6 * patience }, async () => {
  await startServer();
  const ann = await enter(await server.link());
  await prompted(ann);
  const ben = await enter(await server.link());
  await about(ben, /owner's terminal, \d+ × \d+; you watch/);
  await typeLine(ann, "echo $((6*7))");
  await Promise.all([ann, ben].map((p) => shows(p, /\n?42/)));
  assert.equal(await screen(ben), await screen(ann));
  await rows(ben).click({ force: true });
  await ben.page.keyboard.type("echo no\n");
  const late = await enter(`${server.url}/#share=${(await share("viewer")).token}`);
  await shows(late, /42/);
  assert.equal(await button(late, "New terminal").count(), 0, "a viewer starts nothing");

  // The size is that of the window of who started it.
  await ann.page.getByRole("separator").focus();
  const before = await ann.page.locator(".about").innerText();
  await ann.page.keyboard.press("ArrowUp");
  await ann.page.keyboard.press("ArrowUp");
  await ann.page.waitForFunction((text) => document.querySelector(".about").innerText !== text, before);
  await rows(ann).click({ force: true });
  await typeLine(ann, "stty size");
  const [, columns, lines] = /(\d+) × (\d+)/.exec(await ann.page.locator(".about").innerText());
  for (const p of [ann, ben, late]) {
    await shows(p, `${lines} ${columns}`);
    await about(p, `${columns} × ${lines}`);
    assert.equal(await p.page.locator(".xterm-rows > div").count(), Number(lines));
  }
  assert.equal((await screen(ann)).includes("no"), false, "a watcher types nothing");

  // Who takes over cannot type into what another connection started, but has terminals too.
  await button(ben, "Take over").click();
  await about(ann, "You can type again when you drive.");
  await rows(ann).click({ force: true });
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
  await rows(ann).click({ force: true });
  await typeLine(ann, "exit 3");
  await about(ann, "This terminal ended with the exit code 3.");
  assert.deepEqual(await Promise.all([ann, ben, late].map((p) => p.complaints())), [[], [], []]);
});

test("a terminal outlives a lost connection, a reload and another session, but not the server", { timeout: 6 * patience }, async () => {
  await startServer();
  const ann = await enter(await server.link());
  await prompted(ann);
  await typeLine(ann, "export kept=12; clear");
  await ann.page.reload();
  await about(ann, /^Your terminal/);
  await shows(ann, "ready>");
  await typeLine(ann, "echo $((kept+1))");
  await shows(ann, "13");

  await ann.page.getByRole("button", { name: "New session" }).first().click();
  await button(ann, "New terminal").first().waitFor();
  await ann.page.locator(".session").last().click();
  await about(ann, /^Your terminal/);
  await rows(ann).click({ force: true });
  await typeLine(ann, "echo $((kept+2))");
  await shows(ann, "14");

  const ben = await enter(await server.link());
  await shows(ben, "14");
  await ann.context.setOffline(true);
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

test("a flood of output neither freezes the page nor grows it", { timeout: 6 * patience }, async () => {
  await startServer();
  const ann = await enter(await server.link());
  await prompted(ann);
  const ben = await enter(await server.link());
  await about(ben, "you watch");
  const before = await Promise.all([ann, ben].map(heap));
  const ms = await longest(ann, async () => {
    await typeLine(ann, "yes | head -c 20000000; echo the $((6*7))nd end");
    await Promise.all([ann, ben].map((p) => shows(p, "the 42nd end")));
    await typeLine(ann, "yes");
    await shows(ann, /y\n?y/);
    await ann.page.keyboard.press("Control+c");
    await Promise.all([ann, ben].map((p) => shows(p, "ready>")));
  });
  assert.ok(ms < 50, `a task took ${ms} ms`);
  for (const [i, p] of [ann, ben].entries()) {
    const grown = (await heap(p)) - before[i];
    assert.ok(grown < 20 << 20, `the page grew by ${grown} bytes`);
  }
  console.log(ms, before, await Promise.all([ann, ben].map(heap)));
  assert.deepEqual(await Promise.all([ann, ben].map((p) => p.complaints())), [[], []]);
});
