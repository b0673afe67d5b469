// Lost networks, dead peers, pages that were away, and several tabs, in a browser against the program that was built.
import assert from "node:assert/strict";
import { cpSync, readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  accessible,
  browser,
  button,
  composer,
  conversation,
  eachTest,
  finished,
  patience,
  phone,
  prompt,
  same,
  server,
  shows,
  startServer,
  until,
} from "./harness.mjs";
import { screens } from "./screens.mjs";

eachTest();

const strip = (p) => p.page.locator(".strip");
const drives = (p, words) => p.page.locator(".drives", { hasText: words }).waitFor();
const unsent = (p, words) => p.page.getByLabel("Prompts that are not sent yet").getByText(words);
const offline = [/ERR_INTERNET_DISCONNECTED|WebSocket connection/];

/** tab opens another tab of the same browser. */
async function tab(p) {
  const page = await p.context.newPage();
  await page.goto(p.page.url());
  return { page, context: p.context };
}

test("a page without a network says so and loses nothing", { timeout: 5 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  const ben = await browser.open(await server.link());
  await prompt(ann, "a brisk stream"); // for three seconds
  await shows(ann, /Line \d{2,} of/);
  await ann.context.setOffline(true);
  await strip(ann).filter({ hasText: "Reconnecting" }).filter({ hasText: "nothing is lost" }).waitFor();
  await composer(ann).fill("written without a network");
  await shows(ann, "Sent when the connection is back");
  await composer(ann).press("Enter");
  await unsent(ann, "written without a network").waitFor();
  await finished(ben);
  assert.equal(await ben.page.locator(".prompt", { hasText: "without a network" }).count(), 0);
  await ann.context.setOffline(false);
  await strip(ann).waitFor({ state: "detached" });
  await shows(ben, "This is a script, not a model.");
  await finished(ben);
  await finished(ann);
  assert.equal(await unsent(ann, "written").count(), 0);
  await drives(ann, "You drive");
  const texts = await same(ann, ben);
  assert.equal(texts.filter((t) => t.includes("written without a network")).length, 1);
  assert.equal(texts.filter((t) => /Line \d+ of/.test(t)).length, 600);
  assert.deepEqual([await ann.complaints(offline), await ben.complaints()], [[], []]);
});

test("a prompt that was not sent comes back into the field of the next page", { timeout: 3 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  await ann.context.setOffline(true);
  await strip(ann).filter({ hasText: "Reconnecting" }).waitFor();
  await composer(ann).fill("written without a network");
  await composer(ann).press("Enter");
  await unsent(ann, "written without a network").waitFor();
  await composer(ann).fill("a draft");
  // This page must not connect again: it may be told that the network is back before it is told that it was left.
  await ann.page.evaluate(() => {
    globalThis.WebSocket = class extends WebSocket {
      constructor() {
        super(`ws://${location.host}/none`);
      }
    };
  });
  await ann.page.goto("about:blank");
  await ann.context.setOffline(false);
  await ann.page.goto(`${server.url}/#session=${server.session}`);
  await composer(ann).waitFor();
  assert.equal(await composer(ann).inputValue(), "written without a network\n\na draft");
  assert.equal(await ann.page.locator(".prompt").count(), 0);
  assert.deepEqual(await ann.complaints(offline), []);
});

