// Writing prompts, the queue, search and comments on changes, in a browser against the program that was built.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
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
} from "./harness.mjs";

eachTest();

async function start(options) {
  await startServer();
  const p = await browser.open(await server.link(), options);
  await composer(p).waitFor();
  return p;
}

/** value waits until the composer has a text. */
const value = (p, text) =>
  p.page.waitForFunction((t) => document.querySelector(".composer textarea").value === t, text);

test("files are completed after @", { timeout: 3 * patience }, async () => {
  const p = await start();
  mkdirSync(join(server.root, "login"));
  for (const name of ["login.go", "login_test.go"]) writeFileSync(join(server.root, "login", name), "package login\n");
  const options = p.page.getByRole("option");
  // insertText writes a word at once. Letter by letter, the list of a shorter word may come between.
  const { keyboard } = p.page;
  await composer(p).focus();
  await keyboard.insertText("Look at @login");
  await options.nth(1).waitFor();
  await accessible(p, "the list of files");
  await keyboard.insertText("_t");
  await composer(p).press("Enter"); // before the files of the longer word are there
  await value(p, "Look at @login/login_test.go ");
  assert.equal(await options.count(), 0);
  await keyboard.insertText("and @login");
  await options.nth(1).waitFor();
  const second = await options.nth(1).locator("b").innerText();
  await composer(p).press("ArrowDown");
  await p.page.locator('[role="option"][aria-selected="true"]', { hasText: second }).waitFor();
  await composer(p).press("Tab");
  await value(p, `Look at @login/login_test.go and @login/${second} `);
  await keyboard.insertText("or a@login or @login");
  await options.first().waitFor();
  await composer(p).press("Escape");
  await options.first().waitFor({ state: "detached" });
  assert.ok(await composer(p).evaluate((a) => a === document.activeElement), "Escape closes the list only");
  await composer(p).press("Enter");
  await p.page.locator(".prompt", { hasText: `and @login/${second} or a@login or @login` }).waitFor();
  assert.deepEqual(await p.complaints(), []);
});

test("prompts that wait are edited, moved and removed, and go on after a stop", { timeout: 3 * patience }, async () => {
  const p = await start();
  const waiting = p.page.locator(".queue li");
  const texts = (...all) =>
    p.page.waitForFunction(
      (want) =>
        JSON.stringify([...document.querySelectorAll(".queue li > .cut")].map((e) => e.textContent)) ===
        JSON.stringify(want),
      all,
    );
  await prompt(p, "Please fix the login test");
  await button(p, "Allow").waitFor();
  for (const text of ["first", "second", "third"]) {
    await composer(p).fill(text);
    await button(p, "Queue").click();
    await waiting.filter({ hasText: text }).waitFor();
  }
  await button(p, "Move up the prompt third").click();
  await texts("first", "third", "second");
  await button(p, "Move down the prompt first").click();
  await texts("third", "first", "second");
  await button(p, "Move down the prompt first").click();
  await texts("third", "second", "first");
  await accessible(p, "the queue");
  await button(p, "Edit the prompt second").click();
  const field = p.page.getByLabel("Content of the prompt that waits");
  await field.fill("lost");
  await field.press("Escape");
  await texts("third", "second", "first");
  await button(p, "Edit the prompt second").click();
  await field.fill("the second, edited");
  await field.press("Enter");
  await texts("third", "the second, edited", "first");
  await button(p, "Remove the prompt third").click();
  await texts("the second, edited", "first");
  await button(p, "Stop").click();
  await composer(p).fill("Before.");
  await button(p, "Edit the prompt the second, edited").click();
  await field.fill("edited too late");
  await button(p, "Go on").click();
  await p.page.locator(".prompt", { hasText: "the second, edited" }).waitFor();
  await value(p, "Before.\n\nedited too late");
  await p.page.locator(".prompt", { hasText: "first" }).waitFor();
  assert.deepEqual(await p.complaints(), []);
});

