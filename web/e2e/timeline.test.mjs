// The time line: any past moment of a live session, and the way back, against the program that was built.
import assert from "node:assert/strict";
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
  server,
  startServer,
} from "./harness.mjs";

eachTest();

const slider = (p) => p.page.getByRole("slider", { name: "Time line" });
const strip = (p) => p.page.locator(".past-strip");
const said = (p) => slider(p).getAttribute("aria-valuetext");

async function prompt(p, text) {
  await composer(p).fill(text);
  await button(p, "Send").or(button(p, "Queue")).click();
}

/** allow answers the open question as soon as it may be answered. */
async function allow(p) {
  await p.page.locator(".question button.primary:enabled").click();
}

/** record keeps what the page shows of the session, by the cursor of its newest event. */
function record() {
  globalThis.moments = {};
  const look = () => {
    const line = document.querySelector(".line-slider");
    if (line && !document.querySelector(".past-strip, .unsettled")) globalThis.moments[line.ariaValueMax] = globalThis.picture();
    requestAnimationFrame(look);
  };
  globalThis.picture = () => ({
    rows: [...document.querySelectorAll(".rows .row")]
      .sort((a, b) => a.dataset.index - b.dataset.index)
      .slice(-20) // those before are drawn only if they have room
      .map((row) => (row.querySelector(".code") ? "code" : row.innerText.replace(/^(\d+ min )?[\d.]+ s(\n|$)/gm, "").trim())), // a worker draws code later, and the live page counts seconds itself
    questions: [...document.querySelectorAll(".question h2, .question .runs")].map((e) => e.innerText),
    queue: [...document.querySelectorAll(".queue li .grow")].map((e) => e.innerText),
  });
  look();
}

/** goTo opens the address of a moment, and waits until it is there. */
async function goTo(p, cursor) {
  await p.page.evaluate((at) => (location.hash = `#session=main&at=${at}`), cursor);
  await p.page.waitForFunction(
    (at) => document.querySelector(".past-strip") && document.querySelector(".line-slider").ariaValueNow === String(at),
    cursor,
  );
}

test("a moment of the past is what the page showed live", { timeout: 6 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link(), { viewport: { width: 1280, height: 4000 } });
  await composer(ann).waitFor();
  await ann.page.evaluate(record);
  await prompt(ann, "Please fix the login test");
  await button(ann, "Allow").waitFor();
  await prompt(ann, "hello afterwards");
  await ann.page.locator(".queue").waitFor();
  await allow(ann);
  await ann.page.locator(".prompt", { hasText: "hello afterwards" }).waitFor();
  await ann.page.locator(".rows").getByText("This is a script, not a model.").waitFor();
  await prompt(ann, "ask me something");
  await ann.page.getByText("Compare in UTC everywhere").click();
  await button(ann, "Send answer").click();
  await ann.page.locator(".rows").getByText("I will use the clock you chose.").waitFor();
  await prompt(ann, "an endless answer");
  await ann.page.waitForFunction(() => Object.keys(globalThis.moments).length > 40);
  await button(ann, "Stop").click();
  await ann.page.locator('.transcript[aria-busy="false"]').waitFor();
  const moments = await ann.page.evaluate(() => globalThis.moments);
  const cursors = Object.keys(moments)
    .map(Number)
    .filter((c) => moments[c].rows.length > 0);
  const some = cursors.filter((c, i) => i % Math.ceil(cursors.length / 25) === 0 || moments[c].questions.length > 0);
  assert.ok(some.length > 10, `${cursors.length} moments`);
  assert.ok(some.some((c) => moments[c].queue.length > 0) && some.some((c) => moments[c].questions.length > 0));
  for (const cursor of some.slice(-40)) {
    await goTo(ann, cursor);
    const same = (then) => JSON.stringify(globalThis.picture()) === JSON.stringify(then);
    await ann.page.waitForFunction(same, moments[cursor], { timeout: patience / 6 }).catch(async () => {
      assert.deepEqual(await ann.page.evaluate(() => globalThis.picture()), moments[cursor], `the moment ${cursor}`);
    });
  }
  await accessible(ann, "a moment of the past");

  // Nothing that acts is possible there, also by keys.
  const asked = some.find((c) => moments[c].questions.some((q) => q.includes("go test")));
  await goTo(ann, asked);
  await ann.page.getByText("This question was open then.").waitFor();
  assert.equal(await ann.page.locator(".main textarea, .question .verdict, .queue button").count(), 0);
  await ann.page.getByText("This is the past. Nothing can be sent or answered here.").waitFor();
  await button(ann, "Back to live").click();
  await composer(ann).waitFor();
  assert.equal(new URL(ann.page.url()).hash, "#session=main");
  assert.deepEqual(await ann.complaints(), []);
});

/** lines are the numbers of the lines of an answer, in the order of their rows. */
async function lines(p) {
  const text = (await conversation(p)).join("\n");
  return [...text.matchAll(/Line (\d+) of/g)].map((m) => Number(m[1]));
}

