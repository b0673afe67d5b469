// The page in a browser, against the program that was built.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  accessible,
  browser,
  button,
  composer,
  eachScreen,
  eachTest,
  finished,
  patience,
  phone,
  prompt,
  same,
  server,
  shows,
  startServer,
} from "./harness.mjs";

eachTest();

test("one drives, another watches, and a phone approves", { timeout: 4 * patience }, async () => {
  await startServer();
  const driver = await browser.open(await server.link());
  await composer(driver).waitFor();
  const watcher = await browser.open(await server.link());
  await prompt(driver, "Please fix the login test");
  await button(driver, "Allow").waitFor();
  await shows(watcher, "owner is driving. You are watching.");
  await watcher.page.locator(".question").waitFor();
  const view = await server.call("POST", `/api/headless/sessions/${server.session}/shares`, { role: "viewer" });
  const viewer = await browser.open(`${server.url}/#share=${view.token}`);
  await shows(viewer, "You are watching. Your link does not allow answers.");
  assert.equal(await viewer.page.locator(".question button.verdict").count(), 0, "a viewer has no buttons");
  await viewer.context.close();

  const share = await server.call("POST", `/api/headless/sessions/${server.session}/shares`, {
    role: "approver",
    label: "Ben's phone",
  });
  const hand = await browser.open(`${server.url}/#share=${share.token}`, phone);
  await button(hand, "Allow").waitFor();
  assert.equal(
    new URL(hand.page.url()).hash,
    `#session=${server.session}`,
    "the secret is not in the address any more",
  );
  assert.equal(
    await hand.page.locator(".question .runs").innerText(),
    "go test ./login -run 'TestLogin|TestExpiry' -count=1",
  );
  await shows(hand, "Your link does not allow prompts.");
  for (const height of [640, 300]) {
    // with the keyboard of the phone closed and open
    await hand.page.setViewportSize({ width: 360, height });
    await hand.page.waitForFunction((h) => document.querySelector(".app").getBoundingClientRect().height === h, height);
    for (const name of ["Deny", "Allow"]) {
      const box = await button(hand, name).boundingBox();
      assert.ok(
        box.y >= 0 && box.y + box.height <= height && box.x >= 0 && box.x + box.width <= 360,
        `${name} is outside of ${height} pixels: ${JSON.stringify(box)}`,
      );
    }
  }
  await button(hand, "Allow").tap();
  for (const p of [driver, watcher]) {
    await shows(p, "Allowed by Ben's phone");
    await shows(p, "Both tests pass now.");
    await finished(p);
    assert.equal(await p.page.locator(".question").count(), 0);
  }
  await same(driver, watcher);
  assert.deepEqual(await Promise.all([driver, watcher, hand].map((p) => p.complaints())), [[], [], []]);
});

test(
  "control is taken, asked for, handed over and not needed for answers, and a reload keeps it",
  { timeout: 4 * patience },
  async () => {
    await startServer();
    const ann = await browser.open(await server.link());
    await prompt(ann, "hello");
    await finished(ann);
    const ben = await browser.open(await server.link());
    await button(ben, "Take over").click();
    await composer(ben).waitFor();
    await shows(ann, "owner has taken over. You are watching.");
    await button(ann, "Ask for control").click();
    await button(ben, "Keep it").click();
    await shows(ann, "owner did not hand over.");
    await button(ben, "Release").click();
    const cleo = await browser.open(await server.link());
    await prompt(cleo, "Cleo drives");
    await ann.page.getByText("owner is driving. You are watching.", { exact: true }).waitFor();
    await button(ben, "Take over").click();
    await cleo.context.close();
    await button(ann, "Ask for control").click();
    await shows(ann, "You have asked owner for control.");
  await shows(ben, "owner asks for control.");
    await button(ben, "Hand over").click();
    await composer(ann).waitFor();
    await button(ben, "Ask for control").waitFor();

    await composer(ann).fill("half a thought");
    await ann.page.reload();
    await shows(ann, "You drive");
    assert.equal(await composer(ann).inputValue(), "half a thought");
    await prompt(ann, "Please fix the login test");
    await button(ben, "Deny").waitFor();
    await ben.page.getByLabel("Reason, sent").fill("not on a Monday");
    await button(ben, "Deny").click(); // without control
    await shows(ann, "Denied by owner");
    await shows(ben, "not on a Monday");
    await finished(ann);
    await shows(ann, "You drive");
    await button(ann, "Release").click();
    await shows(ann, "Nobody drives");
    await prompt(ben, "Ben goes on");
    await shows(ben, "You drive");
    assert.deepEqual(await Promise.all([ann, ben].map((p) => p.complaints())), [[], []]);
  },
);

