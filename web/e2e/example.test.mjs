// examples/browser through serve --pages, and the EventSource of the browser, in a browser against the program that was
// built.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { accessible, browser, button, eachTest, patience, phone, server, startServer, until } from "./harness.mjs";

eachTest();

const examples = fileURLToPath(new URL("../../examples", import.meta.url));
const down = [/ERR_(CONNECTION_REFUSED|EMPTY_RESPONSE|INCOMPLETE_CHUNKED_ENCODING|CONNECTION_RESET)|WebSocket connection/];

const script = join(examples, "scripts/ask.json");
const start = (path = script) => startServer(["--pages", join(examples, "browser"), "--agent", `script:${path}`]);
const visit = async (more) => browser.open(`${await server.link()}&next=/pages/`, more);
const status = (p, text) => p.page.getByRole("status").filter({ hasText: text }).waitFor();
const shows = (p, text) => p.page.locator("#log", { hasText: text }).waitFor();
const prompt = async (p, text) => {
  await p.page.getByLabel("Prompt").fill(text);
  await button(p, "Send").click();
};
/** conversation is what a page shows, without the buttons. */
const conversation = (p) => p.page.locator("#log article").allTextContents();

test("the example chats, asks and keeps control when it is loaded again", { timeout: 4 * patience }, async () => {
  await start();
  const ann = await visit();
  await status(ann, "You have control");
  await prompt(ann, "run a test");
  await button(ann, "Allow").waitFor();
  await accessible(ann, "a question");
  await button(ann, "Allow").click();
  await shows(ann, "They pass.");
  await prompt(ann, "ask me");
  await ann.page.getByLabel("Answer").fill("UTC");
  await button(ann, "Answer").click();
  await shows(ann, "I use the clock that you chose.");
  const told = [
    "owner: run a test",
    "I run the tests.",
    'bash {"command":"go test ./..."}\nok\n',
    'bash {"command":"go test ./..."}\napproved',
    "They pass.",
    "owner: ask me",
  ];
  assert.deepEqual((await conversation(ann)).slice(0, told.length), told);
  await ann.page.reload();
  await status(ann, "You have control");
  await shows(ann, "I use the clock that you chose.");
  assert.deepEqual((await conversation(ann)).slice(0, told.length), told);
  await ann.page.emulateMedia({ colorScheme: "dark" });
  await accessible(ann, "dark");
  await ann.page.setViewportSize(phone.viewport);
  await accessible(ann, "dark and narrow");
  assert.deepEqual(await ann.complaints(), []);
});

test("control goes from one example to another by asking and by taking", { timeout: 4 * patience }, async () => {
  await start();
  const ann = await visit();
  await status(ann, "You have control");

  // Another program takes control and leaves. The history then has a moment without a controller.
  await ann.page.evaluate(
    () =>
      new Promise((left) => {
        const url = `${location.origin.replace(/^http/, "ws")}/api/headless/ws?role=controller&takeControl=1`;
        const other = new WebSocket(url, "maestro-headless.2026-04-02");
        other.onopen = () => other.send('{"type":"hello"}');
        other.onmessage = (e) => JSON.parse(e.data).type === "ws.attached" && other.send('{"type":"ws.bye"}');
        other.onclose = left;
      }),
  );
  await status(ann, "Nobody has control");
  await prompt(ann, "hello");
  await status(ann, "You have control");

  const ben = await visit();
  await status(ben, "Somebody else has control");
  assert.ok(await button(ben, "Send").isDisabled());
  for (const _ of [1, 2]) await button(ben, "Ask for control").click();
  await button(ann, "Hand over").nth(1).waitFor();
  await button(ann, "Hand over").first().click();
  await status(ben, "You have control");
  await status(ann, "Somebody else has control");
  await button(ann, "Hand over").click(); // too late
  await shows(ann, "Controller lease is currently held by another connection");
  await prompt(ben, "run a test");
  await button(ben, "Deny").click();
  for (const p of [ann, ben]) await shows(p, "denied");
  await button(ann, "Take control").click();
  await status(ann, "You have control");
  await status(ben, "Somebody else has control");
  assert.deepEqual([await ann.complaints(), await ben.complaints()], [[], []]);
});

