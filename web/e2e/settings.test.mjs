// Settings, notifications, the installed app, commands with a slash, and the way of a newcomer to an answered question.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createECDH, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import {
  accessible,
  browser,
  button,
  composer,
  eachTest,
  patience,
  phone,
  server,
  startServer,
  until,
} from "./harness.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));

eachTest();

const settings = (p) => p.page.getByRole("dialog", { name: "Settings" });
const notifications = (p) =>
  p.page.evaluate(async () => {
    const service = await navigator.serviceWorker.getRegistration();
    return ((await service?.getNotifications()) ?? []).map((n) => ({ title: n.title, body: n.body, tag: n.tag }));
  });

/** displays counts what a browser displays. Chromium drops a notification that is listed while it is about to be displayed. */
async function displays(p) {
  const cdp = await p.context.newCDPSession(p.page);
  let count = 0;
  cdp.on("BackgroundService.backgroundServiceEventReceived", ({ backgroundServiceEvent: e }) => {
    if (e.eventName === "Notification displayed") count++;
  });
  await cdp.send("BackgroundService.startObserving", { service: "notifications" });
  await cdp.send("BackgroundService.setRecording", { service: "notifications", shouldRecord: true });
  return () => count;
}

/** hide makes the page believe that it is in the background; a browser without a screen shows all pages. */
const hide = (p) =>
  p.page.evaluate(() => Object.defineProperty(document, "visibilityState", { get: () => "hidden" }));

/** registered returns what the server knows of the owner's browsers. */
const registered = async () => (await server.call("GET", "/api/headless/inbox/push")).browsers;

async function ask(p) {
  await composer(p).fill("Please fix the login test");
  await button(p, "Send").click();
  await button(p, "Allow").waitFor();
}

test("the settings are reached in three ways and keep name and theme", { timeout: 3 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  await composer(p).waitFor();
  await p.page.getByRole("button", { name: "Settings" }).click();
  await settings(p).waitFor();
  await accessible(p, "the settings");
  const ground = () => p.page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const bars = () => p.page.locator('meta[name="theme-color"]').evaluateAll((all) => all.map((m) => m.content));
  const [light, dark] = await bars();
  const before = await ground();
  await settings(p).getByText("Dark", { exact: true }).click();
  assert.notEqual(await ground(), before);
  assert.deepEqual(await bars(), [dark, dark], "the bar of a phone is dark too");
  await accessible(p, "the settings in the dark");
  await settings(p).getByText("System", { exact: true }).click();
  assert.equal(await ground(), before);
  assert.deepEqual(await bars(), [light, dark]);
  await settings(p).getByLabel("Your name").fill("Ann of the desk");
  await p.page.keyboard.press("Escape");
  await settings(p).waitFor({ state: "detached" });

  await p.page.locator(".transcript").focus();
  await p.page.keyboard.press(",");
  assert.equal(await settings(p).getByLabel("Your name").inputValue(), "Ann of the desk");
  const licenses = await p.page.request.get(
    new URL(await settings(p).getByRole("link", { name: /Licenses/ }).getAttribute("href"), server.url).href,
  );
  assert.match(await licenses.text(), /preact/);
  await settings(p).getByText(/^Maestro (devel|v\d)/).waitFor();
  await p.page.keyboard.press("Escape");
  await settings(p).waitFor({ state: "detached" });
  await p.page.keyboard.press("Control+k");
  await p.page.getByRole("combobox", { name: "Command or session" }).fill("settings");
  await p.page.keyboard.press("Enter");
  await settings(p).waitFor();
  await button(p, "Close").click();

  await ask(p);
  const ben = await browser.open(await server.link());
  await ben.page.locator(".prompt", { hasText: "Ann of the desk" }).waitFor();
  assert.deepEqual(await p.complaints(), []);
});

