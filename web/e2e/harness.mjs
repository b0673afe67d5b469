// Starts the server and the browser for tests of the page.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, afterEach, before } from "node:test";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { chromium } from "playwright-core";

const here = fileURLToPath(new URL(".", import.meta.url));

/** program is the binary under test. */
const program = process.env.MAESTRO ?? join(here, "../../bin/maestro");

/** patience bounds each wait for something that comes by itself; the machine may be busy. */
export const patience = 60_000;

export const phone = { viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true };
export const composer = (p) => p.page.locator(".composer textarea");
export const button = (p, name) => p.page.getByRole("button", { name, exact: true });

/** shows waits until the page has a text. */
export const shows = (p, text) => p.page.locator(".main", { hasText: text }).waitFor();
/** finished waits until the agent does not work. */
export const finished = (p) => p.page.locator('.transcript[aria-busy="false"]').waitFor();

/** prompt sends a prompt, and waits until it is in the conversation. */
export async function prompt(p, text) {
  await composer(p).fill(text);
  const there = p.page.locator(".prompt", { hasText: text }).last(); // unless a long answer has moved it away
  const seen = there.or(p.page.locator('.transcript[aria-busy="true"]')).first().waitFor();
  await Promise.all([seen, button(p, "Send").click()]); // on a busy machine the click may return after the whole answer
}

