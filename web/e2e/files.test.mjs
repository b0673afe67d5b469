// The right column: files, changes and commands, in a browser against the program that was built.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
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

const script = fileURLToPath(new URL("files.json", import.meta.url));

async function start(options) {
  await startServer(["--agent", `script:${script}`]);
  return enter(options);
}

/** enter opens a page for one more person. */
async function enter(options, request) {
  const p = await browser.open(await server.link(request), options);
  await p.page.locator(".composer, .closed").first().waitFor();
  return p;
}

async function prompt(p, text, answer) {
  await composer(p).fill(text);
  await button(p, "Send").click();
  await p.page.locator(".main", { hasText: answer }).waitFor();
}

function write(path, text) {
  mkdirSync(dirname(join(server.root, path)), { recursive: true });
  writeFileSync(join(server.root, path), text);
}

const oneLine = (n) => `\tfunc line${n}() string { return "${n}" }\n`;
const code = (n) => Array.from({ length: n }, (_, i) => oneLine(i + 1)).join("");
const line = (p, n) => p.page.locator(`[data-line="${n}"]`);
const shows = (p, n, text) => line(p, n).filter({ hasText: text }).waitFor();
const lost = [/WebSocket|Failed to (load|fetch)|ERR_|net::/]; // complaints about a lost connection
const tab = (p, name) => p.page.getByRole("tab", { name });
const said = (p, text) => p.page.locator("#panel", { hasText: text }).waitFor();
const value = (p, text) =>
  p.page.waitForFunction((t) => document.querySelector(".composer textarea")?.value === t, text);

/** key presses a key outside of fields. */
async function key(p, name) {
  await p.page.evaluate(() => document.activeElement?.blur());
  await p.page.keyboard.press(name);
}

async function open(p, query, name) {
  await key(p, "o");
  const field = p.page.getByLabel("Name of a file");
  await field.waitFor();
  await field.fill(query);
  await p.page.locator('#files-list [aria-selected="true"]', { hasText: name }).waitFor();
  await field.press("Enter");
  await p.page.locator(".reader h2", { hasText: name }).waitFor();
}

/** linesRead are the lines that the server sent. */
async function linesRead() {
  const { entries } = await server.call("GET", `/api/headless/sessions/${server.session}/history?limit=1000`);
  return entries
    .filter((e) => e.message.type === "utility_file_read_result")
    .map(({ message: m }) => [m.start_line, m.end_line]);
}

test("a file is found, read in parts and quoted with the keyboard", { timeout: 3 * patience }, async () => {
  const p = await start();
  write("server/handlers/invoice.go", code(6000));
  write("server/invoice_test.go", code(3));
  await open(p, "hndlsinvoice", "invoice.go");
  await shows(p, 1, "line1()");
  await p.page.locator(".code-lines .hljs-keyword").first().waitFor();
  await p.page.locator(".reader", { hasText: "6,000 lines" }).waitFor();
  await accessible(p, "a file");
  await p.page.getByLabel("Go to line").fill("4321");
  await p.page.getByLabel("Go to line").press("Enter");
  await shows(p, 4321, "line4321()");
  await p.page.waitForFunction(() => {
    const { top, bottom } = document.querySelector('[data-line="4321"]').getBoundingClientRect();
    return top > 100 && bottom < innerHeight;
  });
  await p.page.waitForFunction(() => document.activeElement.className === "code-lines");
  const ranges = await linesRead();
  assert.ok(ranges.length >= 2 && ranges.every(([from, to]) => to - from < 400), JSON.stringify(ranges));
  assert.ok((await p.page.locator("[data-line]").count()) <= 400);
  await p.page.keyboard.press("ArrowDown");
  await p.page.locator('.chosen[data-line="4321"]').waitFor();
  await p.page.keyboard.press("Shift+ArrowDown");
  await p.page.locator(".chosen-bar", { hasText: "lines 4321-4322" }).waitFor();
  await p.page.keyboard.press("Enter");
  await value(
    p,
    "server/handlers/invoice.go, lines 4321-4322:\n" +
      '> \tfunc line4321() string { return "4321" }\n> \tfunc line4322() string { return "4322" }\n\n',
  );
  assert.ok(await composer(p).evaluate((a) => a === document.activeElement));
  await open(p, "hndlsinvoice", "invoice.go");
  await key(p, "o");
  const field = p.page.getByLabel("Name of a file");
  await field.fill("hndls");
  await p.page.locator('#files-list [aria-selected="true"]', { hasText: "invoice.go" }).waitFor();
  await field.fill("invoice_test:3");
  await field.press("Enter"); // waits for the file of this name
  await p.page.locator(".reader h2", { hasText: "invoice_test.go" }).waitFor();
  await p.page.locator('.marked[data-line="3"]').waitFor();
  await p.page.locator(".code-lines").focus();
  await p.page.keyboard.press("Escape");
  await p.page.locator("section", { hasText: "Opened before" }).getByRole("button", { name: "invoice.go" }).waitFor();
  await p.page.waitForFunction(() => document.activeElement.ariaLabel === "Name of a file");
  assert.deepEqual(await p.complaints(), []);
});

