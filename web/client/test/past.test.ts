import assert from "node:assert/strict";
import { test } from "node:test";
import { newFold } from "../fold.ts";
import {
  Refusal,
  type HistoryEntry,
  type Item,
  type PageRequest,
  type Session,
  type Snapshot,
  type State,
} from "../index.ts";
import { newPast } from "../past.ts";
import { client, serve } from "./harness.ts";

const script = {
  model: "m",
  provider: "p",
  prompts: [
    {
      match: "work",
      steps: [
        { think: { text: "Where could it be? I look at the code.", chunk: 5 } },
        { say: { text: "I will look at the code first, and then run the tests.", chunk: 6 } },
        { tool: { name: "read", args: { path: "a.go" }, output: "package a\n" } },
        { tool: { name: "bash", args: { command: "go test" }, output: "ok\n", gated: true } },
        { say: { text: "All of them pass, as they should.", chunk: 4 } },
        {
          ask: {
            type: "user_input",
            tool: "ask_user",
            args: { questions: [{ header: "H", question: "Which?", options: [] }] },
            reason: "Which?",
            timeout_ms: -1,
            on: { answered: [{ say: "Thanks." }], failed: [] },
          },
        },
      ],
    },
    { match: "fails", steps: [{ say: "I try." }, { error: { message: "broken", type: "transient", end: true } }] },
    { match: "stream", steps: [{ repeat: { times: 200, rate: 100, steps: [{ say: "word {{n}} " }] } }] },
    { match: "long", steps: [{ repeat: { times: 2000, steps: [{ say: "word {{n}} " }] } }] },
  ],
  default: [{ say: "hello" }],
};
const server = await serve(script);

/** described are the fields that describe connections, which are not stored. */
const described = [
  "connections",
  "connection_count",
  "subscriber_count",
  "controller_connection_id",
  "controller_subscription_id",
  "client_protocol_version",
  "client_info",
  "capabilities",
  "opt_out_notifications",
  "connection_role",
];

function shown(state: Readonly<State>, items: readonly Item[]) {
  return {
    state: Object.fromEntries(
      Object.entries(JSON.parse(JSON.stringify(state)) as object)
        .filter(([key]) => !described.includes(key))
        .sort(([a], [b]) => (a < b ? -1 : 1)),
    ),
    items: structuredClone(items).map((item) => {
      const { key: _, cursor: _c, at: _a, version: _v, last: _l, ...rest } = item;
      for (const name of ["stopped", "startedAt", "endedAt", "open", "cuts"]) delete (rest as never)[name];
      return JSON.parse(JSON.stringify(rest)) as unknown;
    }),
  };
}

/** record keeps what a session shows after each event. */
function record(s: Session) {
  const moments = new Map<number, ReturnType<typeof shown>>();
  s.onEvent(({ cursor }) => moments.set(cursor, shown(s.state, s.transcript.items)));
  return moments;
}

async function attached() {
  const c = client(server);
  const s = c.attach(await c.create(), { role: "controller" });
  await s.ready();
  return { c, s, moments: record(s) };
}

test("every moment of the past is what a client saw then", async () => {
  const { c, s, moments } = await attached();
  const other = c.attach(s.id, { role: "controller", clientInfo: { name: "other" } });
  await other.ready();
  await s.prompt("work");
  await s.until(() => s.state.pending_requests.length > 0);
  await s.prompt("then say hello", { when: "next" });
  await s.answer(s.state.pending_requests[0]!.id, { approved: true });
  await s.until(() => s.state.pending_requests[0]?.kind === "user_input");
  await other.lease.take();
  await other.until(() => other.control.mine);
  await other.answer(other.state.pending_requests[0]!.id, { content: [{ type: "text", text: "this" }] });
  await s.until(() => s.transcript.items.some((i) => i.kind === "text" && i.text.includes("hello")));
  await s.until(() => !s.state.is_responding);
  await other.prompt("this fails");
  await s.until(() => s.transcript.items.some((i) => i.kind === "note" && i.event.type === "error"));
  await s.until(() => !s.state.is_responding);
  await other.prompt("stream");
  await s.until(() => (s.state.current_response?.text.length ?? 0) > 100);
  await other.interrupt();
  await s.until(() => !s.state.is_responding && s.state.last_error_type === "cancelled");

  const past = s.past();
  const same = async (cursor: number) => {
    while (past.transcript.more) await past.transcript.older();
    assert.equal(past.cursor, cursor);
    const got = shown(past.state!, past.transcript.items);
    assert.deepEqual(got.state, moments.get(cursor)!.state, `the state at ${cursor}`);
    assert.deepEqual(got.items, moments.get(cursor)!.items, `the conversation at ${cursor}`);
  };
  const cursors = [...moments.keys()].filter((cursor) => moments.get(cursor)!.items.length > 0);
  assert.ok(cursors.length > 60, `${cursors.length} moments`);
  for (const cursor of cursors) {
    await past.show(cursor); // forwards, which adds to the window
    await same(cursor);
  }
  for (const cursor of cursors.toReversed()) {
    await past.show(cursor); // backwards, which replaces it
    await same(cursor);
  }
});

