// Several questions at once, in a browser against the program that was built.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { browser, button, eachTest, patience, prompt, server, shows, startServer } from "./harness.mjs";

eachTest();

const agent = fileURLToPath(new URL("agent.mjs", import.meta.url));

/** asks makes the agent ask for permission. */
const asks = (name) => writeFileSync(join(server.root, name), "");

test("a form stays while questions come and go, and early clicks do nothing", { timeout: 4 * patience }, async () => {
  await startServer(["--agent", `acp:node ${agent}`]);
  const p = await browser.open(await server.link());
  const sheet = p.page.locator(".question");
  const step = (text) => sheet.locator(".steps", { hasText: text }).waitFor();
  const ready = (name) => sheet.locator("button:enabled", { hasText: name });
  await prompt(p, "a few questions");
  const field = p.page.getByLabel("Share");
  await field.pressSequentially("0.0"); // "0" on the way to another number
  asks("one"); // permissions are listed before forms
  await step("2 of 2");
  await p.page.keyboard.type("5");
  asks("two");
  await step("3 of 3");
  const one = await server.question((q) => q.display.includes("one"));
  await server.call("POST", `/api/headless/inbox/${one.session_id}/${one.request_id}`, { approved: true });
  await step("2 of 2");
  await shows(p, "one: yes");

  // What is written outlives the question on the screen, and the page.
  await button(p, "Previous question").click();
  const reason = p.page.getByLabel(/^Reason/);
  await reason.fill("not yet");
  await button(p, "Next question").click();
  assert.equal(await field.inputValue(), "0.05");
  await p.page.reload();
  assert.equal(await reason.inputValue(), "not yet");
  await button(p, "Next question").click();
  await field.press("End");

  // A lost connection takes no key.
  await ready("Send").waitFor();
  await p.context.setOffline(true);
  await sheet.getByText("You can answer when the connection is back.").waitFor();
  await p.page.keyboard.type("1");
  assert.equal(await field.inputValue(), "0.051");
  assert.equal(await sheet.locator(".answers button:enabled").count(), 0);
  await p.context.setOffline(false);

  // What is pressed as soon as the next question is there was meant for the one before it.
  await p.page.evaluate(() => {
    const early = new MutationObserver(() => {
      const deny = document.querySelector(".question button.verdict");
      if (!deny) return;
      early.disconnect();
      deny.click();
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "d", bubbles: true }));
      globalThis.pressed = true;
    });
    early.observe(document.body, { childList: true, subtree: true });
  });
  await ready("Send").click();
  await shows(p, 'form: {"action":"accept","content":{"share":0.051}}');
  await ready("Allow").click();
  assert.equal(await p.page.evaluate(() => globalThis.pressed), true);
  await shows(p, "two: yes");
  assert.deepEqual(await p.page.evaluate(() => Object.keys(sessionStorage).filter((k) => /form/.test(k))), []);
  assert.deepEqual(await p.complaints([/ERR_INTERNET_DISCONNECTED|WebSocket connection/]), []);
});
