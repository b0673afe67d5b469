// The inbox, the list of sessions and the dashboard in a browser, against the program that was built.
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
  prompt,
  server,
  startServer,
  until,
} from "./harness.mjs";

eachTest();

const entry = (p, text) => p.page.locator(".entry", { hasText: text });

/** startSession makes a session with a first prompt, and returns its address. */
async function startSession(p, text) {
  const before = p.page.url();
  await button(p, "New session").first().click();
  await p.page.waitForURL((url) => url.href !== before);
  await prompt(p, text);
  return new URL(p.page.url()).hash;
}

async function visit(p, name) {
  await p.page.goto(`${server.url}/#${name}`);
}

test("questions of all sessions are answered in the inbox", { timeout: 6 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  await prompt(ann, "Please fix the login test");
  await startSession(ann, "show something hidden");
  await startSession(ann, "ask me something");
  await ann.page.locator(".question").waitFor();
  const ben = await browser.open(await server.link());
  await composer(ben).or(ben.page.locator(".closed")).first().waitFor();
  await ben.page.getByRole("link", { name: "Inbox 3" }).click();
  await entry(ben, "show something hidden").waitFor();
  assert.equal(await ben.page.locator(".entry").count(), 3);
  await ben.page.waitForFunction(() => document.title === "(3) Inbox · Maestro");
  await ben.page.waitForFunction(() =>
    document.querySelector('link[rel="icon"]').getAttribute("href").startsWith("data:image/png"),
  );
  assert.equal(await ben.page.locator(".question").count(), 0, "nothing is open, so no key answers anything");

  // The whole question opens in its place, with the same buttons and keys as in the session.
  await entry(ben, "show something hidden").getByRole("button").first().click();
  assert.equal(
    await ben.page.locator(".question .runs").innerText(),
    "echo done # U+202E}rm -rf buildU+2066 nothing to seeU+200B",
  );
  await accessible(ben, "the inbox with an open question");
  await ben.page.getByLabel("Reason, sent").fill("what is this?");
  await button(ben, "Deny").click();
  await ben.page.locator(".ended", { hasText: "Denied by you" }).waitFor();
  assert.equal(await entry(ben, "show something hidden").count(), 0);
  await ben.page.waitForFunction(() => document.activeElement.matches(".entry > button")); // the next one has the focus
  await ben.page.waitForFunction(() => document.title === "(2) Inbox · Maestro");

  // Forms as well. The page of the session follows.
  await entry(ben, "ask me something").getByRole("button").first().click();
  await ben.page.getByText("Compare in UTC everywhere").click();
  await button(ben, "Send answer").click();
  await ben.page.locator(".ended", { hasText: "Answered by you" }).waitFor();
  await ann.page.locator(".main", { hasText: "I will use the clock you chose." }).waitFor();

  // Whoever is late sees who was faster.
  await ben.page.locator(".entry > button").focus();
  await ben.page.keyboard.press("Enter");
  await button(ben, "Allow").waitFor();
  await visit(ann, "inbox");
  await entry(ann, "Please fix").getByRole("button").first().click();
  await button(ann, "Allow").waitFor();
  await ann.page.locator(".question button.primary:enabled").waitFor();
  await ann.page.keyboard.press("a");
  await ben.page.locator(".ended", { hasText: "Allowed by owner" }).waitFor();
  await ben.page.getByRole("heading", { name: "Nothing needs you" }).waitFor();
  await ben.page.waitForFunction(() => document.title === "Inbox · Maestro");
  await ben.page.waitForFunction(() =>
    document.querySelector('link[rel="icon"]').getAttribute("href").endsWith(".svg"),
  );
  await accessible(ben, "the empty inbox");
  assert.deepEqual(await Promise.all([ann, ben].map((p) => p.complaints())), [[], []]);
});

test("a change in the inbox adds nothing to the open session", { timeout: 3 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  const file = p.page.locator(".diff").getByRole("button", { name: "login/login.go" });
  const lines = p.page.getByRole("group", { name: "Lines of login/login.go; arrows choose, Enter comments" });
  await prompt(p, "change a file");
  await lines.waitFor();
  await file.waitFor();
  await p.page.getByRole("link", { name: "Inbox 1" }).click();
  await entry(p, "Wants to change login/login.go").getByRole("button").first().click();
  await p.page.locator(".entry .diff", { hasText: "now.UTC()" }).waitFor();
  assert.deepEqual([await lines.count(), await file.count()], [0, 0]);
  assert.deepEqual(await p.complaints(), []);
});