test("a page in the background tells of a question and takes it back", { timeout: 4 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link(), { permissions: ["notifications"], timezoneId: "UTC" });
  const displayed = await displays(p);
  await composer(p).waitFor();
  assert.equal(await p.page.evaluate(() => navigator.serviceWorker.getRegistration().then(Boolean)), false);
  await button(p, "Settings").click();
  await settings(p).getByRole("switch").click();
  await settings(p).getByText(/only while a page of Maestro is open.*--notify/).waitFor();
  assert.equal(
    await p.page.evaluate(() => navigator.serviceWorker.ready.then((r) => r.scope)),
    `${server.url}/`,
    "the service worker runs under the policy",
  );
  await button(p, "Send a test").click();
  await settings(p).getByText(/^Sent\./).waitFor();
  assert.deepEqual((await notifications(p)).map((n) => n.title), ["Notifications work"]);
  await p.page.keyboard.press("Escape");

  await hide(p);
  await ask(p);
  const shown = () => notifications(p).then((all) => all.filter((n) => n.title === "A question waits"));
  await until("the notification", () => displayed() === 2);
  const [told] = await shown();
  assert.equal(told.body, "Please fix the login test");
  assert.ok(!/go test/.test(JSON.stringify(told)), "it has nothing of the question");

  const [worker] = p.context.serviceWorkers();
  await worker.evaluate(async (tag) => {
    const [notification] = await globalThis.registration.getNotifications({ tag });
    globalThis.dispatchEvent(new NotificationEvent("notificationclick", { notification }));
  }, told.tag);
  await p.page.locator('.entry > button[aria-expanded="true"]').waitFor();
  await until("the click to close it", async () => (await shown()).length === 0);

  await p.page.locator(".question button.primary:enabled", { hasText: "Allow" }).click();
  await p.page.locator(".ended", { hasText: "Allowed by you" }).waitFor();
  await p.page.goto(`${server.url}/#session=${server.session}`);
  await ask(p);
  await until("a second notification", () => displayed() === 3);
  assert.equal((await shown()).length, 1);
  await button(p, "Deny").click();
  await until("its end", async () => (await shown()).length === 0);

  await button(p, "Settings").click();
  await settings(p).getByLabel("Quiet hours").click();
  await settings(p).getByLabel("Quiet from").fill("00:00");
  await settings(p).getByLabel("Quiet until").fill("23:59");
  await until("the quiet hours", () => p.page.evaluate(() => localStorage["maestro.notify"]?.includes("00:00-23:59")));
  await p.page.keyboard.press("Escape");
  if (new Date().toISOString().slice(11, 16) !== "23:59") {
    await ask(p);
    await p.page.getByRole("link", { name: "Inbox" }).getByText("1").waitFor();
    assert.equal((await shown()).length, 0, "it is quiet");
  }
  assert.deepEqual(await p.complaints(), []);
});

test("notifications are on again after a logout that failed", { timeout: 2 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link(), { permissions: ["notifications"] });
  await button(p, "Settings").click();
  await settings(p).getByRole("switch").click();
  await settings(p).getByText(/only while a page of Maestro is open/).waitFor();
  await p.page.keyboard.press("Escape");
  await p.page.route("**/logout", (route) => route.abort());
  await button(p, "Log out").click();
  await p.page.getByText(/^You are still logged in/).waitFor();
  await until("the wish", () => p.page.evaluate(() => "maestro.notify" in localStorage));
  await until("the worker", () => p.page.evaluate(() => navigator.serviceWorker.getRegistration().then(Boolean)));
});

test("what makes notifications impossible is said", { timeout: 3 * patience }, async () => {
  await startServer();
  const blocked = await browser.open(await server.link());
  await blocked.page.addInitScript(() =>
    Object.defineProperty(Notification, "permission", { get: () => "denied", configurable: true }),
  );
  await blocked.page.reload();
  await button(blocked, "Settings").click();
  await settings(blocked).getByText(/This browser blocks notifications of this page/).waitFor();
  assert.ok(await settings(blocked).getByRole("switch").isDisabled());

  // The switch stays off if somebody closes the question of the browser, each time.
  await blocked.page.addInitScript(() => {
    Object.defineProperty(Notification, "permission", { get: () => "default" });
    Notification.requestPermission = async () => "default";
  });
  await blocked.page.reload();
  await button(blocked, "Settings").click();
  for (let i = 0; i < 2; i++) {
    await settings(blocked).getByRole("switch").click();
    await settings(blocked).getByText("Notifications stay off until you allow them").waitFor();
    assert.ok(!(await settings(blocked).getByRole("switch").isChecked()));
  }

  const iphone = await browser.open(await server.link(), {
    ...phone,
    userAgent: "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 Version/17.4 Safari/604.1",
  });
  await button(iphone, "Sessions").click();
  await button(iphone, "Settings").click();
  await settings(iphone).getByText(/choose Share and Add to Home Screen\. Then open/).waitFor();
  await accessible(iphone, "the settings on a phone");
  assert.deepEqual([...(await blocked.complaints()), ...(await iphone.complaints())], []);
});

