import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { test } from "node:test";
import { newFold } from "../fold.ts";
import type { Event, Options, Session, Snapshot, State } from "../index.ts";
import { client, idle, network, page, serve, socket, texts, type Running } from "./harness.ts";

const numbers = (times: number, rate?: number) => ({ repeat: { times, rate, steps: [{ say: "{{n}} " }] } });
const script = {
  model: "m",
  provider: "p",
  prompts: [
    {
      match: "count",
      steps: [numbers(4000, 1500), { tool: { name: "t", args: {}, output: "out\n" } }, { say: "end" }],
    },
    {
      match: "bulk",
      steps: [
        { repeat: { times: 200, steps: [{ say: "x".repeat(60_000) }] } },
        { tool: { name: "t", args: {} } },
        { say: "end" },
      ],
    },
    {
      match: "all",
      steps: [
        { think: { text: "thinking a while", chunk: 3, delay_ms: 5 } },
        numbers(40, 400),
        { tool: { name: "bash", args: { command: "x" }, output: "line\n", gated: true } },
        { say: { text: "between", chunk: 2, delay_ms: 3 } },
        { end: true },
        {
          ask: {
            type: "user_input",
            tool: "ask_user",
            args: { questions: [] },
            reason: "r",
            timeout_ms: -1,
            on: { answered: [{ say: "ok" }] },
          },
        },
        { status: "busy" },
        { error: { message: "bad", type: "tool" } },
        { usage: { input_tokens: 1, output_tokens: 2 } },
      ],
    },
  ],
  default: [{ say: "hello" }],
};

/** follow records what a session gets from now on, and fails on a cursor that does not grow. */
function follow(s: Session) {
  const got = { from: s.cursor, events: [] as [number, Event][] };
  let last = 0;
  s.onEvent(({ cursor, event }) => {
    assert.ok(cursor > last, `cursor ${cursor} after ${last}`);
    last = cursor;
    got.events.push([cursor, event]);
  });
  return got;
}

/** stored returns all that the server has of a session, oldest first. */
async function stored(server: Running, id: string): Promise<[number, Event][]> {
  const c = client(server);
  const all: [number, Event][] = [];
  for (let before: number | null = 0; before !== null; ) {
    const page = await c.history(id, { before: before || undefined, limit: 1000, full: true });
    all.unshift(...(page.entries ?? []).map((e) => [e.cursor, e.message!] as [number, Event]));
    before = page.before;
  }
  return all;
}

/** answers joins the texts of each response. */
function answers(events: [number, Event][]): Map<string, string> {
  const texts = new Map<string, string>();
  for (const [, e] of events)
    if (e.type === "response_chunk") texts.set(e.response_id, (texts.get(e.response_id) ?? "") + e.content);
  return texts;
}

const others = (events: [number, Event][]) =>
  events.filter(([, e]) => !["response_chunk", "hello_ok", "connection_info"].includes(e.type));

test(
  "no event is lost or doubled while the socket and the server are killed at random",
  { timeout: 120_000 },
  async () => {
    const server = await serve(script, "--heartbeat-interval", "1s");
    const net = await network(server);
    const c = client({ url: net.url, token: server.token });
    const id = await c.create();
    const driver = c.attach(id, { role: "controller" });
    const watcher = client({ url: net.url, token: server.token }).attach(id);
    await Promise.all([driver.ready(), watcher.ready()]);
    const got = [driver, watcher].map(follow);
    for (let round = 0; round < 3; round++) {
      await driver.until(
        () =>
          driver.link.status === "online" &&
          driver.control.mine &&
          !driver.state.is_responding &&
          driver.state.is_ready,
      );
      await driver.prompt("count");
      for (let i = 0; i < 6; i++) {
        await sleep(30 + Math.random() * 200);
        net.cut();
      }
      if (round < 2) {
        await server.restart();
        await driver.until(() => driver.link.status === "online" && !driver.state.is_responding);
      } else await driver.until(() => texts(driver).at(-1) === "end" && !driver.state.is_responding);
    }
    const all = await stored(server, id);
    const end = all.at(-1)![0];
    await Promise.all([driver, watcher].map((s) => s.until(() => s.cursor >= end)));
    for (const g of got) {
      const want = all.filter(([cursor]) => cursor > g.from);
      assert.deepEqual([...answers(g.events)], [...answers(want)]);
      assert.deepEqual(others(g.events), others(want));
    }
    const fresh = client(server).attach(id, { turns: 100 });
    await fresh.ready();
    for (const s of [driver, watcher, fresh]) {
      while (s.transcript.more) await s.transcript.older();
      assert.deepEqual(texts(s), texts(fresh));
    }
    const tail = answers(all).get([...answers(all).keys()].at(-1)!)!;
    assert.ok((tail.startsWith("1 2 3 ") && tail.includes(" 4000 end")) || tail === "end", tail.slice(0, 50));
  },
);