test("a tap on Sessions opens the list on a phone as soon as the page is drawn", { timeout: 3 * patience }, async () => {
  await startServer();
  await browser.open(await server.link());
  const phoned = await browser.open(await server.link(), phone);
  await phoned.page.addInitScript(() => {
    const { requestAnimationFrame: frame, setTimeout: later } = window; // what follows a drawing comes late on a slow phone
    window.requestAnimationFrame = (f) => later(() => frame(f), 1500);
    window.setTimeout = (f, ms, ...args) => later(f, ms < 200 ? 1500 : ms, ...args);
  });
  await phoned.page.reload();
  await button(phoned, "Sessions").click();
  const { session_id } = await server.call("POST", "/api/headless/sessions", { role: "viewer" });
  await phoned.page.locator(`.session[href="#session=${session_id}"]`).waitFor(); // a change of the list leaves it open
  await button(phoned, "Settings").click();
  assert.deepEqual(await phoned.complaints(), []);
});

test("an approver answers on a phone, and a viewer sees no questions", { timeout: 4 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  await prompt(ann, "Please fix the login test");
  await button(ann, "Allow").waitFor();
  const share = (role) =>
    server.call("POST", `/api/headless/sessions/${server.session}/shares`, { role, label: "Ben" });
  const hand = await browser.open(`${server.url}/#share=${(await share("approver")).token}`, phone);
  await hand.page.locator(".closed").waitFor();
  await visit(hand, "inbox");
  await entry(hand, "Please fix").getByRole("button").first().tap();
  await button(hand, "Allow").tap();
  await ann.page.locator(".main", { hasText: "Allowed by Ben" }).waitFor();
  const viewer = await browser.open(`${server.url}/#share=${(await share("viewer")).token}`);
  await viewer.page.locator(".closed").waitFor();
  await visit(viewer, "inbox");
  await viewer.page.getByText("It shows no questions.").waitFor();
  assert.deepEqual(await Promise.all([ann, hand, viewer].map((p) => p.complaints())), [[], [], []]);
});