test("a tab whose storage is full loses no prompt", { timeout: 3 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  await ann.page.evaluate(() => {
    for (let size = 1 << 22; size >= 1; ) {
      try {
        sessionStorage.setItem(`full ${size}`, (sessionStorage.getItem(`full ${size}`) ?? "") + "x".repeat(size));
      } catch {
        size >>= 1;
      }
    }
  });
  await ann.context.setOffline(true);
  await strip(ann).filter({ hasText: "Reconnecting" }).waitFor();
  await composer(ann).fill("written without room");
  await composer(ann).press("Enter");
  await unsent(ann, "written without room").waitFor();
  await composer(ann).fill("a draft without room");
  await ann.context.setOffline(false);
  await ann.page.locator(".prompt", { hasText: "written without room" }).waitFor();
  assert.equal(await composer(ann).inputValue(), "a draft without room");
  await ann.context.setOffline(true);
  await strip(ann).filter({ hasText: "Reconnecting" }).waitFor();
  for (const text of ["refused", "refused too"]) {
    await composer(ann).fill(text);
    await composer(ann).press("Enter");
    await unsent(ann, text).waitFor();
  }
  await ann.page.getByRole("link", { name: "Inbox" }).click();
  await ann.page.getByRole("heading", { name: "Inbox" }).waitFor();
  await ann.page.goBack(); // to another field
  await composer(ann).fill("written since");
  await server.call("DELETE", `/api/headless/sessions/${server.session}`);
  await ann.context.setOffline(false);
  const all = "refused\n\nrefused too\n\nwritten since";
  await until("the prompts", async () => (await composer(ann).inputValue()) === all);
  assert.deepEqual(await ann.complaints([...offline, /status of 404/]), []);
});

test("a first prompt waits for its session, whatever is opened meanwhile", { timeout: 3 * patience }, async () => {
  await startServer();
  await server.call("DELETE", `/api/headless/sessions/${server.session}`);
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  const { state } = await server.call("POST", "/api/headless/sessions", { role: "viewer" });
  const other = ann.page.locator(`a[href="#session=${state.session_id}"]`);
  await other.waitFor();
  const last = async (route) => {
    const response = await route.fetch();
    await ann.context.setOffline(true);
    await route.fulfill({ response });
  };
  await ann.page.route("**/disconnect", last, { times: 1 }); // ends the making of the session
  await composer(ann).fill("the first prompt");
  await composer(ann).press("Enter");
  await unsent(ann, "the first prompt").waitFor();
  const id = new URLSearchParams(new URL(ann.page.url()).hash.slice(1)).get("session");
  await other.click();
  await ann.context.setOffline(false);
  await until("the prompt", async () => {
    const { turns } = await server.call("GET", `/api/headless/sessions/${id}/turns`);
    return turns?.[0]?.line === "the first prompt";
  });
  assert.equal(await composer(ann).inputValue(), "");
  assert.deepEqual(await ann.complaints(offline), []);
});

test("a page notices that its server is stuck, and goes on when it runs", { timeout: 6 * patience }, async () => {
  await startServer(["--heartbeat-interval", "3s"]);
  const ann = await browser.open(await server.link());
  await prompt(ann, "a brisk stream");
  await shows(ann, /Line \d{2,} of/);
  server.signal("SIGSTOP");
  const since = Date.now();
  await strip(ann).filter({ hasText: "Reconnecting" }).waitFor();
  const noticed = Date.now() - since;
  assert.ok(noticed < 24_000, `noticed after ${noticed} ms, want at most 8 s, and some for a busy machine`);
  server.signal("SIGCONT");
  await strip(ann).waitFor({ state: "detached" });
  await drives(ann, "You drive");
  await shows(ann, "Line 600 of");
  await finished(ann);
  const fresh = await browser.open(await server.link());
  await shows(fresh, "Line 600 of");
  const texts = await same(ann, fresh);
  assert.equal(texts.filter((t) => /Line \d+ of/.test(t)).length, 600);
  assert.deepEqual([await ann.complaints(offline), await fresh.complaints()], [[], []]);
});

test("a page that was left or frozen goes on where it was", { timeout: 5 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  const ben = await browser.open(await server.link());
  await ann.page.evaluate(() => {
    globalThis.kept = true; // a page that is loaded again does not have it
  });
  await prompt(ann, "a brisk stream");
  await shows(ann, /Line \d{2,} of/);
  await ann.page.goto("about:blank");
  await shows(ben, /Line ([6-9]\d|\d{3}) of/);
  await ann.page.goBack({ waitUntil: "commit" });
  await drives(ann, "You drive");
  await ann.page.locator(".prompt, .row").first().waitFor();
  assert.ok(await ann.page.evaluate(() => globalThis.kept), "the browser kept the page");
  const cdp = await ann.context.newCDPSession(ann.page);
  await cdp.send("Page.setWebLifecycleState", { state: "frozen" });
  await finished(ben);
  await cdp.send("Page.setWebLifecycleState", { state: "active" });
  await finished(ann);
  await same(ann, ben);
  assert.deepEqual(await ann.page.evaluate(() => globalThis.violations), []);
  assert.deepEqual([await ann.complaints(), await ben.complaints()], [[], []]);
});