test("names of files show their hidden characters", { timeout: 3 * patience }, async () => {
  const p = await start();
  write("on\n\u202egpj.exe", "x");
  const shown = "onU+000AU+202Egpj.exe";
  await open(p, "gpj", shown);
  await p.page.getByLabel("Back to the files").click();
  await p.page.locator(".paths", { hasText: shown }).waitFor();
  await composer(p).fill("@gpj");
  await p.page.locator("#files-found", { hasText: shown }).waitFor();
  assert.deepEqual(await p.complaints(), []);
});

test("an open file follows the disk, and what cannot be shown says why", { timeout: 3 * patience }, async () => {
  const p = await start();
  write("notes.md", "# One\n");
  write("empty.txt", "");
  write("wide.txt", `${"x".repeat(300_000)}\nend\n`);
  write("hidden.txt", "a\u202Eb\u200B\n");
  write("binary.dat", "\0\0\0");
  write("large.txt", code(70_000));
  write("[odd] *name?.txt", "odd\n");
  await open(p, "notes", "notes.md");
  await shows(p, 1, "# One");
  const path = `/api/headless/sessions/${server.session}`;
  const watched = () =>
    until("a watch", async () => (await server.call("GET", path)).state.active_file_watches.length === 1);
  await watched();
  write("notes.md", "# Two\n\nMore\n");
  await shows(p, 1, "# Two");
  await shows(p, 3, "More");
  rmSync(join(server.root, "notes.md"));
  await said(p, "The file was deleted");
  write("notes.md", "# Three\n");
  await shows(p, 1, "# Three");
  await p.page.locator("#panel", { hasText: "was deleted" }).waitFor({ state: "detached" });
  await server.stop("SIGKILL");
  write("notes.md", "# Four\n");
  await server.start();
  await shows(p, 1, "# Four");
  await watched();
  write("notes.md", "# Five\n");
  await shows(p, 1, "# Five");
  await open(p, "empty.txt", "empty.txt");
  await said(p, "The file is empty.");
  await open(p, "wide", "wide.txt");
  await shows(p, 1, "298,000 more characters in this line");
  await open(p, "hidden", "hidden.txt");
  await shows(p, 1, "aU+202EbU+200B");
  await open(p, "binary", "binary.dat");
  await said(p, "not a text file");
  await open(p, "large", "large.txt");
  await said(p, "more than 2 MiB");
  await open(p, "odd", "[odd] *name?.txt");
  await shows(p, 1, "odd");
  await key(p, "o");
  await p.page.getByLabel("Name of a file").fill("no such name");
  await said(p, "No file is found");
  assert.deepEqual(await p.complaints(lost), []);
});