/** pushService is a push service and the browser that it delivers to. */
async function pushService() {
  const ecdh = createECDH("prime256v1");
  const keys = { p256dh: ecdh.generateKeys().toString("base64url"), auth: randomBytes(16).toString("base64url") };
  const folder = mkdtempSync(join(tmpdir(), "maestro-push-"));
  const arrived = [];
  let status = 201;
  const http = createServer(async (req, res) => {
    const parts = [];
    for await (const part of req) parts.push(part);
    const header = Object.fromEntries(
      Object.entries(req.headers).map(([k, v]) => [k.replace(/(^|-)[a-z]/g, (c) => c.toUpperCase()), [v]]),
    );
    const input = {
      Header: header,
      Body: Buffer.concat(parts).toString("base64"),
      Keys: { ...keys, private: ecdh.getPrivateKey().toString("base64url") },
    };
    const out = spawnSync("node", [join(here, "../../internal/transport/notify/testdata/push.js")], {
      input: JSON.stringify(input),
      encoding: "utf8",
    });
    arrived.push(out.stdout.slice(0, out.stdout.indexOf("} ") + 1) || out.stderr);
    res.writeHead(status).end();
  }).listen(0, "127.0.0.1");
  await once(http, "listening");
  const endpoint = `http://127.0.0.1:${http.address().port}/push/`;
  return {
    arrived,
    refuse: (code) => {
      status = code;
    },
    /** gives a page a PushManager whose push service is this one */
    async serve(context) {
      await context.addInitScript(
        ({ endpoint, keys }) => {
          const kept = () => JSON.parse(localStorage.getItem("test.push") ?? "null");
          const made = ({ number, key }) => ({
            endpoint: endpoint + number,
            options: { applicationServerKey: Uint8Array.from(key).buffer },
            toJSON: () => ({ endpoint: endpoint + number, keys }),
            async unsubscribe() {
              localStorage.removeItem("test.push");
              return true;
            },
          });
          PushManager.prototype.getSubscription = async () => kept() && made(kept());
          PushManager.prototype.subscribe = async ({ userVisibleOnly, applicationServerKey }) => {
            if (!userVisibleOnly || applicationServerKey.length !== 65) throw new Error("not a subscription");
            localStorage.setItem("test.push", JSON.stringify({ number: Date.now(), key: [...applicationServerKey] }));
            return made(kept());
          };
        },
        { endpoint, keys },
      );
    },
    folder,
    async close() {
      http.closeAllConnections();
      http.close();
      await once(http, "close");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** deliveries hands messages to the service worker of a page, as the browser does after it has decrypted them. */
async function deliveries(p) {
  const cdp = await p.context.newCDPSession(p.page);
  let registrationId;
  cdp.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
    registrationId = registrations.findLast((r) => !r.isDeleted)?.registrationId ?? registrationId;
  });
  await cdp.send("ServiceWorker.enable");
  const displayed = await displays(p);
  return {
    async deliver(data) {
      await until("the service worker", () => registrationId);
      const before = displayed();
      await cdp.send("ServiceWorker.deliverPushMessage", { origin: server.url, registrationId, data });
      await until("the notification", () => displayed() > before);
    },
  };
}

test("a browser subscribes, is told of questions, and unsubscribes", { timeout: 5 * patience }, async () => {
  const service = await pushService();
  try {
    const config = join(service.folder, "notify.json");
    writeFileSync(
      config,
      JSON.stringify({
        link: "/inbox?session={session}&request={request}",
        web_push: { subject: "mailto:ops@example.com", local: true },
      }),
    );
    await startServer(["--notify", config]);
    const p = await browser.open("about:blank", { permissions: ["notifications"], timezoneId: "Europe/Berlin" });
    await service.serve(p.context);
    const worker = await deliveries(p);
    await p.page.goto(await server.link());
    await button(p, "Settings").click();
    await settings(p).getByRole("switch").click();
    await settings(p).getByText("They arrive also while no page of Maestro is open.").waitFor();
    await settings(p).getByLabel("Quiet hours").click();
    await until("the quiet hours", async () => (await registered())[0]?.quiet_hours === "22:00-07:00");
    assert.equal((await registered())[0].time_zone, "Europe/Berlin");
    await settings(p).getByLabel("Quiet hours").click();
    await until("no quiet hours", async () => (await registered())[0]?.quiet_hours === undefined);

    await button(p, "Send a test").click();
    await settings(p).getByText(/^Sent\./).waitFor();
    assert.deepEqual(JSON.parse(service.arrived.shift()), { type: "test", link: "" });
    await p.page.keyboard.press("Escape");

    await server.stop(); // the subscription outlives the server
    await server.start();
    await ask(p);
    const message = await until("the message", () => service.arrived.shift());
    const { link } = JSON.parse(message);
    assert.equal(new URL(link, server.url).searchParams.get("session"), server.session);
    await worker.deliver(message);
    const [told] = await notifications(p);
    assert.deepEqual([told.title, told.body], ["A question waits", "Open it to answer."]);
    await worker.deliver("not JSON"); // from elsewhere
    assert.equal((await notifications(p)).length, 2);

    service.refuse(410);
    await button(p, "Settings").click();
    await button(p, "Send a test").click();
    await settings(p).getByText(/does not know this registration any more/).waitFor();
    await until("a new registration", async () => (await registered()).length === 1);
    service.refuse(201);
    await settings(p).getByText("They arrive also while no page of Maestro is open.").waitFor();
    await settings(p).getByRole("switch").click();
    await until("no registration", async () => (await registered()).length === 0);
    await until("no service worker", () => p.page.evaluate(async () => !(await navigator.serviceWorker.getRegistration())));

    await settings(p).getByRole("switch").click();
    await until("a registration", async () => (await registered()).length === 1);
    await p.page.evaluate(() => sessionStorage.setItem("maestro.draft.x", "secret"));
    await settings(p).getByRole("button", { name: "Log out" }).click();
    await p.page.getByRole("heading", { name: "Log in" }).waitFor();
    assert.equal((await registered()).length, 0, "who logs out is told nothing more");
    assert.deepEqual(
      await p.page.evaluate(() => [localStorage["maestro.notify"], sessionStorage["maestro.draft.x"]]),
      [undefined, undefined],
    );
    assert.deepEqual(await p.complaints([/401/, /404/, /ERR_CONNECTION_REFUSED/]), []);
  } finally {
    await service.close();
  }
});

test("the command to write a prompt leads into its field", { timeout: 2 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  await composer(p).press("Escape");
  await p.page.keyboard.press("Control+k");
  await p.page.keyboard.type("write a prompt");
  await p.page.keyboard.press("Enter");
  await p.page.waitForFunction(() => document.activeElement.matches(".composer textarea"));
  await p.page.keyboard.type("hello");
  assert.equal(await composer(p).inputValue(), "hello");
  assert.deepEqual(await p.complaints(), []);
});

test("keys answer no question behind a dialog", { timeout: 2 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  await ask(p);
  await p.page.locator("button.verdict.primary:disabled").waitFor({ state: "detached" }); // the question was seen
  await p.page.evaluate(() => {
    globalThis.taken = []; // of each key, whether something took it
    addEventListener("keydown", (e) => setTimeout(() => globalThis.taken.push([e.key, e.defaultPrevented])));
  });
  const taken = (...keys) =>
    p.page.waitForFunction((want) => JSON.stringify(globalThis.taken) === JSON.stringify(want), keys);
  await button(p, "Settings").click();
  await settings(p).waitFor();
  await p.page.keyboard.press("d");
  await taken(["d", false]);
  await p.page.keyboard.press("Escape"); // what is pressed after it counts as alone
  await settings(p).waitFor({ state: "detached" });
  assert.equal(await p.page.evaluate(() => document.activeElement.ariaLabel), "Settings");
  await p.page.keyboard.press("d");
  await taken(["d", false], ["Escape", false], ["d", true]);
  await p.page.getByText("Denied by you").waitFor();
  await p.page.keyboard.press("?");
  const keys = p.page.getByRole("dialog", { name: "Keys" });
  await accessible(p, "the keys");
  await keys.getByRole("button", { name: "Close" }).click(); // as on a screen without a keyboard
  await keys.waitFor({ state: "detached" });
  assert.deepEqual(await p.complaints(), []);
});

test("the page can be installed as an app", { timeout: 2 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  await composer(p).waitFor();
  const cdp = await p.context.newCDPSession(p.page);
  const { errors, manifest, url } = await cdp.send("Page.getAppManifest");
  assert.deepEqual([url, errors], [`${server.url}/manifest.webmanifest`, []]);
  assert.deepEqual([manifest.display, manifest.startUrl], ["kStandalone", `${server.url}/`]);
  const { installabilityErrors } = await cdp.send("Page.getInstallabilityErrors");
  // Pages of a test are in a private window, which installs nothing.
  assert.deepEqual(installabilityErrors.filter((e) => e.errorId !== "in-incognito"), []);
  for (const { url: icon, sizes } of manifest.icons) {
    const size = await p.page.evaluate(async (src) => {
      const image = new Image();
      image.src = src;
      await image.decode();
      return `${image.naturalWidth}x${image.naturalHeight}`;
    }, icon);
    if (sizes !== "0x0") assert.equal(size, sizes, icon); // 0x0 is any
  }
  await p.page.evaluate(() => {
    const offer = new Event("beforeinstallprompt", { cancelable: true });
    offer.prompt = async () => {
      globalThis.prompted = true;
    };
    dispatchEvent(offer);
  });
  await button(p, "Settings").click();
  await settings(p).getByRole("button", { name: "Install Maestro" }).click();
  assert.equal(await p.page.evaluate(() => globalThis.prompted), true);
  assert.deepEqual(await p.complaints(), []);
});

for (const [where, options] of Object.entries({ desk: {}, phone })) {
  test(`a slash offers what the agent and the page offer, on a ${where}`, { timeout: 4 * patience }, async () => {
    await startServer(["--agent", `acp:node ${join(here, "agent.mjs")}`]);
    const p = await browser.open(await server.link(), options);
    const offered = p.page.getByRole("listbox", { name: "Commands of the agent and the page" });
    const names = () => offered.getByRole("option").locator("b").allInnerTexts();
    await composer(p).click();
    await p.page.keyboard.type("/re");
    await offered.getByRole("option", { name: "/review", selected: true }).waitFor();
    assert.deepEqual((await names()).slice(0, 2), ["/review", "/release-notes"]);
    await accessible(p, "the commands");
    if (where === "desk") {
      await p.page.keyboard.press("ArrowDown");
      await offered.getByRole("option", { name: "/release-notes", selected: true }).waitFor();
      await p.page.keyboard.press("Tab");
    } else await offered.getByRole("option", { name: "/release-notes" }).tap();
    assert.equal(await composer(p).inputValue(), "/release-notes ");
    assert.equal(await offered.count(), 0);
    await p.page.keyboard.type("of today");
    await button(p, "Send").click();
    await p.page.getByText("Got /release-notes of today").waitFor();

    const plan = p.page.locator(".plan");
    await plan.getByText("Plan, 1 of 3 done").click();
    await plan.getByText("Say").waitFor();
    assert.deepEqual(await plan.locator("li").allInnerTexts(), ["Read", "Think", "Say"]);
    await accessible(p, "the plan");
    if (where === "desk") await p.page.locator(".head").getByText("Plan only").waitFor();

    await composer(p).fill("/");
    await p.page.keyboard.type("sett");
    await offered.getByRole("option", { name: /^Settings/, selected: true }).waitFor();
    await p.page.keyboard.press("Enter");
    await settings(p).waitFor();
    assert.equal(await composer(p).inputValue(), "", "the word of an action is gone");
    await p.page.keyboard.press("Escape");
    await settings(p).waitFor({ state: "detached" });
    await composer(p).fill("");
    await p.page.keyboard.type("/co");
    await offered.waitFor();
    await p.page.keyboard.press("Escape");
    await offered.waitFor({ state: "detached" });
    assert.equal(await composer(p).inputValue(), "/co");
    await composer(p).fill("see /co");
    assert.equal(await offered.count(), 0, "only at the start");
    await button(p, "Stop").click();
    await plan.waitFor({ state: "detached" });
    assert.deepEqual(await p.complaints(), []);
  });
}

for (const [where, options] of Object.entries({ desk: {}, phone })) {
  test(`a newcomer answers a question after four actions, on a ${where}`, { timeout: 3 * patience }, async () => {
    await startServer(["--agent", "shell"]); // what serve does without flags
    let actions = 0;
    const act = async (what) => {
      actions++;
      await what;
    };
    const link = await server.link();
    const began = Date.now();
    actions++; // opens the link
    const p = await browser.open(link, options);
    await p.page.getByRole("heading", { name: "Write a command below" }).waitFor();
    await act(p.page.getByRole("list", { name: "Examples" }).getByRole("button").first().click());
    await act(button(p, "Send").click());
    await act(p.page.locator(".question button.primary:enabled", { hasText: "Allow" }).click());
    await p.page.locator(".prose", { hasText: "Exit code 0" }).waitFor();
    const seconds = (Date.now() - began) / 1000;
    assert.equal(actions, 4);
    assert.ok(seconds < 60, `it took ${seconds} s`);
    assert.deepEqual(await p.complaints(), []);
  });
}

test("a server without sessions has a field for the first prompt", { timeout: 3 * patience }, async () => {
  await startServer();
  const p = await browser.open(await server.link());
  await composer(p).waitFor();
  await p.page.getByRole("button", { name: "Actions for New session" }).click();
  await button(p, "Delete").click(); // the only one
  await p.page.getByRole("heading", { name: "What should the agent do?" }).waitFor();
  await p.page.reload();
  await p.page.getByRole("heading", { name: "What should the agent do?" }).waitFor();
  await accessible(p, "no sessions");
  await p.page.keyboard.type("Please fix the login test"); // the field has the focus
  await p.page.keyboard.press("Enter");
  await button(p, "Allow").waitFor();
  assert.deepEqual(await p.complaints(), []);
});

for (const [where, options] of Object.entries({ desk: {}, phone })) {
  test(`nothing moves while the page loads, on a ${where}`, { timeout: 3 * patience }, async () => {
    await startServer();
    const p = await browser.open(await server.link(), options);
    await ask(p);
    await p.page.addInitScript(() => {
      globalThis.shift = 0;
      new PerformanceObserver((list) => {
        for (const e of list.getEntries()) globalThis.shift += e.value;
      }).observe({ type: "layout-shift", buffered: true });
    });
    await p.page.reload();
    await button(p, "Allow").waitFor();
    await p.page.locator(".row .line").first().waitFor();
    const shift = await p.page.evaluate(
      () => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(globalThis.shift), 100))),
    );
    assert.ok(shift < 0.02, `the layout shifted by ${shift}`);
  });
}

