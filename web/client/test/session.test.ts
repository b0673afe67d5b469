import assert from "node:assert/strict";
import { test } from "node:test";
import type { Options, Refusal } from "../index.ts";
import { client, idle, page, serve, socket, texts } from "./harness.ts";

const script = {
  model: "m",
  provider: "p",
  prompts: [
    {
      match: "run",
      steps: [
        { say: "I will run it." },
        { tool: { name: "bash", args: { command: "rm \u202e-rf x" }, output: "done\n", gated: true } },
        { say: "It ran." },
        { usage: { input_tokens: 7, output_tokens: 3 } },
      ],
    },
    { match: "slow", steps: [{ say: { text: "one two three four five six", chunk: 4, delay_ms: 40 } }] },
    { match: "wait", steps: [{ delay_ms: 60000 }] },
    {
      match: "ask",
      steps: [
        {
          ask: {
            type: "user_input",
            tool: "ask_user",
            args: { questions: [] },
            reason: "why",
            timeout_ms: -1,
            on: { answered: [{ say: "thanks" }] },
          },
        },
      ],
    },
  ],
  default: [{ think: "hm" }, { say: "hello" }],
};

const server = await serve(script);
const refusal = (code: string) => (err: unknown) => (err as Refusal).code === code;

test("a prompt becomes a conversation that everybody sees, with its author", async () => {
  const c = client(server);
  const id = await c.create();
  const driver = c.attach(id, { role: "controller", displayName: "Ann" });
  const watcher = client(server).attach(id);
  await Promise.all([driver.ready(), watcher.ready()]);
  assert.equal(driver.control.mine, true);
  assert.equal(watcher.control.mine, false);
  await driver.prompt("hi");
  await Promise.all([driver, watcher].map((s) => s.until(() => texts(s).length === 2 && !s.state.is_responding)));
  for (const s of [driver, watcher]) {
    assert.deepEqual(texts(s), ["> hi", "hello"]);
    assert.deepEqual(
      s.transcript.items.filter((i) => i.kind !== "note").map((i) => i.kind),
      ["prompt", "thinking", "text", "end"],
    );
    const prompt = s.transcript.items.find((i) => i.kind === "prompt");
    assert.equal(prompt?.kind === "prompt" && prompt.prompt.author.claimed_name, "Ann");
  }
  await assert.rejects(watcher.prompt("no"), refusal("access_denied"));
});

test("changes are announced once for many events, and say what changed", async () => {
  const c = client(server, { schedule: (run) => setTimeout(run, 100) });
  const s = c.attach(await c.create(), { role: "controller" });
  await s.ready();
  let announcements = 0;
  let events = 0;
  const fields = new Set<string>();
  s.onEvent(() => events++);
  s.on((changes) => {
    announcements++;
    changes.state.forEach((f) => fields.add(f));
    for (const item of changes.items) assert.ok(s.transcript.items.includes(item), "an item is in the transcript");
  });
  await s.prompt("slow");
  await idle(s);
  assert.ok(events >= 9, `${events} events`);
  assert.ok(announcements < events, `${announcements} announcements of ${events} events`);
  assert.ok(fields.has("current_response") && fields.has("is_responding"));
  assert.ok(!fields.has("active_file_watches"));
});

test("an approval shows what runs, is answered with its digest, and names who answered", async () => {
  const c = client(server);
  const id = await c.create();
  const driver = c.attach(id, { role: "controller" });
  const approver = client(server).attach(id, { role: "approver", displayName: "Bea" });
  await Promise.all([driver.ready(), approver.ready()]);
  await driver.prompt("run it");
  await approver.until(() => approver.state.people?.requests.length === 1);
  const open = approver.question(approver.state.pending_requests[0]!.id)!;
  assert.equal(open.shown?.escaped, true);
  assert.match(open.shown!.display, /\\u202e/);
  await assert.rejects(
    approver.answer({ request_id: open.id, digest: "sha256:" + "0".repeat(64) }, { approved: true }),
    refusal("digest_mismatch"),
  );
  await approver.answer({ request_id: open.id, digest: open.shown!.digest }, { approved: true, reason: "fine" });
  await assert.rejects(
    driver.answer(open.id, { approved: false }).then(() => driver.answer(open.id, { approved: false })),
    refusal("request_not_found"),
  );
  await driver.until(() => !driver.state.is_responding && texts(driver).includes("It ran."));
  const question = driver.transcript.items.find((i) => i.kind === "question");
  assert.ok(question?.kind === "question");
  assert.equal(question.resolved?.resolution, "approved");
  assert.equal(question.answer?.author.claimed_name, "Bea");
  const tool = driver.transcript.items.find((i) => i.kind === "tool");
  assert.ok(tool?.kind === "tool");
  assert.equal(tool.output, "done\n");
  assert.equal(tool.end?.success, true);
});

test("user input is answered with content", async () => {
  const c = client(server);
  const s = c.attach(await c.create(), { role: "controller" });
  await s.ready();
  await s.prompt("ask");
  await s.until(() => s.state.pending_user_inputs.length === 1);
  await s.answer(s.state.pending_requests[0]!.id, { content: [{ type: "text", text: "yes" }] });
  await s.until(() => texts(s).includes("thanks"));
});