test("the files that the agent changed are counted, shown and quoted", { timeout: 3 * patience }, async () => {
  const p = await start();
  write("login/login.go", code(20));
  await prompt(p, "rename it", "It is renamed.");
  await button(p, "Changes, 2 files").waitFor();
  await key(p, "c");
  await p.page.locator(".changes h3", { hasText: /login\.go login\s*\+6 −4/ }).waitFor();
  await p.page.locator(".changes h3", { hasText: /login\.md docs\s*\+3 −0/ }).waitFor();
  assert.equal(await p.page.locator(".changes", { hasText: "failed.go" }).count(), 0);
  await said(p, "Edits of the whole session");
  await accessible(p, "changes");
  const diff = p.page.getByRole("group", { name: "Lines of docs/login.md" });
  await diff.focus();
  await p.page.keyboard.press("ArrowDown");
  await p.page.keyboard.press("Enter");
  await value(p, "docs/login.md, line 1:\n> +# Login\n\n");
  await p.page.getByRole("button", { name: "Edit 2 of 2" }).click();
  await p.page.locator(".transcript .diff", { hasText: 'import "time"' }).waitFor();
  await p.page.locator(".transcript .diff .opens", { hasText: "login/login.go" }).click();
  await shows(p, 1, "line1()");
  await tab(p, /^Changes/).click();
  await button(p, "Open docs/login.md").click(); // which the script only pretends to write
  await said(p, "There is no such file any more.");
  await prompt(p, "do it everywhere", "All of them log now.");
  await button(p, "Changes, 42 files").click();
  await p.page.locator(".changes li").nth(41).waitFor();
  assert.equal(await p.page.locator(".changes .diff").count(), 0, "many files are folded at first");
  await button(p, "Unfold all").click();
  await p.page.locator(".changes .diff").nth(42).waitFor();
  const last = p.page.locator(".changes h3", { hasText: "handler_9.go" });
  await last.locator("xpath=..").locator(".diff td").last().scrollIntoViewIfNeeded();
  const [top, panel] = await last.evaluate((h) => [h, h.closest(".panel")].map((e) => e.getBoundingClientRect().top));
  assert.ok(top >= panel, "the name of a file stays above its changes");
  assert.deepEqual(await p.complaints(), []);
});

test("the width of the column can be chosen with the keyboard, and stays", { timeout: 3 * patience }, async () => {
  const p = await start();
  await key(p, "p");
  const edge = p.page.getByRole("separator", { name: "Width of the right column" });
  const width = () => p.page.locator("#panel").evaluate((e) => Math.round(e.getBoundingClientRect().width));
  await edge.focus();
  const before = await width();
  await p.page.keyboard.press("ArrowLeft");
  const after = await width();
  assert.ok(after >= before + 20, `${before} px, then ${after}`);
  for (let i = 0; i < 40; i++) await p.page.keyboard.press("ArrowLeft");
  const main = await p.page.locator(".main").evaluate((e) => e.getBoundingClientRect().width);
  assert.ok(main >= 400, `the conversation has ${main} px`);
  const widest = await width();
  assert.equal(await edge.getAttribute("aria-valuenow"), String(widest - 1)); // the line beside it is not of the column
  await p.page.reload();
  await p.page.locator(".composer, .closed").first().waitFor();
  await key(p, "p");
  await p.page.locator(".person", { hasText: "You" }).waitFor();
  assert.equal(await width(), widest);
  assert.deepEqual(await p.complaints(), []);
});

test("the workspace is compared with its last commit", { timeout: 3 * patience }, async () => {
  const p = await start();
  const author = ["-c", "user.name=ann", "-c", "user.email=ann@example.com"];
  const git = (...args) => execFileSync("git", [...author, ...args], { cwd: server.root });
  await key(p, "c");
  await button(p, "Since the last commit").click();
  await said(p, /git could not compare: .*not a git repository/i);
  write("one.go", code(30));
  write("new.go", "");
  write(".gitignore", "state\n");
  git("init", "--quiet");
  git("add", "one.go", ".gitignore");
  git("commit", "--quiet", "-m", "all");
  await button(p, "Compare again").click();
  await said(p, "No changed files");
  await p.page.locator(".untracked", { hasText: "new.go" }).waitFor();
  await runs(p).last().locator(".line", { hasText: /You compared\s*the workspace/ }).waitFor();
  write("one.go", code(30).replace("line20", "line200"));
  await run(p, "echo more >> one.go");
  await runs(p).filter({ hasText: "echo more" }).locator(".good").waitFor();
  await button(p, "Compare again").click();
  await p.page.locator(".changes h3", { hasText: /one\.go\s*\+2 −1/ }).waitFor();
  await p.page.locator(".changes .diff tr", { hasText: "line200" }).filter({ hasText: "20" }).waitFor();
  await accessible(p, "a comparison");
  await button(p, "Edits of the agent").click();
  await said(p, "Files that the agent edits appear here");
  assert.deepEqual(await p.complaints(), []);
});