test("the link of a question opens it although the inbox is cut", { timeout: 5 * patience }, async () => {
  await startServer();
  const most = 256;
  const pose = async () => {
    const made = await fetch(`${server.url}/api/headless/sessions`, {
      method: "POST",
      headers: server.headers(),
      body: JSON.stringify({ role: "controller" }),
    });
    const { session_id, state } = await made.json();
    const sent = await fetch(`${server.url}/api/headless/sessions/${session_id}/messages`, {
      method: "POST",
      headers: {
        ...server.headers(),
        "X-Maestro-Headless-Connection-Id": state.connections[0].connection_id,
        "X-Maestro-Headless-Connection-Token": made.headers.get("X-Maestro-Headless-Connection-Token"),
      },
      body: JSON.stringify({ type: "prompt", content: "lasting" }),
    });
    assert.equal(sent.status, 200, await sent.text());
    return session_id;
  };
  for (let i = 0; i < most; i += 32) await Promise.all(Array.from({ length: 32 }, pose));
  const listed = () => server.call("GET", "/api/headless/inbox");
  await until("a full inbox", async () => (await listed()).questions.length === most);
  const last = await pose();
  await until("a cut inbox", async () => (await listed()).truncated);
  const known = new Set((await listed()).questions.map((q) => q.session_id));
  assert.ok(!known.has(last));
  const { pending_requests } = (await server.call("GET", `/api/headless/sessions/${last}/state`)).state;
  const p = await browser.open(await server.link());
  await p.page.goto(`${server.url}/inbox?session=${last}&request=${pending_requests[0].id}`);
  const linked = p.page.getByRole("article", { name: "The question of this link" });
  await linked.getByText("make lint", { exact: true }).waitFor();
  await linked.getByRole("button", { name: "Deny" }).click();
  await p.page.getByText("The question of this link is answered.").waitFor();
  await p.page.goto(`${server.url}/inbox?session=${last}&request=none`);
  await p.page.getByText("The question of this link is not open any more.").waitFor();
  assert.deepEqual(await p.complaints(), []);
});