test("control is asked for, denied, granted, taken and released", async () => {
  const c = client(server);
  const id = await c.create();
  const ann = c.attach(id, { role: "controller", clientInfo: { name: "ann" } });
  const bob = client(server).attach(id, { role: "controller", clientInfo: { name: "bob" } });
  await ann.ready();
  await bob.ready();
  await ann.until(() => ann.control.mine || bob.control.mine);
  const [holder, other] = ann.control.mine ? [ann, bob] : [bob, ann];
  await assert.rejects(other.prompt("hi"), refusal("controller_lease_held"));
  await other.lease.ask("please");
  assert.equal(other.control.asked, true);
  await holder.until(() => holder.control.asking.length === 1);
  assert.equal(holder.control.asking[0]?.reason, "please");
  await holder.lease.deny(other.me!.connectionId, "not now");
  assert.equal(holder.control.asking.length, 0);
  await other.until(() => !other.control.asked);
  assert.deepEqual([other.control.last?.reason, other.control.last?.message], ["denied", "not now"]);
  await other.lease.ask();
  await holder.until(() => holder.control.asking.length === 1);
  await holder.lease.grant(other.me!.connectionId);
  await other.until(() => other.control.mine);
  await holder.until(() => !holder.control.mine && holder.control.holder === other.me!.connectionId);
  await holder.lease.take();
  await holder.until(() => holder.control.mine);
  await other.until(() => other.control.last?.reason === "taken_over");
  await holder.lease.release();
  await other.until(() => other.control.holder === null);
  assert.equal(holder.control.mine, false);
});

test("a request for control ends with the connection that asked", async () => {
  const c = client(server);
  const id = await c.create();
  const ann = c.attach(id, { role: "controller" });
  await ann.ready();
  for (const kept of [true, false]) {
    const bob = client(server).attach(id, { role: "controller" });
    await bob.ready();
    const { connectionId } = bob.me!;
    await bob.lease.ask();
    await ann.until(() => ann.control.asking.length === 1);
    bob.close(kept);
    if (kept) {
      const listed = () => ann.state.connections.find((c) => c.connection_id === connectionId);
      await ann.until(() => listed()?.attached_subscription_count === 0);
      await assert.rejects(ann.lease.deny(connectionId), refusal("request_not_found"));
      assert.equal(ann.control.asking.length, 0);
    }
    await ann.until(() => ann.control.asking.length === 0);
  }
});

test("a page that is loaded again keeps control", async () => {
  const first = page();
  const c = client(server);
  const id = await c.create();
  let ended: Promise<Event> | undefined;
  const watched: Options["socket"] = (...args) => {
    const made = socket!(...args) as WebSocket;
    ended ??= new Promise((resolve) => made.addEventListener("close", resolve));
    return made;
  };
  const before = client(server, { around: first.around, socket: watched }).attach(id, { role: "controller" });
  await before.ready();
  assert.equal(before.control.mine, true);
  first.fire("pagehide");
  await ended; // the server has read that the page leaves
  const after = client(server).attach(id, { role: "controller" });
  await after.ready();
  assert.equal(after.control.mine, true);
  await before.until(() => before.link.status === "waiting");
  first.fire("online"); // the page after it has its place
  assert.equal(before.link.status, "waiting");
  first.fire("pageshow"); // the browser kept the page, and shows it again
  await before.until(() => before.link.status === "online");
  await before.until(() => !before.control.mine && before.control.holder === after.me!.connectionId);
});

test("prompts wait in a queue that is edited, ordered and cancelled", async () => {
  const c = client(server);
  const s = c.attach(await c.create(), { role: "controller" });
  await s.ready();
  await s.prompt("wait");
  await s.until(() => s.state.is_responding);
  await assert.rejects(s.prompt("now"), refusal("runtime_busy"));
  for (const text of ["a", "b", "c"]) await s.prompt(text, { when: "next" });
  await s.until(() => s.state.people?.queue?.length === 3);
  const [a, b, d] = s.state.people!.queue!.map((p) => p.prompt_id) as [string, string, string];
  await s.queue.edit(a, "a2");
  await s.queue.move(d, a);
  await s.queue.cancel(b);
  await s.until(() => s.state.people?.queue?.map((p) => p.content).join() === "c,a2");
  await s.interrupt();
  await s.until(() => s.state.people?.queue_held === true);
  await s.queue.resume();
  await s.until(() => texts(s).filter((t) => t === "hello").length === 2);
  assert.deepEqual(
    texts(s).filter((t) => t.startsWith(">")),
    ["> wait", "> c", "> a2"],
  );
  assert.equal(s.state.people?.queue, undefined);
});

test("a wait fails with the error of its condition", async () => {
  const s = client(server).attach("main");
  await s.ready();
  let looks = 0;
  const wait = s.until(() => {
    if (looks++ > 0) throw new TypeError("not there");
    return false;
  });
  s.close();
  await assert.rejects(wait, TypeError);
});