test("two tabs of one person follow, and one drives", { timeout: 5 * patience }, async () => {
  await startServer();
  const first = await browser.open(await server.link());
  await prompt(first, "hello from the first tab");
  await finished(first);
  const second = await tab(first);
  await shows(second, "You drive in another tab. This one follows.");
  await drives(second, "You drive in another tab");
  await accessible(second, "the second tab");
  await prompt(first, "Please fix the login test");
  await button(second, "Allow").click(); // answers need no control
  for (const p of [first, second]) await shows(p, "Both tests pass now.");
  await button(second, "Drive here").click();
  await shows(first, "You drive in another tab.");
  await prompt(second, "hello from the second tab");
  for (const p of [first, second]) await finished(p);
  await second.page.reload();
  await drives(second, "You drive");
  await shows(first, "You drive in another tab.");
  for (const p of [first, second]) await shows(p, "hello from the second tab");
  for (const p of [first, second]) {
    const texts = await conversation(p);
    for (const text of ["hello from the first", "Please fix", "hello from the second"]) {
      assert.equal(texts.filter((t) => t.includes(text)).length, 1, `${text}: ${texts.join("|")}`);
    }
  }
  const { turns } = await server.call("GET", `/api/headless/sessions/${server.session}/turns`);
  assert.equal(turns.length, 3);
  assert.deepEqual(await first.complaints(), []);
});

test("a phone takes over, and the desk is told and takes it back", { timeout: 4 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await prompt(ann, "a brisk stream");
  const share = await server.call("POST", `/api/headless/sessions/${server.session}/shares`, {
    role: "controller",
    label: "Ben",
  });
  const ben = await browser.open(`${server.url}/#share=${share.token}`, phone);
  await shows(ben, "owner is driving. You are watching.");
  await accessible(ben, "a phone that watches");
  await button(ben, "Take over").tap();
  await drives(ben, "You drive");
  await shows(ann, "Ben has taken over. You are watching.");
  for (const p of [ann, ben]) await finished(p);
  await composer(ben).fill("hello from the phone");
  await button(ben, "Send").tap();
  await ann.page.locator(".transcript").press("g"); // to the end
  await shows(ann, "hello from the phone");
  await button(ann, "Take over").click();
  await drives(ann, "You drive");
  await shows(ben, "owner has taken over. You are watching.");
  assert.deepEqual(await Promise.all([ann, ben].map((p) => p.complaints())), [[], []]);
});

test("who drives one session is not said to drive the next before it is open", { timeout: 3 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await drives(ann, "You drive");
  const ben = await browser.open(await server.link());
  await button(ben, "Take over").waitFor();
  await button(ben, "Ask for control").click();
  await button(ann, "Hand over").waitFor();
  const { session_id } = await server.call("POST", "/api/headless/sessions", { role: "viewer" });
  const link = `.session[href="#session=${session_id}"]`;
  for (const p of [ann, ben]) await p.page.locator(link).waitFor();
  server.signal("SIGSTOP");
  for (const p of [ann, ben]) {
    await p.page.locator(link).click();
    await p.page.locator(`${link}[aria-current="page"]`).waitFor();
    await composer(p).waitFor();
    assert.deepEqual(await p.page.locator(".drives, .dock .closed").allInnerTexts(), []);
  }
  server.signal("SIGCONT");
  await drives(ann, /drive/);
  assert.deepEqual(await Promise.all([ann, ben].map((p) => p.complaints())), [[], []]);
});