test("the fold of all events equals a fresh snapshot at every cursor", { timeout: 60_000 }, async () => {
  const server = await serve(script);
  const c = client(server);
  const id = await c.create();
  const s = c.attach(id, { role: "controller" });
  await s.ready();
  const at = new Map<number, State>();
  const fold = newFold();
  const first = await peek(server, id);
  await s.until(() => s.cursor >= first.cursor);
  fold.restore(first);
  s.onEvent(({ cursor, event }) => {
    if (cursor <= first.cursor) return;
    fold.apply(event);
    at.set(cursor, fold.snapshot());
  });
  const peeks: Snapshot[] = [];
  let done = false;
  const looking = (async () => {
    while (!done) peeks.push(await peek(server, id));
  })();
  for (let i = 0; i < 3 || peeks.length < 40; i++) {
    await s.prompt("all");
    await s.until(() => s.state.pending_approvals.length > 0);
    await s.answer(s.state.pending_requests[0]!.id, { approved: i !== 1 });
    await s.until(() => s.state.pending_user_inputs.length > 0);
    await s.prompt("later", { when: "next" });
    await s.answer(s.state.pending_requests[0]!.id, { content: [{ type: "text", text: "a" }] });
    await s.until(() => texts(s).filter((t) => t === "hello").length > i && !s.state.is_responding);
  }
  done = true;
  await looking;
  await s.lease.release();
  const cursors = [...at.keys()].sort((a, b) => a - b);
  let compared = 0;
  for (const snap of peeks) {
    const cursor = cursors.findLast((k) => k <= snap.cursor);
    if (cursor === undefined || cursor === cursors.at(-1)) continue;
    assert.deepEqual(shared(at.get(cursor)!), shared(snap.state), `at cursor ${snap.cursor}`);
    compared++;
  }
  assert.ok(compared > 20, `${compared} snapshots of ${peeks.length} compared`);
});

/** shared leaves out what describes one connection, and who is connected: a snapshot shows its reader before an event. */
function shared(state: State): unknown {
  const {
    client_protocol_version,
    client_info,
    capabilities,
    opt_out_notifications,
    connection_role,
    connection_count,
    connections,
    subscriber_count,
    controller_subscription_id,
    ...rest
  } = JSON.parse(JSON.stringify(state)) as State;
  return rest;
}

/** peek attaches for the snapshot and leaves. */
function peek(server: Running, id: string): Promise<Snapshot> {
  const url = new URL(`/api/headless/sessions/${id}/ws`, server.url.replace("http", "ws"));
  return new Promise((resolve, reject) => {
    const ws = socket!(url, ["maestro-headless.2026-04-02"], server.token);
    ws.onopen = () => ws.send(JSON.stringify({ type: "hello", capabilities: { people: true } }));
    ws.onmessage = (e) => {
      const frame = JSON.parse(e.data);
      if (frame.type !== "snapshot") return;
      resolve(frame.snapshot);
      ws.send(JSON.stringify({ type: "ws.bye" }));
    };
    ws.onerror = reject;
  });
}