test(
  "the page looks back while the agent answers, and loses and doubles no word",
  { timeout: 6 * patience },
  async () => {
    await startServer();
    const ann = await browser.open(await server.link());
    await composer(ann).waitFor();
    await prompt(ann, "hello");
    await ann.page.locator(".end").waitFor();
    await prompt(ann, "an endless answer");
    await ann.page.getByText(/Line \d\d+ of/).last().waitFor();
    await slider(ann).focus();
    await ann.page.keyboard.press("PageUp");
    await strip(ann).waitFor();
    await ann.page.evaluate(() => {
      globalThis.later = () => {
        const [, found] = /([\d,]+) events? later/.exec(document.querySelector(".past-strip").innerText) ?? [];
        return Number(found?.replaceAll(",", "") ?? 0);
      };
    });
    const before = await ann.page.evaluate(() => globalThis.later());
    await ann.page.waitForFunction((n) => globalThis.later() > n + 20, before);
    assert.equal(await ann.page.getByText(/Line \d+ of/).count(), 0, "the moment stays although the session goes on");
    await ann.page.keyboard.press("End");
    await strip(ann).waitFor({ state: "detached" });
    await slider(ann).click({ position: { x: 12, y: 200 } });
    await strip(ann).waitFor();

    // What is played catches up with the live session, and goes on there.
    await button(ann, "Play 16 times as fast").click();
    await strip(ann).waitFor({ state: "detached" });
    await button(ann, "Stop").click();
    await finished(ann);
    const found = await lines(ann);
    assert.ok(found.length > 10, `${found.length} lines`);
    assert.deepEqual(
      found,
      found.map((_, i) => i + 1),
    );
    assert.deepEqual(await ann.complaints(), []);
  },
);

test("the time line is used by keys, and says where it is", { timeout: 4 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  for (const [text, end] of [
    ["hello, first", ".end"],
    ["what about live runs", ".note.bad"],
    ["Please fix the login test", ".question"],
  ]) {
    await prompt(ann, text);
    await ann.page.locator(end).waitFor();
    if (end !== ".question") await finished(ann);
  }
  await button(ann, "Allow").waitFor();
  await ann.page.keyboard.press("Escape");
  await ann.page.keyboard.press("l");
  await ann.page.waitForFunction(() => document.activeElement?.classList.contains("line-slider"));
  assert.equal(await said(ann), "Live, turn 3 of 3");
  await ann.page.locator(".line-slider .failed").waitFor();
  await ann.page.locator(".line-slider .asked").waitFor();
  await ann.page.keyboard.press("ArrowUp");
  await strip(ann).waitFor();
  await ann.page.keyboard.press("a"); // answers nothing, neither here nor there
  const turn = async (n) => {
    await ann.page.waitForFunction(
      (t) => document.querySelector(".line-slider").ariaValueText.includes(t),
      `turn ${n} of 3`,
    );
    assert.match(await said(ann), /^\d+:\d\d/);
  };
  await turn(3);
  for (let i = 0; i < 30 && !(await said(ann)).includes("turn 2"); i++) {
    const at = await slider(ann).getAttribute("aria-valuenow");
    await ann.page.keyboard.press("PageUp");
    await ann.page.waitForFunction((old) => document.querySelector(".line-slider").ariaValueNow !== old, at);
  }
  await turn(2);
  await ann.page.locator(".prompt", { hasText: "Please fix" }).waitFor({ state: "detached" });
  await ann.page
    .locator(".prompt, .note", { hasText: "live runs" })
    .or(ann.page.getByText("overloaded"))
    .first()
    .waitFor();
  await ann.page.keyboard.press("Home");
  await ann.page.getByText("Nothing had been said yet").waitFor();
  assert.match(await said(ann), /before the first turn/);
  await ann.page.keyboard.press("ArrowDown");
  await ann.page.keyboard.press("PageDown");
  await turn(1);
  await ann.page.keyboard.press("End");
  await strip(ann).waitFor({ state: "detached" });
  await button(ann, "Allow").waitFor();
  await slider(ann).focus();
  await ann.page.keyboard.press("ArrowLeft");
  await strip(ann).waitFor();
  await ann.page.keyboard.press("g");
  await strip(ann).waitFor({ state: "detached" });
  await button(ann, "Allow").waitFor();
  assert.deepEqual(await ann.complaints(), []);
});

test("a viewer looks back on a phone", { timeout: 4 * patience }, async () => {
  await startServer();
  const ann = await browser.open(await server.link());
  await composer(ann).waitFor();
  await prompt(ann, "Please fix the login test");
  await button(ann, "Allow").waitFor();
  await allow(ann);
  await ann.page.locator(".end").waitFor();
  const { token } = await server.call("POST", `/api/headless/sessions/${server.session}/shares`, { role: "viewer" });
  const hand = await browser.open(`${server.url}/#share=${token}`, phone);
  await hand.page.locator(".end").waitFor();
  await button(hand, "People and turns").tap();
  await hand.page.getByRole("tab", { name: "Turns" }).tap();
  await button(hand, "Look back").tap();
  await strip(hand).waitFor();
  await accessible(hand, "the past on a phone");
  const { x, y, width, height } = await slider(hand).boundingBox();
  assert.ok(width > 120 && height >= 44, `${width} by ${height}`);
  await hand.page.touchscreen.tap(x + width * 0.4, y + height / 2);
  await hand.page.waitForFunction(() => !document.querySelector(".end"));
  await hand.page.locator(".prompt", { hasText: "Please fix" }).waitFor();
  assert.equal(await hand.page.evaluate(() => document.documentElement.scrollWidth), 360);
  await button(hand, "Back to live").tap();
  await hand.page.locator(".end").waitFor();
  assert.deepEqual(await Promise.all([ann, hand].map((p) => p.complaints())), [[], []]);
});
