// Links into the page, and the end of a login, in a browser against the program that was built.
import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, browser, button, composer, eachTest, patience, phone, server, startServer } from "./harness.mjs";

eachTest();

test("the link of a notification opens its question", { timeout: 4 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).fill("Please fix the login test");
  await button(ann, "Send").click();
  await button(ann, "Allow").waitFor();
  const question = await server.question();
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
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  const ben = await browser.open(await server.link());
  await button(ben, "People and turns").click();
  const here = (n) => ben.page.waitForFunction((n) => document.querySelectorAll(".person").length === n, n);
  const other = await ann.page.context().newPage();
  await other.goto(server.url);
  await other.locator(".session").first().waitFor();
  await here(3);
  await button({ page: other }, "Log out").click();
  await ann.page.locator(".session").first().waitFor({ state: "detached" });
  await ann.page.getByRole("heading", { name: "Log in" }).waitFor();
  await here(1); // their connections have ended
});

test("a link that the page makes lets a phone answer until it is revoked", { timeout: 4 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).fill("Please fix the login test");
  await button(ann, "Send").click();
  await button(ann, "Allow").waitFor();
  await ann.page.getByRole("button", { name: "People and turns" }).click();
  await ann.page.getByLabel("For whom").fill("Ben's phone");
  await ann.page.getByLabel("What the link allows").selectOption("approver");
  await ann.page.getByLabel("How long the link works").selectOption("for an hour");
  await button(ann, "Make a link").click();
  const link = await ann.page.getByLabel("Link", { exact: true }).inputValue();
  await ann.page.getByRole("img", { name: "The link as a QR code" }).waitFor();
  await ann.page.locator(".shares li", { hasText: "Ben's phone" }).getByText("not used yet").waitFor();
  await accessible(ann, "the panel with a link");

  const ben = await browser.open(link, phone);
  await button(ben, "Allow").waitFor();
  await ann.page.locator(".person", { hasText: "Ben's phone" }).getByText("answers").waitFor();
  await button(ben, "Allow").click();
  await ann.page.locator(".main", { hasText: "by Ben's phone" }).waitFor();
  assert.equal(await ben.page.locator(".shares").count(), 0, "who has a share makes none");
  assert.equal(await ben.page.locator('[aria-label="New session"]').count(), 0, "and no session");
  await ann.page.getByLabel("For whom").fill("Cat");
  await button(ann, "Make a link").dblclick(); // makes one
  await ann.page.getByRole("button", { name: "Revoke the link of Cat" }).waitFor();
  const made = await ann.page.getByLabel("Link", { exact: true }).inputValue();
  assert.notEqual(made, link);
  await ann.page.getByRole("button", { name: "Revoke the link of Ben's phone" }).click();
  await ben.page.getByRole("heading", { name: "This link does not work" }).waitFor();
  await ann.page.locator(".shares li", { hasText: "Ben's phone" }).waitFor({ state: "detached" });
  assert.equal(await ann.page.getByLabel("Link", { exact: true }).inputValue(), made, "it is shown only now");
  await ann.page.getByRole("button", { name: "Revoke the link of Cat" }).click();
  await ann.page.locator(".shares li").waitFor({ state: "detached" });
  assert.equal(await ann.page.getByLabel("Link", { exact: true }).count(), 0);
  assert.deepEqual(await ann.complaints(), []);
  assert.deepEqual(await ben.complaints([/401/]), []);
});

test("a link that does not work says why", { timeout: 3 * patience }, async () => {
  await startServer();
  const link = await server.link();
  const ann = await browser.open(link);
  await composer(ann).waitFor();
  await ann.page.goto("about:blank");
  await ann.page.goto(link); // again: the browser is logged in
  await composer(ann).waitFor();
  assert.deepEqual(await ann.complaints(), []);

  const ben = await browser.open(link);
  await ben.page.getByRole("heading", { name: "This link does not work" }).waitFor();
  await ben.page.getByText("A link logs in once").waitFor();
  await ben.page.waitForFunction(() => document.title === "This link does not work · Maestro");
  await accessible(ben, "a link that does not work");
  await ben.page.goto("about:blank");
  await ben.page.goto(`${server.url}/#share=mshare_wrong`);
  await ben.page.getByText("Ask the person who sent it").waitFor();
  assert.deepEqual(await ben.complaints([/401/]), []);

  await ann.page.goto(`${server.url}/#session=unknown`);
  await ann.page.locator(".strip", { hasText: "There is no such session." }).waitFor();
  assert.equal(await composer(ann).count(), 0, "nothing can be sent");
});