test("a killed server loses nothing that was shown", { timeout: 6 * patience }, async () => {
  await startServer();
  const driver = await browser.open(await server.link());
  await composer(driver).waitFor();
  const watcher = await browser.open(await server.link());
  const share = await server.call("POST", `/api/headless/sessions/${server.session}/shares`, {
    role: "approver",
    label: "Ben's phone",
  });
  const hand = await browser.open(`${server.url}/#share=${share.token}`, phone);
  await prompt(driver, "an endless answer");
  const pages = [driver, watcher, hand];
  for (const p of pages) await shows(p, /Line \d{2,} of/);
  await server.stop("SIGKILL");
  await shows(driver, "nothing is lost.");
  await server.start();
  for (const p of pages) {
    await p.page.locator(".strip").waitFor({ state: "detached" });
    await finished(p);
  }
  const texts = await same(driver, watcher);
  await same(hand, watcher);
  assert.ok(
    texts.some((t) => t.includes("Line 10 ")),
    `the answer is still there: ${texts.slice(-5)}`,
  );
  const fresh = await browser.open(await server.link());
  await fresh.page.locator(".note.bad").waitFor();
  await same(fresh, watcher);
  await prompt(driver, "hello again");
  for (const p of [watcher, hand]) await shows(p, "This is a script, not a model.");
  const lost = [
    /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket connection/,
  ];
  assert.deepEqual(await Promise.all([...pages, fresh].map((p) => p.complaints(lost))), [[], [], [], []]);
});

test("the keyboard is enough", { timeout: 4 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  await composer(p).waitFor();
  const { keyboard } = p.page;
  await keyboard.type("Please fix the login test"); // the composer has the focus
  await keyboard.press("Enter");
  await button(p, "Deny").waitFor();
  await keyboard.type("a"); // a letter in the composer answers nothing
  assert.equal(await composer(p).inputValue(), "a");
  await keyboard.press("Backspace");
  await keyboard.press("Escape");
  await p.page.locator(".question button.primary:enabled").waitFor();
  // A sentence that nobody meant as keys. It comes at once: typed from here, keys may have pauses on a busy machine.
  await p.page.evaluate(() => {
    for (const key of "and now a sentence")
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  });
  await keyboard.press("Escape");
  await keyboard.press("d");
  await shows(p, "Denied by you");
  await finished(p);
  await p.page.waitForFunction(() =>
    document.querySelector('[role="status"].unseen').textContent.startsWith("Answer finished"),
  );
  await keyboard.press("i");
  await keyboard.press("i");
  await keyboard.type("show something hidden");
  await keyboard.press("Enter");
  await shows(p, "There are hidden characters in it.");
  assert.equal(
    await p.page.locator(".question .runs").innerText(),
    "echo done # U+202E}rm -rf buildU+2066 nothing to seeU+200B",
  );
  await keyboard.press("Escape");
  await p.page.locator(".question button.primary:enabled").waitFor();
  await keyboard.press("a");
  await shows(p, "Allowed by you");
  await finished(p);
  await keyboard.press("k");
  await keyboard.press("k");
  await p.page.waitForFunction(() => document.querySelector(".prompt")?.getBoundingClientRect().top >= 0);
  await keyboard.press("Shift+G");
  await p.page.waitForFunction(() => {
    const t = document.querySelector(".transcript");
    return t.scrollHeight - t.scrollTop - t.clientHeight < 2;
  });
  assert.deepEqual(await p.complaints(), []);
});

test("questions are answered in forms, and prompts wait in the queue", { timeout: 4 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  await prompt(p, "ask me something");
  await p.page.getByText("Compare in UTC everywhere").click();
  await button(p, "Send answer").click();
  await shows(p, "I will use the clock you chose.");
  await finished(p);
  await prompt(p, "a form please");
  await button(p, "Send").click(); // the region is missing
  await p.page.locator(".wrong", { hasText: "Needed." }).waitFor();
  await p.page.getByText("eu-north").click();
  await p.page.getByLabel("Contact").fill("ann@example.com");
  await composer(p).fill("and then say hello");
  await composer(p).press("Enter");
  await p.page.locator(".queue", { hasText: "and then say hello" }).waitFor();
  await p.page.locator(".question").getByRole("button", { name: "Send" }).click();
  await shows(p, "Deployed.");
  await p.page.locator(".prompt", { hasText: "and then say hello" }).waitFor();
  await p.page.locator(".queue").waitFor({ state: "detached" });
  assert.deepEqual(await p.complaints(), []);
});