test("a walk stops where things happen, both ways", async () => {
  const { s } = await attached();
  await s.prompt("work");
  await s.until(() => s.state.pending_requests.length > 0);
  const past = s.past();
  await past.show(1);
  const seen: string[] = [];
  const cursors: number[] = [];
  for (let last = -1; past.cursor !== last; await past.step(1)) {
    last = past.cursor;
    cursors.push(last);
    const item = past.transcript.items.at(-1);
    if (item?.kind === "text" || item?.kind === "thinking") seen.push(item.text);
  }
  assert.equal(past.cursor >= s.cursor - 2, true);
  assert.equal(seen[0], "Where could it be? I look at the code.", "a text is one step");
  assert.equal(past.state!.pending_requests.length, 1);
  const back: number[] = [];
  for (let last = -1; past.cursor !== last && past.cursor > cursors[2]!; await past.step(-1)) {
    last = past.cursor;
    back.push(last);
  }
  assert.ok(
    back.every((cursor) => cursors.includes(cursor)),
    `${back.join()} in ${cursors.join()}`,
  );
});

test("of many wishes only the last is read, and the session goes on meanwhile", async () => {
  const { s, moments } = await attached();
  await s.prompt("stream");
  await s.until(() => (s.state.current_response?.text.length ?? 0) > 50);
  const past = s.past();
  const middle = [...moments.keys()].at(-3)!;
  let told = 0;
  past.on(() => told++);
  await Promise.all([...Array(50).keys()].map((i) => past.show(i + 1)).concat(past.show(middle)));
  assert.equal(past.cursor, middle);
  assert.equal(
    past.state!.current_response!.text,
    (moments.get(middle)!.state.current_response as { text: string }).text,
  );
  assert.ok(told <= 6, `told ${told} times`);
  await s.until(() => !s.state.is_responding && s.transcript.items.at(-1)?.kind === "end");
  const text = s.transcript.items.find((i) => i.kind === "text");
  assert.equal(
    text?.kind === "text" && text.text,
    [...Array(200).keys()].map((i) => `word ${i + 1} `).join(""),
    "the live session has every word once",
  );
  assert.equal(past.cursor, middle, "the moment stays");
});

test("the next events are read in parts, up to the end", async () => {
  const { s } = await attached();
  await s.prompt("long");
  await s.until(() => !s.state.is_responding && s.transcript.items.at(-1)?.kind === "end");
  const past = s.past();
  await past.show(1);
  let words = "";
  for (let next = await past.ahead(); next.length > 0; next = await past.ahead()) {
    assert.ok(next.length <= 512);
    for (const e of next) if (e.message?.type === "response_chunk") words += e.message.content;
    await past.show(next.at(-1)!.cursor);
  }
  assert.equal(words, [...Array(2000).keys()].map((i) => `word ${i + 1} `).join(""));
});

/** stored is the past of a session with these events. The state at the cursor 3 cannot be read. */
function stored(all: HistoryEntry[]) {
  return newPast({
    schedule: queueMicrotask,
    async stateAt(cursor) {
      if (cursor === 3) throw new Refusal("network", "lost");
      return { cursor, state: newFold().snapshot() } as Snapshot;
    },
    async history({ before = Infinity, limit = 100, bytes = Infinity }: PageRequest) {
      const fitting = all.filter((e) => e.cursor < before).slice(-limit);
      while (fitting.length > 1 && JSON.stringify(fitting).length > bytes) fitting.shift();
      const first = fitting[0]?.cursor ?? 1;
      return { epoch: "e", entries: fitting, before: first > 1 ? first : null };
    },
  });
}

test("a moment that is wished while another one ends or fails is shown", async () => {
  const past = stored([]);
  let next: Promise<void> | undefined;
  past.on(() => {
    next ??= past.show(2);
  });
  await past.show(1);
  await next;
  assert.equal(past.cursor, 2);
  await Promise.all([past.show(3), past.show(4)]);
  assert.equal(past.cursor, 4);
  await assert.rejects(past.show(3), (err) => (err as Refusal).code === "network");
});

test("long events do not end what is read ahead", async () => {
  const content = "x".repeat(300 << 10);
  const message = { type: "response_chunk", response_id: "r", content, is_thinking: false } as const;
  const past = stored([1, 2, 3].map((cursor) => ({ cursor, at: "2026-05-03T10:59:30Z", message })));
  await past.show(1);
  assert.deepEqual((await past.ahead()).map((e) => e.cursor), [2]);
});