test("a search finds, goes to the place and marks it", { timeout: 4 * patience }, async () => {
  const p = await start();
  await prompt(p, "Please fix the login test");
  await button(p, "Allow").click();
  await p.page.locator(".transcript", { hasText: "Both tests pass now." }).waitFor();
  await prompt(p, "endless lines");
  await p.page.locator(".transcript", { hasText: /Line ([4-9]\d|\d{3,}) of/ }).waitFor();
  await button(p, "Stop").click();
  await p.page.locator('.transcript[aria-busy="false"]').waitFor();
  await p.page.locator(".transcript").focus();
  await p.page.keyboard.press("f");
  const field = p.page.getByLabel("Text to find");
  await field.fill("ISSUED in utc");
  await field.press("Enter"); // waits for the place
  await p.page.locator(".row", { hasText: "it was issued in UTC" }).waitFor();
  await p.page.waitForFunction(() => CSS.highlights.get("found")?.size > 0);
  await accessible(p, "the search");
  await field.fill("login/login.go:42"); // the output of a call that is folded with others
  await p.page.locator(".finder li", { hasText: "Output" }).getByRole("button").click();
  await p.page.locator(".output", { hasText: "login/login.go:42: now := time.Now()" }).waitFor();
  await field.fill("nowhere to be found");
  await p.page.locator(".finder", { hasText: "Nothing found" }).waitFor();
  await field.press("Escape");
  await field.waitFor({ state: "detached" });
  await p.page.waitForFunction(() => !CSS.highlights.has("found"));
  // After many turns the page no longer has the place and reads it from the history.
  for (let i = 1; i <= 21; i++) {
    await prompt(p, `turn ${i}.`);
    await button(p, "Send").waitFor();
  }
  await p.page.reload();
  await p.page.locator(".prompt", { hasText: "turn 21." }).waitFor();
  await p.page.locator(".transcript").focus();
  await p.page.keyboard.press("f");
  await field.fill("issued in UTC");
  await p.page.locator(".finder", { hasText: "1 place" }).waitFor();
  await field.press("Enter");
  await p.page.locator(".row", { hasText: "it was issued in UTC" }).waitFor();
  await p.page.waitForFunction(() => CSS.highlights.get("found")?.size > 0);
  await button(p, "To the end").click();
  await p.page.locator(".prompt", { hasText: "turn 21." }).waitFor();
  // Without a connection the place is empty until it can be read, and the way back is open.
  await prompt(p, "a brisk stream"); // so long that nothing before it is loaded by scrolling
  await p.page.locator(".row", { hasText: "Line 600 of" }).waitFor();
  await p.page.reload();
  await p.page.locator(".row", { hasText: "Line 600 of" }).waitFor();
  await button(p, "People and turns").click();
  await p.page.getByRole("tab", { name: "Turns" }).click();
  const turn = p.page.locator(".turns").getByRole("button", { name: "Please fix the login test" });
  await turn.waitFor();
  await p.context.setOffline(true);
  await p.page.locator(".strip", { hasText: "Reconnecting" }).waitFor();
  await turn.click();
  await p.page.locator(".row").first().waitFor({ state: "detached" });
  await button(p, "To the end").waitFor();
  assert.equal(await p.page.locator(".nothing").count(), 0, "the session is not new");
  await p.context.setOffline(false);
  await p.page.locator(".row", { hasText: "it was issued in UTC" }).waitFor();
  assert.deepEqual(await p.complaints([/ERR_INTERNET_DISCONNECTED|WebSocket connection/]), []);
});

test("changes are shown side by side, and lines are commented", { timeout: 4 * patience }, async () => {
  const p = await start();
  await prompt(p, "Please fix the login test");
  await button(p, "Allow").waitFor();
  await p.page.locator("button.line", { hasText: "edit" }).click();
  const diff = p.page.locator(".diff");
  await button(p, "Side by side").click();
  await p.page.locator(".diff.split").waitFor();
  assert.equal(await diff.locator("tr").first().locator("td").count(), 6);
  await diff.locator("tr").nth(1).locator("td.no").last().click();
  await diff.locator("tr").nth(2).locator("td.no").last().click({ modifiers: ["Shift"] });
  await accessible(p, "the comment");
  await composer(p).fill("Before.");
  await p.page.getByRole("button", { name: "Comment on lines 2-3" }).click();
  await p.page.waitForFunction(() => document.querySelector(".composer textarea").value !== "Before.");
  const quoted = await composer(p).inputValue();
  assert.match(quoted, /^Before\.\n\nlogin\/login\.go, lines 2-3:\n(> [-+ ].*\n)+\n$/);
  assert.ok(quoted.includes("> +func (t Token) Valid(now time.Time) bool {\n"));
  await p.page.reload();
  await p.page.locator("button.line", { hasText: "edit" }).click();
  await p.page.locator(".diff.split").waitFor(); // the choice is kept
  await value(p, quoted); // so is the draft
  await button(p, "Side by side").click();
  await p.page.locator(".diff.split").waitFor({ state: "detached" });
  const lines = diff.locator(".lines");
  await lines.focus(); // by keys
  await lines.press("ArrowDown");
  await lines.press("Shift+ArrowDown");
  await lines.press("Enter");
  await p.page.waitForFunction(() => /removed lines 1-2:\n> -func/.test(document.querySelector("textarea").value));
  await button(p, "Side by side").click();
  await p.page.setViewportSize(phone.viewport);
  await p.page.locator(".diff.split").waitFor({ state: "detached" });
  assert.equal(await button(p, "Side by side").count(), 0);
  assert.deepEqual(await p.complaints(), []);
});