test("the example outlives a kill of the server, and says when the login ends", { timeout: 5 * patience }, async () => {
  await start();
  const ann = await visit();
  await status(ann, "You have control");
  await prompt(ann, "count");
  await shows(ann, " 20 ");
  await ann.page.evaluate(() => {
    const [now, wait] = [Date.now, setTimeout];
    Date.now = () => now() + 60_000; // the connection has lasted
    globalThis.delays = [];
    globalThis.setTimeout = (run, ms, ...more) => {
      if (run.name === "connect") globalThis.delays.push(ms);
      return wait(run, ms, ...more);
    };
  });
  await server.stop("SIGKILL");
  await status(ann, "Reconnecting");
  await ann.page.waitForFunction(() => globalThis.delays.length === 4);
  const [first, ...later] = await ann.page.evaluate(() => globalThis.delays);
  assert.ok(first <= 250 && later.at(-1) >= 1000, `waited for ${first}, ${later} ms`);
  await server.start();
  await status(ann, "You have control");
  await prompt(ann, "count on");
  await shows(ann, " 200 ");
  const fresh = await visit();
  await until("the same conversation", async () =>
    isDeepStrictEqual(await conversation(ann), await conversation(fresh)),
  );
  await fresh.page.close();

  await ann.context.clearCookies();
  await server.stop("SIGKILL");
  await server.start();
  await status(ann, "Log in again");
  const tab = await ann.context.newPage(); // as the user does
  await tab.goto(await server.link());
  await tab.close();
  await ann.page.bringToFront();
  await ann.page.evaluate(() => globalThis.dispatchEvent(new Event("focus"))); // the browser of a test has no windows
  await status(ann, "You have control");
  assert.deepEqual(await ann.complaints([...down, /401/]), []);
});

test("a reset shows the questions that are open", { timeout: 4 * patience }, async () => {
  const dir = mkdtempSync(join(tmpdir(), "maestro-example-"));
  try {
    const keeping = join(dir, "script.json");
    writeFileSync(keeping, JSON.stringify({ ...JSON.parse(readFileSync(script, "utf8")), keeps_questions: true }));
    await start(keeping);
    const ann = await visit();
    await prompt(ann, "run a test");
    await button(ann, "Allow").waitFor();
    await server.stop();
    const state = join(server.root, "state");
    cpSync(state, join(dir, "state"), { recursive: true });
    rmSync(state, { recursive: true });
    cpSync(join(dir, "state"), state, { recursive: true }); // a copy begins a new epoch
    await server.start();
    await status(ann, "You have control");
    await button(ann, "Allow").click();
    await shows(ann, "approved");
    assert.deepEqual(await ann.complaints(down), []);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test("EventSource resumes where it was when the server is killed", { timeout: 5 * patience }, async () => {
  await start();
  const ann = await visit();
  await status(ann, "You have control");
  const asked = []; // the Last-Event-ID of each request for the stream
  ann.page.on("request", (r) => {
    if (r.url().includes("/events")) asked.push(r.allHeaders().then((h) => h["last-event-id"] ?? null));
  });
  const cookie = await ann.context.cookies();
  await ann.page.evaluate(() => {
    const got = (globalThis.got = []);
    const events = new EventSource("/api/headless/sessions/main/events?cursor=0");
    events.onmessage = (e) => got.push([e.lastEventId, e.data]);
  });
  const has = (text, times) =>
    ann.page.waitForFunction(
      ([text, times]) => globalThis.got.filter(([, data]) => data.includes(text)).length === times,
      [text, times],
    );
  for (let kills = 1; kills <= 2; kills++) {
    await prompt(ann, "count");
    await has('"20 "', kills);
    const [last] = await ann.page.evaluate(() => globalThis.got.at(-1));
    await server.stop("SIGKILL");
    await server.start();
    await status(ann, "You have control");
    await prompt(ann, "hello");
    await has("or to count.", kills);
    const resumed = (await Promise.all(asked)).at(-1);
    const cursor = (id) => Number(id.split(".").at(-1));
    assert.ok(cursor(resumed) >= cursor(last), `resumed after ${resumed}, want ${last} or later`);
  }
  assert.equal((await Promise.all(asked))[0], null);
  assert.deepEqual(await ann.context.cookies(), cookie, "the login is the same");

  // The journal keeps neither heartbeats nor who is connected.
  const kept = (list) => list.filter(([, data]) => !/"type":"(heartbeat|connection_info)"/.test(data));
  const got = kept(await ann.page.evaluate(() => globalThis.got));
  assert.equal(new Set(got.map(([id]) => id)).size, got.length, "no event came twice");
  const all = await ann.page.evaluate(
    (last) =>
      new Promise((done) => {
        const all = [];
        const events = new EventSource("/api/headless/sessions/main/events?cursor=0");
        events.onmessage = (e) => {
          all.push([e.lastEventId, e.data]);
          if (e.lastEventId !== last) return;
          events.close();
          done(all);
        };
      }),
    got.at(-1)[0],
  );
  assert.deepEqual(got, kept(all), "a stream that begins anew has the same events");
  assert.deepEqual(await ann.complaints(down), []);
});