test("a dead socket is noticed by its silence, and at once when the page comes back", { timeout: 60_000 }, async () => {
  const server = await serve(script, "--heartbeat-interval", "1s");
  const net = await network(server);
  const p = page();
  const s = client({ url: net.url, token: server.token }, { around: p.around }).attach("main", { role: "controller" });
  await s.ready();
  const first = s.me!.connectionId;
  net.freeze();
  await s.until(() => s.link.status !== "online");
  net.cut();
  net.thaw();
  await s.until(() => s.link.status === "online");
  await s.prompt("hi");
  await s.until(() => texts(s).includes("hello"));
  assert.equal(s.me!.connectionId, first);

  // The server is away for longer than the first delays: an event of the page ends the wait.
  server.signal("SIGSTOP");
  net.cut();
  await s.until(() => s.link.status !== "online");
  server.signal("SIGCONT");
  for (const name of ["online", "pageshow"]) p.fire(name);
  await s.until(() => s.link.status === "online");
  p.around.document.dispatchEvent(new Event("visibilitychange"));
  await s.prompt("again");
  await s.until(() => texts(s).filter((t) => t === "hello").length === 2);
});

test("after a reset the state and the transcript are those of a fresh client", { timeout: 60_000 }, async () => {
  const server = await serve(script, "--retain-bytes", "65536", "--subscription-ttl", "1s");
  const net = await network(server);
  const c = client(server);
  const id = await c.create();
  const driver = c.attach(id, { role: "controller" });
  const watcher = client({ url: net.url, token: server.token }).attach(id);
  await Promise.all([driver.ready(), watcher.ready()]);
  const [all, missed] = [follow(driver), follow(watcher)];
  net.freeze();
  await driver.prompt("bulk");
  await driver.until(() => texts(driver).at(-1) === "end" && !driver.state.is_responding);
  net.cut();
  net.thaw();
  await watcher.until(
    () => watcher.link.status === "online" && watcher.cursor >= driver.cursor && !watcher.transcript.loading,
  );
  await idle(watcher);
  assert.ok(missed.events.length < all.events.length / 2, "the server has sent the state instead of the events");
  const fresh = client(server).attach(id);
  await fresh.ready();
  assert.deepEqual(texts(watcher), texts(fresh));
  assert.equal(texts(watcher).at(-1), "end");
  assert.deepEqual(shared(watcher.state), shared(driver.state));
});

test("the first page of the transcript comes although the connection is lost before it", async () => {
  const server = await serve(script);
  const c = client(server);
  const id = await c.create();
  const driver = c.attach(id, { role: "controller" });
  await driver.ready();
  await driver.prompt("hi");
  await driver.until(() => texts(driver).includes("hello") && !driver.state.is_responding);
  let sockets = 0;
  const cut: Options["socket"] = (...args) => {
    const ws = socket!(...args) as WebSocket;
    if (++sockets > 1) return ws;
    let lost = false;
    ws.addEventListener(
      "message",
      (e) => {
        if (lost) e.stopImmediatePropagation();
        lost ||= JSON.parse(e.data).type === "snapshot";
        if (lost)
          queueMicrotask(() =>
            ws.onclose?.(Object.assign(new Event("close"), { code: 1006, reason: "" }) as CloseEvent),
          );
      },
      true,
    );
    return ws;
  };
  const late = client(server, { socket: cut }).attach(id);
  await late.until(() => sockets === 2 && late.link.status === "online");
  await late.ready();
  assert.deepEqual(texts(late), ["> hi", "hello"]);
});

test("a page comes over the next connection, and the newest one after a closed link", { timeout: 60_000 }, async () => {
  const server = await serve(script, "--subscription-ttl", "1s");
  const net = await network(server);
  let token = server.token;
  const s = client({ url: net.url }, { token: () => token }).attach("main", { role: "controller" });
  await s.ready();
  await s.prompt("hi");
  await s.until(() => texts(s).includes("hello") && !s.state.is_responding);
  const first = s.me!.connectionId;
  net.freeze();
  const page = s.history({ limit: 1 });
  net.cut();
  const near = client(server);
  while ((await near.connections("main")).connections.length > 0) await sleep(50);
  net.thaw();
  assert.equal((await page).entries?.length, 1);
  assert.notEqual(s.me!.connectionId, first);

  await s.transcript.jump(s.cursor);
  net.freeze();
  const end = assert.rejects(s.transcript.toEnd());
  token = "wrong";
  net.cut();
  net.thaw();
  await end;
  assert.deepEqual([s.link.status, texts(s)], ["closed", []]);
  token = server.token;
  s.reconnect();
  await s.until(() => texts(s).length > 0);
  assert.deepEqual(texts(s), ["> hi", "hello"]);
});