test("a message that is too long is refused and the connection goes on", async () => {
  const c = client(server);
  const s = c.attach(await c.create(), { role: "controller" });
  await s.ready();
  await assert.rejects(s.prompt("é".repeat(600_000)), refusal("payload_too_large"));
  await s.prompt("hi");
  await s.until(() => texts(s).includes("hello"));
});

test("a session that is not there, or a wrong token, ends the link with the reason", async () => {
  const missing = client(server).attach("nobody");
  await assert.rejects(missing.ready(), refusal("stale_session"));
  assert.equal(missing.link.status, "closed");
  const stranger = client({ url: server.url, token: "wrong" }).attach("main");
  await assert.rejects(stranger.ready(), refusal("unauthenticated"));
  await assert.rejects(client({ url: server.url, token: "wrong" }).overview(), refusal("unauthenticated"));
});

test("a refused credential is renewed once for all, and then everything goes on", async () => {
  let token = "wrong";
  let logins = 0;
  const c = client(server, {
    token: () => token,
    login: async () => {
      logins++;
      token = server.token;
    },
  });
  const s = c.attach("main");
  const [overview] = await Promise.all([c.overview(), c.inbox(), s.ready()]);
  assert.ok(overview.sessions.length > 0);
  assert.equal(logins, 1);
});

test("a share lets its holder in until it is revoked", async () => {
  const c = client(server);
  const id = await c.create();
  const share = await c.share(id, { role: "viewer", label: "wall" });
  const guest = client({ url: server.url, token: share.token });
  const { name, role, session_id } = await guest.whoAmI();
  assert.deepEqual([name, role, session_id], ["wall", "viewer", id]);
  const s = guest.attach(id);
  await s.ready();
  assert.equal((await c.shares(id)).shares[0]?.label, "wall");
  assert.ok((await c.connections(id)).connections.some((c) => c.author.name === "wall"));
  await c.revoke(id, share.share_id);
  await s.until(() => s.link.status === "closed").catch(() => {});
  assert.equal(s.link.status === "closed" && s.link.why.code, "unauthenticated");
});

test("a session goes on with a new credential when the old one has ended", async () => {
  const owner = client(server);
  const id = await owner.create();
  const first = await owner.share(id);
  let { token } = first;
  const login = async () => {
    token = (await owner.share(id)).token;
  };
  const s = client({ url: server.url }, { token: () => token, login }).attach(id);
  await s.ready();
  const statuses = new Set<string>();
  s.on(() => statuses.add(s.link.status));
  await owner.revoke(id, first.share_id);
  await s.until(() => statuses.has("login") && s.link.status === "online");
  const driver = owner.attach(id, { role: "controller" });
  await driver.ready();
  await driver.prompt("hi");
  await s.until(() => texts(s).includes("hello"));
});

test("several vote, each once, and everybody sees who", async () => {
  const strict = await serve(script, "--approvals", "2", "--require-digest");
  const owner = client(strict);
  const id = await owner.create();
  const { token } = await owner.share(id, { role: "approver", label: "bea" });
  const bea = client({ url: strict.url, token }).attach(id, { role: "approver" });
  const driver = owner.attach(id, { role: "controller" });
  await Promise.all([bea.ready(), driver.ready()]);
  await driver.prompt("run it");
  await bea.until(() => bea.state.people?.requests[0]?.votes_needed === 2);
  const question = bea.state.pending_requests[0]!.id;
  await driver.until(() => driver.question(question) !== undefined);
  await driver.answer(question, { approved: true });
  await assert.rejects(driver.answer(question, { approved: true }), refusal("already_voted"));
  await bea.until(() => bea.question(question)?.votes.length === 1);
  assert.equal(bea.question(question)?.votes[0]?.name, "owner");
  await bea.answer(question, { approved: true });
  await driver.until(() => texts(driver).includes("It ran."));
  const item = driver.transcript.items.find((i) => i.kind === "question");
  assert.deepEqual(item?.kind === "question" && item.votes.map((v) => v.author.name), ["owner", "bea"]);
});

test("a ticket becomes a cookie", async () => {
  const seen: string[] = [];
  const c = client(server, {
    fetch: async (...args) => {
      const res = await fetch(...args);
      seen.push(res.headers.get("Set-Cookie") ?? "");
      return res;
    },
  });
  await c.login({ token: server.token });
  assert.match(seen.join(), /maestro_session_\d+=.*HttpOnly/);
  await c.logout();
});

test("a session is made although the connection is lost right after it", async () => {
  const c = client(server, {
    fetch: (url, init) =>
      String(url).endsWith("/disconnect") ? Promise.reject(new TypeError("lost")) : fetch(url, init),
  });
  const id = await c.create();
  assert.ok((await c.overview()).sessions.some((s) => s.session_id === id));
});

test("a page that came without TLS makes sessions", async (t) => {
  t.mock.method(crypto, "randomUUID", () => assert.fail("browsers leave it out there"));
  const c = client(server);
  assert.notEqual(await c.create(), await c.create());
});
