// Links into the page, and the end of a login, in a browser against the program that was built.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { patience, startBrowser, startServer } from "./harness.mjs";

let browser;
let server;
before(async () => {
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
});
afterEach(async () => {
  await browser.leave();
  await server?.close();
  server = undefined;
});

const button = (p, name) => p.page.getByRole("button", { name, exact: true });

test("the link of a notification opens its question", { timeout: 4 * patience }, async () => {
  server = await startServer();
  const ann = await browser.open(await server.link());
  await ann.page.locator(".composer textarea").fill("Please fix the login test");
  await button(ann, "Send").click();
  await button(ann, "Allow").waitFor();
  const [question] = (await server.call("GET", "/api/headless/inbox")).questions;
  const link = `${server.url}/inbox?session=${question.session_id}&request=${question.request_id}`;

  await ann.page.goto(link);
  await ann.page.locator('.entry > button[aria-expanded="true"]').waitFor();
  await ann.page.locator(".question button.primary:enabled", { hasText: "Allow" }).click();
  await ann.page.locator(".ended", { hasText: "Allowed by you" }).waitFor();

  await ann.page.goto(link);
  await ann.page.getByText("The question of this link is not open any more.").waitFor();
  assert.deepEqual(await ann.complaints(), []);
});

test("a tab that logs out logs out the other tabs", { timeout: 4 * patience }, async () => {
  server = await startServer();
  const ann = await browser.open(await server.link());
  await ann.page.locator(".composer textarea").waitFor();
  const other = await ann.page.context().newPage();
  await other.goto(server.url);
  await other.locator(".session").first().waitFor();
  await button({ page: other }, "Log out").click();
  await ann.page.locator(".session").first().waitFor({ state: "detached" });
  await ann.page.getByRole("heading", { name: "Log in" }).waitFor();
});