test("sessions are found, renamed, archived and deleted in their list", { timeout: 6 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  await composer(p).waitFor();
  await prompt(p, "hello, first");
  await startSession(p, "hello, second");
  const third = await startSession(p, "hello, third");
  const sessions = p.page.locator(".session");
  const act = async (title, name) => {
    await p.page.getByRole("button", { name: `Actions for ${title}` }).click();
    await p.page.locator(".acts").getByRole("button", { name }).click();
  };
  await sessions.filter({ hasText: "hello, third" }).waitFor();
  await p.page.getByLabel("Search sessions").fill("second");
  await p.page.getByRole("heading", { name: "Found" }).waitFor();
  const titles = () => p.page.locator(".session .title").allInnerTexts();
  await until("one session", async () => String(await titles()) === "hello, second");
  await act("hello, second", "Rename");
  await p.page.getByLabel("Title").fill("The second of three");
  await p.page.keyboard.press("Enter");
  await sessions.filter({ hasText: "The second of three" }).waitFor();
  await accessible(p, "a search");

  // Escape keeps the title, here and in the head of the session, and closes the actions.
  await p.page.getByRole("button", { name: "Actions for The second" }).click();
  await p.page.keyboard.press("Escape");
  await p.page.locator(".acts").waitFor({ state: "detached" });
  await p.page.locator(".title-button").click();
  await p.page.keyboard.type("another title");
  await p.page.keyboard.press("Escape");
  await p.page.locator(".title-button", { hasText: "hello, third" }).waitFor();
  for (const title of ["another title", "hello, third"]) {
    await p.page.locator(".title-button").click();
    await p.page.keyboard.type(title);
    await p.page.keyboard.press("Enter");
    await p.page.locator(".title-button", { hasText: title }).waitFor();
  }
  await p.page.getByLabel("Search sessions").press("Escape");

  // A field in the head is for the session that was open.
  await p.page.locator(".title-button").click();
  await p.page.keyboard.type("half a title");
  await p.page.goBack();
  await p.page.locator(".title-button", { hasText: "The second of three" }).waitFor();
  await p.page.goForward();
  await p.page.locator(".title-button", { hasText: "hello, third" }).waitFor();

  // One in the list goes with its session to another part of the list.
  await prompt(p, "ask me something");
  await p.page.getByRole("heading", { name: "Needs you" }).waitFor();
  await act("hello, third", "Rename");
  await p.page.keyboard.type("hello, ");
  const question = await server.question();
  await server.call("POST", `/api/headless/inbox/${question.session_id}/${question.request_id}`, {
    content: [{ type: "text", text: "UTC" }],
  });
  await p.page.getByRole("heading", { name: "Needs you" }).waitFor({ state: "detached" });
  await p.page.getByRole("heading", { name: "Running" }).waitFor({ state: "detached" });
  await p.page.keyboard.type("third");
  assert.equal(await p.page.getByLabel("Title").inputValue(), "hello, third");
  await p.page.keyboard.press("Enter");
  await sessions.filter({ hasText: "hello, third" }).waitFor();

  // An archived session is only found by a search.
  await act("The second of three", "Archive");
  await p.page.locator(".notice", { hasText: "Archived “The second of three”." }).waitFor();
  await sessions.filter({ hasText: "The second" }).waitFor({ state: "detached" });
  await p.page.getByLabel("Search sessions").fill("of three");
  await sessions.filter({ hasText: "archived" }).waitFor();
  await act("The second of three", "Unarchive");
  await sessions.filter({ hasText: "archived" }).waitFor({ state: "detached" });
  await p.page.getByLabel("Search sessions").press("Escape");

  // If the open session cannot be deleted, the page stays where it has gone meanwhile.
  assert.equal(new URL(p.page.url()).hash, third);
  await p.page.route("**/api/headless/sessions/*", (r) =>
    r.request().method() === "DELETE" ? r.abort() : r.continue(),
  );
  await act("hello, third", "Delete");
  await p.page.locator(".notice", { hasText: "The server cannot be reached." }).waitFor();
  assert.notEqual(new URL(p.page.url()).hash, third);
  await p.page.unrouteAll();
  await sessions.filter({ hasText: "hello, third" }).click();
  await p.page.waitForURL((url) => url.hash === third);

  // The open session is deleted: the page goes to another one, and undo comes back.
  assert.equal(new URL(p.page.url()).hash, third);
  await act("hello, third", "Delete");
  await sessions.filter({ hasText: "hello, third" }).waitFor({ state: "detached" });
  await p.page.waitForURL((url) => url.hash !== third);
  await accessible(p, "a deleted session");
  await button(p, "Undo").click();
  await sessions.filter({ hasText: "hello, third" }).waitFor();
  await p.page.waitForURL((url) => url.hash === third);
  await p.page.locator(".prompt", { hasText: "hello, third" }).waitFor();
  await until("three sessions", async () => (await titles()).length === 3);
  assert.deepEqual(await p.complaints([/ERR_FAILED/]), []);
});

test("a double click makes one session, and the inbox shows what failed", { timeout: 4 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  await composer(p).waitFor();
  await p.page.evaluate(() => {
    const { fetch } = globalThis;
    globalThis.made = 0;
    globalThis.fetch = (url, more) => {
      if (more.method === "POST" && String(url).endsWith("/sessions")) globalThis.made++;
      return fetch(url, more);
    };
  });
  const before = p.page.url();
  const plus = button(p, "New session").first();
  await plus.dblclick();
  await p.page.waitForURL((url) => url.href !== before);
  server.signal("SIGSTOP"); // two clicks while the server is slow
  for (let i = 0; i < 2; i++) await plus.click();
  assert.equal(await p.page.evaluate(() => globalThis.made), 2);
  await p.page.getByRole("link", { name: "Inbox" }).click();
  await p.page.locator(".inbox").waitFor();
  const answered = p.page.waitForResponse("**/disconnect"); // the last request that makes a session
  server.signal("SIGCONT");
  await answered;
  await p.page.evaluate(() => new Promise((done) => setTimeout(done)));
  assert.equal(await p.page.locator(".inbox").count(), 1, "the new session does not replace the inbox");
  await server.stop();
  const refused = (text) => p.page.locator(".main .refused", { hasText: text }).waitFor();
  await plus.click();
  await refused("The server cannot be reached.");
  await accessible(p, "a refusal beside the inbox");
  await button(p, "Log out").click();
  await refused("You are still logged in. The server cannot be reached.");
  await server.start();
  await p.page.goBack();
  await prompt(p, "hello again");
  assert.deepEqual(await p.complaints([/ERR_CONNECTION_REFUSED/]), []);
});

