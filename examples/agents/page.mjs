// Drives an agent from the page in Chromium, and takes pictures at a question and at the end.
//
//   node page.mjs STARTER FOLDER        such as: node page.mjs opencode docs/transcripts
//
// MAESTRO names the binary; by default it is bin/maestro of this repository.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { browser, button, closeBrowser, composer, openBrowser } from "../../web/e2e/harness.mjs";
import { palette } from "../../web/e2e/png.mjs";

const [starter, folder] = process.argv.slice(2);
if (!folder) {
  console.error("usage: node page.mjs STARTER FOLDER");
  process.exit(2);
}
const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const home = mkdtempSync(join(tmpdir(), "maestro-page."));
const file = join(home, "work/greet.js");
const old = 'console.log("Hello, world");\n';
const greeting = 'const name = process.argv[2] ?? "world";\nconsole.log(`Hello, ${name}`);\n';

// What the local model says. The agents name the arguments of their tools differently.
const path = { opencode: { filePath: file }, claude: { file_path: file } }[starter];
const change = {
  opencode: { ...path, oldString: old, newString: greeting },
  claude: { ...path, old_string: old, new_string: greeting },
}[starter];
const script = [
  {
    match: "Greet people",
    turns: [
      { text: "I will read the program first.", calls: [{ tool: "read|Read", args: path }] },
      { text: "It greets everybody alike. The name comes from the command line.", calls: [{ tool: "edit|Edit", args: change }] },
      {
        text: "Now I will try it.",
        calls: [{ tool: "bash|Bash", args: { command: "node greet.js Ann", description: "Greet Ann" } }],
      },
      { text: "The program greets **Ann** by name, and the world if nobody is named." },
    ],
  },
  { match: "count", turns: [{ text: Array.from({ length: 2000 }, (_, i) => i + 1).join(" ") }] },
];

const children = [];

/** start runs a program and returns the first line that it prints. */
async function start(command, args, env = {}) {
  const child = spawn(command, args, { cwd: root, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  let errors = "";
  child.stderr.on("data", (d) => {
    errors = (errors + d).slice(-4000);
  });
  children.unshift(child);
  const ended = once(child, "close").then(() => {
    throw new Error(`${command} ended: ${errors}`);
  });
  const [line] = await Promise.race([once(createInterface({ input: child.stdout }), "line"), ended]);
  ended.catch(() => {}); // it is ended below
  return line;
}

async function stop(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGTERM");
  await once(child, "close");
}

async function login(ready) {
  const token = readFileSync(ready.tokenFile, "utf8").trim();
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const res = await fetch(`${ready.baseUrl}/api/headless/ws-tickets`, { method: "POST", headers, body: "{}" });
  return `${ready.baseUrl}/login?ticket=${(await res.json()).ticket}`;
}

async function take(p, name) {
  await p.page.mouse.move(0, 0);
  const png = await p.page.screenshot({ animations: "disabled", caret: "hide" });
  writeFileSync(join(folder, `${starter}-${name}.png`), palette(png));
}

async function prompt(p, text) {
  await composer(p).fill(text);
  await button(p, "Send").click();
}

const enabled = (p) => p.page.locator(".question button.primary:enabled", { hasText: "Allow" });
const finished = (p) => p.page.locator('.transcript[aria-busy="false"]').waitFor();

async function drive() {
  mkdirSync(join(home, "work"));
  writeFileSync(file, old);
  writeFileSync(join(home, "model.json"), JSON.stringify(script));
  const build = spawn("go", ["build", "-o", join(home, "localmodel"), "./internal/testkit/localmodel/serve"], { cwd: root });
  assert.equal((await once(build, "close"))[0], 0, "go build");
  const model = await start(join(home, "localmodel"), [
    ...["--listen", "127.0.0.1:0", "--pause", "20ms", "--script", join(home, "model.json")],
  ]);
  const env = { AGENT_HOME: home, MODEL_URL: model, PORT: "0" };
  const ready = JSON.parse(await start(join(here, starter), ["--ready-stdout"], env));

  const p = await browser.open(await login(ready), { locale: "en-GB", timezoneId: "UTC", deviceScaleFactor: 1.5 });
  await composer(p).waitFor();
  await prompt(p, "Greet people by name in greet.js, and try it.");
  await enabled(p).waitFor();
  const seen = await p.page.locator(".question").innerText();
  for (const part of ["greet.js", "Hello, world", "process.argv[2]"]) assert.ok(seen.includes(part), `${part} in ${seen}`);
  await take(p, "question");
  await enabled(p).click();
  await p.page.locator(".question pre.runs", { hasText: "node greet.js Ann" }).waitFor();
  await enabled(p).click();
  await p.page.locator(".row", { hasText: "if nobody is named" }).waitFor();
  await finished(p);
  assert.equal(readFileSync(file, "utf8"), greeting);
  await p.page.locator("button.line", { hasText: /edit/i }).click();
  await p.page.locator(".diff").waitFor();
  await take(p, "end");

  await prompt(p, "Please count");
  await p.page.locator(".row", { hasText: "1 2 3 4 5 6 7 8 9 10" }).waitFor();
  await button(p, "Stop").click();
  await finished(p);
  assert.ok(!(await p.page.locator(".transcript").innerText()).includes(" 1999 "), "the agent went on after Stop");
  assert.deepEqual(await p.complaints(), []);
}

await openBrowser();
try {
  await drive();
} finally {
  await closeBrowser();
  for (const child of children) await stop(child);
  rmSync(home, { recursive: true, force: true });
}