test("changes of turns that are not loaded are looked up", { timeout: 3 * patience }, async () => {
  const p = await start();
  await prompt(p, "rename it", "It is renamed.");
  await prompt(p, "look around", "There is nothing else.");
  await p.page.addInitScript(() => {
    globalThis.WebSocket = class extends WebSocket {
      constructor(...args) {
        super(...args);
        this.addEventListener("message", ({ data }) => setTimeout(() => globalThis.heard?.(data)));
      }
    };
  });
  const shown = p.page.locator(".transcript .diff", { hasText: "now.UTC()" });
  const edit = p.page.getByRole("button", { name: "Edit 1 of 2" });
  const again = async () => {
    await p.page.reload();
    await p.page.locator(".main", { hasText: "There is nothing else." }).waitFor();
    assert.equal(await p.page.getByText("It is renamed.").count(), 0);
    await key(p, "c");
    await p.page.locator(".changes h3", { hasText: /login\.go login\s*\+6 −4/ }).waitFor();
    await said(p, "Edits of the whole session");
  };
  await again();
  await edit.click();
  await shown.waitFor();
  // They were read, but are not drawn yet.
  await again();
  await edit.evaluate(async (button) => {
    const read = new Promise((done) => {
      globalThis.heard = (data) => data.includes("now.UTC()") && done();
    });
    document.querySelector(".transcript").scrollTop = 0;
    await read;
    button.click();
  });
  await shown.waitFor();
  assert.deepEqual(await p.complaints(), []);
});

test("a session that is left for another one goes on as it was", { timeout: 3 * patience }, async () => {
  const p = await start();
  const go = (hash) => p.page.evaluate((h) => (location.hash = h), hash);
  const session = `#session=${server.session}`;
  await prompt(p, "rename it", "It is renamed.");
  await key(p, "`");
  await p.page.getByRole("tab", { name: "Terminal 1" }).waitFor();
  await p.page.getByRole("button", { name: "New session" }).first().click();
  await p.page.getByText("No terminal is open.").waitFor();
  const other = new URL(p.page.url()).hash;
  await go(session);
  await button(p, "Changes, 2 files").click();
  await said(p, "Edits of the whole session");
  // A terminal that starts later takes nobody out of the other session, and starts nothing there.
  await p.context.setOffline(true);
  await p.page.evaluate(() => dispatchEvent(new Event("online"))); // so that the page looks at once
  await p.page.locator(".about", { hasText: "Keys are sent when the connection is back." }).waitFor();
  await button(p, "New terminal").click();
  await go(other);
  await p.page.getByText("No terminal is open.").waitFor();
  await p.context.setOffline(false);
  const path = `/api/headless/sessions/${server.session}`;
  await until("the terminal", async () => (await server.call("GET", path)).state.active_utility_commands.length === 2);
  await prompt(p, "hello", "This is a script");
  assert.equal(await p.page.getByText("No terminal is open.").count(), 1);
  await go(session);
  await p.page.getByRole("tab", { name: "Terminal 2" }).waitFor();
  assert.deepEqual(await p.complaints(lost), []);
});

const runs = (p) => p.page.locator(".command");

async function run(p, command) {
  await key(p, "r");
  const field = p.page.getByLabel("Command", { exact: true });
  await field.fill(command);
  await field.press("Enter");
  await field.waitFor({ state: "detached" });
}

test("who drives runs commands, and everyone sees them", { timeout: 3 * patience }, async () => {
  const ann = await start();
  const ben = await enter({}, { role: "viewer" });
  await run(ann, "printf '\\033[31mbegin\\033[0m\\n'; while [ ! -f go ]; do sleep 0.05; done; seq 20; exit 3");
  for (const p of [ann, ben]) await runs(p).locator(".output", { hasText: /^begin$/ }).waitFor();
  await accessible(ann, "a command that runs");
  assert.equal(await runs(ben).getByRole("button", { name: "Stop" }).count(), 0);
  write("go", "");
  for (const p of [ann, ben]) await runs(p).locator(".line", { hasText: "exit 3" }).waitFor();
  await runs(ann).locator(".line", { hasText: "You ran" }).waitFor();
  await runs(ben).getByRole("button", { name: "Show all 21 lines" }).click();
  await runs(ben).locator(".inside .output", { hasText: /^begin\n1\n2\n[^]*\n20$/ }).waitFor();
  await run(ann, "sleep 600");
  await runs(ann).last().getByRole("button", { name: "Stop" }).click();
  for (const p of [ann, ben]) await runs(p).last().locator(".line", { hasText: "ended by SIGTERM" }).waitFor();
  // A double click does not kill.
  await run(ann, "trap 'sleep 0.3; exit $((2+2))' TERM; echo ready; while :; do sleep 0.05; done");
  await runs(ann).last().locator(".output", { hasText: "ready" }).waitFor();
  await runs(ann).last().getByRole("button", { name: "Stop" }).dblclick();
  await runs(ann).last().locator(".line", { hasText: "exit 4" }).waitFor();
  await ben.page.reload();
  await runs(ben).first().locator(".line", { hasText: "exit 3" }).waitFor();
  await runs(ben).last().locator(".line", { hasText: "exit 4" }).waitFor();
  await key(ben, "r");
  const dialog = ben.page.getByRole("dialog", { name: "Run a command" });
  await dialog.getByText("Your link does not let you drive.").waitFor();
  await ben.page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await key(ann, "r");
  const field = ann.page.getByLabel("Command", { exact: true });
  await field.press("ArrowUp"); // the commands before
  await field.press("ArrowUp");
  await ann.page.waitForFunction(() => document.querySelector(".run textarea").value === "sleep 600");
  await accessible(ann, "the dialog for a command");
  await field.hover(); // a selection that ends beside the dialog does not close it
  await ann.page.mouse.down();
  await ann.page.mouse.move(5, 5);
  await ann.page.mouse.up();
  assert.equal(await field.inputValue(), "sleep 600");
  await ann.page.mouse.click(5, 5); // this does
  await field.waitFor({ state: "detached" });
  assert.deepEqual(await ann.complaints(), []);
  assert.deepEqual(await ben.complaints(), []);
});