test("the dashboard shows what many sessions do", { timeout: 6 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  await prompt(ann, "Please fix the login test");
  await startSession(ann, "hello, rename the parser");
  for (let i = 3; i < 30; i++) await server.call("POST", "/api/headless/sessions", { role: "viewer" });
  const wall = await browser.open(await server.link(), { viewport: { width: 1600, height: 1000 } });
  await composer(wall).or(wall.page.locator(".closed")).first().waitFor();
  await wall.page.getByRole("link", { name: "Dashboard" }).click();
  const tile = (text) => wall.page.locator(".tile", { hasText: text });
  await tile("Please fix the login test").getByText("go test ./login").waitFor();
  await tile("Please fix the login test").getByText("owner drives").waitFor();
  const working = tile("an endless report").getByText("working").waitFor();
  const rate = tile("an endless report")
    .getByText(/\d+ events\/min/)
    .waitFor();
  const long = await startSession(ann, "an endless report");
  await Promise.all([working, rate]);
  await button(ann, "Stop").click();
  await wall.page.locator(".idle .tile", { hasText: "hello, rename the parser" }).waitFor();
  await until("30 tiles", async () => (await wall.page.locator(".tile").count()) === 30);
  assert.ok((await wall.page.locator(".tile").first().innerText()).startsWith("Please fix"), "what waits comes first");
  await wall.page.waitForFunction(() => document.title === "(1) Dashboard · Maestro");
  await wall.page.getByText("Up to date").waitFor();
  await accessible(wall, "the dashboard");
  await wall.page.locator(".idle .tile", { hasText: "an endless report" }).waitFor();

  // The arrows go through the tiles; tab reaches one of them.
  await wall.page.locator(".tile").first().focus();
  const focused = () =>
    wall.page.evaluate(() => [...document.querySelectorAll(".tile")].indexOf(document.activeElement));
  for (const [key, to] of [
    ["ArrowRight", 1],
    ["ArrowLeft", 0],
    ["ArrowDown", 1],
    ["End", 29],
    ["k", 28],
    ["Home", 0],
  ]) {
    await wall.page.keyboard.press(key);
    assert.equal(await focused(), to, key);
  }
  await tile("an endless report").focus();
  await wall.page.keyboard.press("Enter");
  await wall.page.waitForURL((url) => url.hash === long);
  await wall.page.locator(".main", { hasText: "an endless report" }).waitFor();
  assert.deepEqual(await Promise.all([ann, wall].map((p) => p.complaints())), [[], []]);
});

test(
  "a monitor shows the dashboard alone, also to a viewer, and says when it is behind",
  { timeout: 6 * patience },
  async () => {
    await startServer();
    const ann = await browser.open(await server.link());
    await composer(ann).waitFor();
    await prompt(ann, "an endless report");
    await ann.page.getByText(/Line \d+ of/).first().waitFor();
    const { token } = await server.call("POST", `/api/headless/sessions/${server.session}/shares`, { role: "viewer" });
    const wall = await browser.open(`${server.url}/#share=${token}&dashboard=wall`);
    await wall.page.locator(".wall-head", { hasText: "1 running" }).waitFor();
    await wall.page.locator(".tile", { hasText: "owner drives" }).waitFor();
    assert.equal(await wall.page.locator("nav, .head").count(), 0);
    assert.equal(new URL(wall.page.url()).hash, "#dashboard=wall", "the secret is gone from the address");
    await accessible(wall, "a dashboard on a wall");

    // A server that was killed during a run comes back, and the run has failed.
    await server.stop("SIGKILL");
    await wall.page.getByText(/As of .* behind/).waitFor();
    await server.start();
    await wall.page.locator(".failed .tile", { hasText: "an endless report" }).waitFor();
    await wall.page.getByText("Up to date").waitFor();
    await wall.page.keyboard.press("Escape");
    await wall.page.locator(".head", { hasText: "Dashboard" }).waitFor();
    assert.equal(new URL(wall.page.url()).hash, "#dashboard");
    const lost = [/ERR_CONNECTION_REFUSED|WebSocket connection|Failed to load resource/];
    assert.deepEqual(await Promise.all([ann, wall].map((p) => p.complaints(lost))), [[], []]);
  },
);