test("texts are added to the prompt, and other files are refused", { timeout: 3 * patience }, async () => {
  const p = await start();
  const choose = (...files) => p.page.locator('.composer input[type="file"]').setInputFiles(files);
  const file = (name, content) => ({ name, mimeType: "application/octet-stream", buffer: Buffer.from(content) });
  await composer(p).fill("Why?");
  await choose(file("a.txt", "one\n```\ntwo"), file("b.png", Buffer.from([0x89, 0x50, 0, 0xff])));
  const first = "Why?\n\na.txt:\n````\none\n```\ntwo\n````\n\n";
  await value(p, first);
  await p.page.locator(".refused", { hasText: "b.png is not a text." }).waitFor();
  await choose(file("c.txt", "x".repeat(70_000)));
  await p.page.locator(".refused", { hasText: "c.txt has 68 KB; a prompt takes files of at most 64 KB." }).waitFor();
  for (const [kind, name] of [
    ["drop", "d.txt"],
    ["paste", "e.txt"],
  ]) {
    await composer(p).fill("");
    await composer(p).evaluate(
      (area, [kind, name]) => {
        const data = new DataTransfer();
        data.items.add(new File(["hello"], name));
        const Kind = kind === "drop" ? DragEvent : ClipboardEvent;
        const init = { bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data };
        area.dispatchEvent(new Kind(kind, init));
      },
      [kind, name],
    );
    await value(p, `${name}:\n\`\`\`\nhello\n\`\`\`\n\n`);
  }
  assert.deepEqual(await p.complaints(), []);
});

test("two people allow, and the prompt and its end say who, when and at what cost", { timeout: 4 * patience }, async () => {
  await startServer(["--approvals", "2:bash"]);
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  await prompt(ann, "Please fix the login test");
  await ann.page.locator(".question", { hasText: "2 people must allow it. Nobody has yet." }).waitFor();
  await button(ann, "Allow").click();
  const share = await server.call("POST", `/api/headless/sessions/${server.session}/shares`, {
    role: "approver",
    label: "Ben",
  });
  const ben = await browser.open(`${server.url}/#share=${share.token}`, phone);
  await ben.page.locator(".question", { hasText: "Allowed by owner so far." }).waitFor();
  await button(ben, "Allow").tap();
  await ann.page.locator(".transcript", { hasText: "Both tests pass now." }).waitFor();
  await ann.page.locator(".end", { hasText: "$0.01" }).waitFor();
  assert.match(await ann.page.locator(".end").innerText(), /10k tokens in, 277 out/);
  await ben.page.getByRole("button", { name: "To the end" }).or(ben.page.locator(".end")).first().waitFor();
  await ann.page.locator(".transcript").focus();
  await ann.page.keyboard.press("k");
  const by = ann.page.locator(".prompt .by").first();
  assert.equal(await by.locator("b").innerText(), "You");
  assert.ok(Math.abs(Date.parse(await by.locator("time").getAttribute("datetime")) - Date.now()) < 10 * patience);
  // Who allowed it did not deny it.
  await prompt(ann, "Please fix the login test again");
  await ann.page.goto(`${server.url}/#inbox`);
  await ann.page.locator(".entry > button").click();
  await button(ann, "Allow").click();
  await ann.page.locator(".question", { hasText: "Allowed by owner so far." }).waitFor();
  await button(ben, "Deny").tap();
  await ann.page.locator(".ended", { hasText: "Denied by Ben" }).waitFor();
  assert.deepEqual(await Promise.all([ann, ben].map((p) => p.complaints())), [[], []]);
});

test("a failed call is retried, skipped or given up, and an answer may last", { timeout: 3 * patience }, async () => {
  const p = await start();
  for (const [name, said, word] of [
    ["Retry", "It ran once more.", "Retried"],
    ["Skip", "It was left out.", "Skipped"],
    ["Abort", "It was given up.", "Aborted"],
  ]) {
    await prompt(p, `fails twice, then ${name}`);
    await p.page.locator(".question", { hasText: "exit status 2" }).waitFor();
    await button(p, name).click();
    await p.page.locator(".row", { hasText: said }).waitFor();
    await p.page.locator(".note", { hasText: `${word} by you` }).waitFor();
  }
  await prompt(p, "a lasting answer");
  await p.page.getByText("More answers").click();
  await button(p, "Always allow make").click();
  await p.page.locator(".row", { hasText: "It may run." }).waitFor();
  assert.deepEqual(await p.complaints(), []);
});

test("a long prompt is shown whole when it is opened", { timeout: 3 * patience }, async () => {
  const p = await start();
  await composer(p).fill(`count ${"the tests ".repeat(2000)}to the end`);
  await button(p, "Send").click();
  const sent = p.page.locator(".prompt");
  await sent.getByRole("button", { name: "Show all" }).click();
  await sent.getByRole("button", { name: "End", exact: true }).click();
  await sent.filter({ hasText: "to the end" }).waitFor();
  assert.deepEqual(await p.complaints(), []);
});