for (const [name, options] of [
  ["desk", {}],
  ["phone in the dark", { ...phone, colorScheme: "dark" }],
  ["dark desk", { colorScheme: "dark", reducedMotion: "reduce" }],
]) {
  test(`the page can be used by everybody, on a ${name}`, { timeout: 4 * patience }, async () => {
    await startServer();
    const p = await browser.open(await server.link(), options);
    await composer(p).waitFor();
    await accessible(p, "at the start");
    await prompt(p, "Please fix the login test");
    await button(p, "Allow").waitFor();
    await accessible(p, "with a question");
    await button(p, "Allow").click();
    await shows(p, "Both tests pass now.");
    await finished(p);
    await p.page.locator("button.line", { hasText: "edit" }).last().click();
    await p.page.locator(".diff").waitFor();
    await button(p, "People and turns").click();
    await p.page.getByRole("tab", { name: "Turns" }).click();
    await p.page.locator(".turns li").first().waitFor();
    await accessible(p, "with a change and the people");
    assert.deepEqual(await p.complaints(), []);
  });
}

test("nothing that the agent says runs or loads anything", { timeout: 4 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  const foreign = [];
  const own = server.url;
  p.page.on("request", (r) => {
    if (!r.url().startsWith(own)) foreign.push(r.url());
  });
  await composer(p).fill("be hostile");
  await composer(p).press("Enter");
  await shows(p, "The end of the hostile answer.");
  await finished(p);
  await p.page.locator("button.line").last().click();
  await p.page.locator(".diff").waitFor();
  const links = new Set();
  let shown = "";
  await eachScreen(p, async () => {
    const [hrefs, text] = await p.page.evaluate(() => {
      const list = document.querySelector(".transcript");
      const bad = list.querySelectorAll(
        "img, script, iframe, style, svg:not(.icon), [onerror], [onclick], [style*=display]",
      ).length;
      return [
        [...list.querySelectorAll("a")].map((a) => a.getAttribute("href")),
        bad > 0 ? `${bad} bad elements` : list.innerText,
      ];
    });
    hrefs.forEach((h) => links.add(h));
    shown += text;
  });
  assert.deepEqual([...links].filter((h) => h !== null).sort(), ["https://evil.example/x.png", "https://example.com/"]);
  assert.ok(
    !shown.includes("bad elements") && shown.includes("<script>globalThis.ran = 1</script>"),
    "code is shown as text",
  );
  assert.equal(await p.page.evaluate(() => globalThis.ran), undefined);
  assert.deepEqual(foreign, []);
  assert.deepEqual(await p.complaints(), []);
});

test("who is not logged in is told what to do", { timeout: 2 * patience }, async () => {
  await startServer();
  const p = await browser.open(server.url);
  await p.page.getByRole("heading", { name: "Log in" }).waitFor();
  await accessible(p, "log in");
  await p.page.goto(await server.link());
  await composer(p).waitFor();
  await button(p, "Log out").click();
  await p.page.getByRole("heading", { name: "Log in" }).waitFor();
  assert.deepEqual(await p.complaints([/status of 401/]), []);
});

test("light or dark is as the system, until somebody chooses", { timeout: 3 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link(), { colorScheme: "dark" });
  await composer(p).waitFor();
  const ground = () =>
    p.page.evaluate(() => Number(/[\d.]+/.exec(getComputedStyle(document.documentElement).backgroundColor)[0]));
  const dark = await ground();
  const other = async () => {
    await p.page.keyboard.press("Control+k");
    await p.page.getByRole("combobox", { name: "Command or session" }).fill("light or dark");
    await p.page.keyboard.press("Enter");
  };
  await other();
  const light = await ground();
  assert.ok(light > 2 * dark, `got a lightness of ${dark} in the dark and ${light} in the light`);
  await p.page.reload();
  await composer(p).waitFor();
  assert.equal(await ground(), light, "the choice is kept");
  await p.page.emulateMedia({ colorScheme: "light" });
  await other();
  assert.equal(await ground(), dark);
  assert.deepEqual(await p.complaints(), []);
});

test("commands and sessions are found by a few letters", { timeout: 3 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  await prompt(p, "hello");
  const { keyboard } = p.page;
  await keyboard.press("Control+k");
  const commands = p.page.getByRole("dialog", { name: "Commands" });
  await commands.getByRole("option", { name: "Write a prompt", selected: true }).waitFor();
  await accessible(p, "the palette");
  await keyboard.type("dash");
  assert.equal(await commands.getByRole("option").count(), 1);
  await keyboard.press("Enter");
  await p.page.locator(".main", { hasText: "Dashboard" }).waitFor();
  assert.equal(await commands.count(), 0);
  await p.page.getByRole("button", { name: "Commands" }).click();
  await keyboard.type("open hello");
  await commands.getByRole("option", { name: /^Open: hello/, selected: true }).waitFor(); // the list has its title
  await keyboard.press("Enter");
  await composer(p).waitFor();
  await keyboard.press("Control+k");
  await keyboard.press("ArrowUp");
  await commands.getByRole("option", { name: /^Open: hello/, selected: true }).waitFor();
  await keyboard.type("nothing like this");
  await commands.getByText("Nothing is called that.").waitFor();
  await keyboard.press("Escape");
  await commands.waitFor({ state: "detached" });
  assert.deepEqual(await p.complaints(), []);
});