/** until waits for something that comes by itself, and returns it. */
export async function until(what, look) {
  for (const end = Date.now() + patience; ; ) {
    const got = await look();
    if (got) return got;
    if (Date.now() > end) throw new Error(`waited for ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/**
 * eachScreen goes through the conversation by half screens and calls look at each of them. The list draws only what is
 * visible, and not all of it in one frame.
 */
export async function eachScreen(p, look) {
  for (let top = 0; ; ) {
    const found = await p.page.waitForFunction(drawnAt, top, { polling: 20 });
    await look();
    const { half, end } = await found.jsonValue();
    if (end) return;
    top += half;
  }
}

/** drawnAt runs in the page. It scrolls the conversation, and reports whether all rows of the screen are drawn there. */
function drawnAt(top) {
  const list = document.querySelector(".transcript");
  if (!list?.clientHeight) throw new Error("there is no conversation on the screen");
  const last = list.scrollHeight - list.clientHeight;
  if (Math.abs(list.scrollTop - Math.min(top, last)) > 1) {
    list.scrollTop = top;
    return false;
  }
  const screen = list.getBoundingClientRect();
  const all = list.querySelector(".rows").getBoundingClientRect();
  const boxes = [...list.querySelectorAll(".row")].map((row) => row.getBoundingClientRect());
  let drawn = Math.max(screen.top, all.top);
  for (const { top, bottom } of boxes.sort((a, b) => a.top - b.top)) {
    if (top <= drawn + 2) drawn = Math.max(drawn, bottom);
  }
  const space = 30; // below the last row
  return drawn >= Math.min(screen.bottom, all.bottom - space) && { half: list.clientHeight / 2, end: top >= last };
}

/** conversation returns the text of all rows. */
export async function conversation(p) {
  const rows = new Map();
  await eachScreen(p, async () => {
    const drawn = await p.page
      .locator(".transcript .row")
      .evaluateAll((all) => all.map((row) => [Number(row.dataset.index), row.innerText]));
    for (const [index, text] of drawn) rows.set(index, text);
  });
  return [...rows].sort(([a], [b]) => a - b).map(([, text]) => text);
}

/** same waits until two pages of different people show the same conversation, and returns it. */
export async function same(p, other) {
  // A page measures itself how long a call takes.
  const told = async (page) => (await conversation(page)).map((t) => t.replace(/\n(\d+ min )?[\d.]+ s$/, ""));
  for (const end = Date.now() + patience; ; ) {
    const [own, texts] = [asOwner(await told(p)), await told(other)];
    if (Date.now() > end) assert.deepEqual(own, texts);
    if (isDeepStrictEqual(own, texts)) return texts;
  }
}

/** asOwner is a conversation as those see it who did not take part. */
const asOwner = (texts) =>
  texts.map((t) =>
    t
      .replace(/^You drive\b/, "owner drives")
      .replace(/^You\b/, "owner")
      .replace("from you", "from owner")
      .replace("by you,", "by owner,"),
  );

/** browser is that of eachTest, and server the one that startServer started last. */
export let browser;
export let server;

export async function openBrowser() {
  browser = await startBrowser();
}

export async function closeBrowser() {
  await leave();
  await browser?.close();
}

/** leave closes all pages and the server. */
export async function leave() {
  await browser?.leave();
  await server?.close();
  server = undefined;
}

/** eachTest starts a browser for all tests of a file, and closes what each of them opened. */
export function eachTest() {
  before(openBrowser);
  after(closeBrowser);
  afterEach(leave);
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** accessible fails if axe finds something serious in the page. */
export async function accessible(p, what) {
  await p.page.evaluate(axe);
  const found = await p.page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const serious = found.violations.filter((v) => ["serious", "critical"].includes(v.impact));
  assert.deepEqual(
    serious.map(
      (v) => `${v.id}: ${v.nodes.map((n) => n.target.join(" ")).join(", ")}: ${v.nodes[0]?.any[0]?.message ?? ""}`,
    ),
    [],
    what,
  );
}

/** startServer serves the script on a port of its own, which it keeps when it is started again. */
export async function startServer(args = []) {
  const root = mkdtempSync(join(tmpdir(), "maestro-page-"));
  let url = "http://127.0.0.1:0"; // the server chooses a port when it starts for the first time
  let child;
  let ready;

  async function start() {
    child = spawn(
      program,
      [
        "serve",
        "--agent",
        `script:${join(here, "script.json")}`,
        "--listen",
        new URL(url).host,
        "--workspace",
        root,
        "--state-dir",
        join(root, "state"),
        "--ready-stdout",
        ...args,
      ],
      {
        stdio: ["ignore", "pipe", "pipe"],
        // Shells in terminals do not read the startup files of the user who runs the tests. They write no history: close
        // may be removing the folder when they end.
        env: { ...process.env, HOME: join(root, "state"), HISTFILE: "", SHELL: "/bin/bash" },
      },
    );
    let errors = "";
    child.stderr.on("data", (d) => {
      errors = (errors + d).slice(-4000);
    });
    const lines = createInterface({ input: child.stdout });
    const ended = once(child, "exit").then(() => {
      throw new Error(`the server ended: ${errors}`);
    });
    const [line] = await Promise.race([once(lines, "line"), ended]);
    ended.catch(() => {}); // it is ended by stop
    ready = JSON.parse(line);
    url = ready.baseUrl;
  }

  async function stop(signal = "SIGTERM") {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill(signal);
    await once(child, "exit");
  }

  const token = () => readFileSync(ready.tokenFile, "utf8").trim();

  const headers = () => ({ Authorization: `Bearer ${token()}`, "Content-Type": "application/json" });

  async function call(method, path, body, more) {
    const res = await fetch(url + path, {
      method,
      headers: { ...headers(), ...more },
      body: body && JSON.stringify(body),
    });
    if (!res.ok) throw new Error(`${method} ${path}: ${res.status} ${await res.text()}`);
    return res.json();
  }

  await start();
  server = {
    url,
    /** the workspace */
    root,
    call,
    headers,
    start,
    stop,
    session: ready.sessionId,
    signal: (name) => child.kill(name),
    /** question waits until the inbox has a question that fits, and returns it. */
    question: (fits = () => true) =>
      until("a question", async () => (await call("GET", "/api/headless/inbox")).questions.find(fits)),
    /** a link that logs in once */
    async link(request = {}) {
      const { ticket } = await call("POST", "/api/headless/ws-tickets", request);
      return `${url}/login?ticket=${ticket}`;
    },
    async close() {
      await stop("SIGKILL");
      rmSync(root, { recursive: true, force: true, maxRetries: 5 }); // shells may be about to end
    },
  };
  return server;
}

/** startBrowser opens pages that fail a test when something was written to the console. */
export async function startBrowser() {
  const path = (process.env.PATH ?? "").split(":").map((d) => join(d, "chromium"));
  const { existsSync } = await import("node:fs");
  const executablePath = path.find((p) => existsSync(p));
  if (!executablePath) throw new Error("chromium is not in PATH");
  const browser = await chromium.launch({
    executablePath,
    timeout: patience,
    args: ["--no-sandbox", "--disable-dev-shm-usage"], // tests may run as root
    ignoreDefaultArgs: ["--disable-back-forward-cache"], // pages are left as those of users are
  });

  return {
    /** open makes a browser of its own for a person, and opens a link. */
    async open(link, options = {}) {
      const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
      context.setDefaultTimeout(patience);
      const page = await context.newPage();
      const complaints = [];
      page.on("console", (m) => {
        if (["error", "warning"].includes(m.type())) complaints.push(m.text());
      });
      page.on("pageerror", (e) => complaints.push(String(e.stack ?? e)));
      await page.addInitScript(() => {
        globalThis.violations = [];
        document.addEventListener("securitypolicyviolation", (e) =>
          globalThis.violations.push(`${e.violatedDirective} ${e.blockedURI} ${e.sample}`),
        );
      });
      await page.goto(link);
      return {
        page,
        context,
        /** what the page complained about since it was opened; known are complaints that a test causes itself */
        async complaints(known = []) {
          const violations = await page.evaluate(() => globalThis.violations);
          return [...complaints, ...violations].filter((c) => !known.some((k) => k.test(c)));
        },
      };
    },
    /** closes all pages */
    leave: () => Promise.all(browser.contexts().map((c) => c.close())),
    close: () => browser.close(),
  };
}