test("the whole way is possible with the keyboard", { timeout: 5 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  const { keyboard } = ann.page;

  /** to presses Tab until something with a name has the focus, as somebody does who sees where it is. */
  async function to(name) {
    for (let i = 0; i < 60; i++) {
      const at = await ann.page.evaluate(() => {
        const e = document.activeElement;
        if (!e.matches("a, button, input, select, textarea")) return "";
        return [e.getAttribute("aria-label"), e.textContent.trim(), e.placeholder].filter(Boolean).join(" ");
      });
      if (at.includes(name)) {
        const seen = await ann.page.evaluate(() => {
          const box = document.activeElement.getBoundingClientRect();
          return box.width > 0 && box.bottom > 0 && box.top < innerHeight;
        });
        assert.ok(seen, `${name} has the focus where it is not seen`);
        return;
      }
      await keyboard.press("Tab");
    }
    assert.fail(`Tab does not reach ${name}`);
  }

  await keyboard.type("Please fix the login test");
  await keyboard.press("Enter");
  await ann.page.locator(".question button.primary:enabled").waitFor();
  await to("Allow");
  await keyboard.press("Enter");
  await shows(ann, "Both tests pass now.");
  await finished(ann);

  const ben = await browser.open(await server.link());
  await button(ben, "Take over").click();
  await shows(ann, "Take over");
  await to("Ask for control");
  await keyboard.press("Enter");
  await shows(ann, "You have asked");
  await to("Take over");
  await keyboard.press("Enter");
  await drives(ann, "You drive");

  await composer(ann).waitFor();
  await keyboard.press("Escape"); // leaves the composer
  await keyboard.press("f");
  await ann.page.getByLabel("Text to find").waitFor();
  await keyboard.type("issued in utc");
  await ann.page.locator(".finder", { hasText: "1 place" }).waitFor();
  await keyboard.press("Enter");
  await shows(ann, "it was issued in UTC");
  await keyboard.press("Escape");

  await keyboard.press("Control+k");
  await keyboard.type("people");
  await keyboard.press("Enter");
  await ann.page.getByLabel("For whom").waitFor();
  await to("For whom");
  await keyboard.type("Ben");
  await to("What the link allows");
  await keyboard.press("ArrowDown");
  await to("Make a link");
  await keyboard.press("Enter");
  await ann.page.getByLabel("Link", { exact: true }).waitFor();
  const { shares } = await server.call("GET", `/api/headless/sessions/${server.session}/shares`);
  assert.deepEqual(
    shares.map((s) => [s.label, s.role]),
    [["Ben", "approver"]],
  );
  await to("Revoke the link of Ben");
  await keyboard.press("Enter");
  await ann.page.locator(".shares li").waitFor({ state: "detached" });
  assert.deepEqual(await ann.complaints(), []);
});

for (const [name, show] of Object.entries(screens)) {
  test(`everybody can use the screen ${name}`, { timeout: 4 * patience }, async () => {
    const p = await show({});
    await accessible(p, "light");
    await p.page.emulateMedia({ colorScheme: "dark" });
    await p.page.waitForFunction(() => document.documentElement.classList.contains("dark"));
    await accessible(p, "dark");
    await p.page.setViewportSize(phone.viewport);
    await accessible(p, "dark and narrow");
    assert.deepEqual(await p.complaints(offline), []);
  });
}

test("a session that was restored from a copy shows its turns", { timeout: 3 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  await prompt(p, "hello");
  await shows(p, "This is a script, not a model.");
  await finished(p);
  await browser.leave();
  const workspaces = join(server.root, "state/workspaces");
  const session = join(workspaces, readdirSync(workspaces)[0], `s-${server.session}`);
  await server.stop();
  renameSync(session, join(server.root, "copy"));
  cpSync(join(server.root, "copy"), session, { recursive: true });
  await server.start();
  const other = await browser.open(await server.link({ role: "viewer" }));
  await shows(other, "This is a script, not a model.");
});