test("who does not drive sees what is open there, and can ask", { timeout: 3 * patience }, async () => {
  const ann = await start();
  write("a/one.go", code(1000));
  await open(ann, "one.go", "one.go");
  await shows(ann, 1, "line1()");
  const cat = await enter();
  await key(cat, "o");
  await said(cat, "drives. Only the person who drives can find and open files");
  await accessible(cat, "files of somebody who watches");
  await ann.page.getByLabel("Go to line").fill("700");
  await ann.page.getByLabel("Go to line").press("Enter");
  await shows(ann, 700, "line700()");
  await cat.page.locator("#panel").getByRole("button", { name: "one.go" }).click();
  await cat.page.getByLabel("Go to line").fill("700");
  await cat.page.getByLabel("Go to line").press("Enter");
  await shows(cat, 700, "line700()");
  await said(cat, "Only the person who drives can read other lines");
  await button(cat, "Ask for control").first().click();
  await button(ann, "Hand over").click();
  await cat.page.getByLabel("Go to line").fill("1");
  await cat.page.getByLabel("Go to line").press("Enter");
  await shows(cat, 1, "line1()");
  assert.deepEqual(await ann.complaints(), []);
  assert.deepEqual(await cat.complaints(), []);
});

test("the column on a phone, and its tabs with the keyboard", { timeout: 3 * patience }, async () => {
  const p = await start({ ...phone, colorScheme: "dark" });
  write("login/login.go", code(900));
  await prompt(p, "rename it", "It is renamed.");
  await button(p, "Changes, 2 files").tap();
  await accessible(p, "changes on a phone");
  await p.page.locator(".changes .fold", { hasText: "login.go" }).tap();
  await button(p, "Open login/login.go").tap();
  await shows(p, 1, "line1()");
  await accessible(p, "a file on a phone");
  await line(p, 2).locator(".no").tap();
  await line(p, 4).locator(".no").tap();
  await p.page.locator(".chosen-bar", { hasText: "lines 2-4" }).waitFor();
  await button(p, "Comment").tap();
  await p.page.locator("#panel").waitFor({ state: "detached" });
  await p.page.waitForFunction(() =>
    document.querySelector(".composer textarea").value.startsWith("login/login.go, lines 2-4:\n> \tfunc line2()"),
  );
  const wide = await p.page.evaluate(() => document.documentElement.scrollWidth);
  assert.equal(wide, 360);
  await p.page.reload();
  await button(p, "People and turns").tap();
  await tab(p, "People").focus();
  for (const [press, name] of [
    ["ArrowRight", "Turns"],
    ["ArrowRight", "Files"],
    ["End", "Turns"],
    ["Home", "Files"],
    ["ArrowLeft", "Turns"],
  ]) {
    await p.page.keyboard.press(press);
    await p.page.waitForFunction(
      (t) => {
        const { role, ariaSelected, innerText } = document.activeElement;
        return role === "tab" && ariaSelected === "true" && innerText === t;
      },
      name,
    );
  }
  await p.page.locator(".turns li").first().waitFor();
  await p.page.keyboard.press("Escape");
  await p.page.locator("#panel").waitFor({ state: "detached" });
  assert.equal(await p.page.evaluate(() => localStorage.getItem("maestro.tab")), "turns");
  assert.deepEqual(await p.complaints(), []);
});
