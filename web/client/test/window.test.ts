import assert from "node:assert/strict";
import { test } from "node:test";
import { newFold } from "../fold.ts";
import type { Author, Event, HistoryPage, Item, RequestType, Snapshot, State } from "../index.ts";
import { bytes, head, tail } from "../texts.ts";
import { newTranscript } from "../transcript.ts";

/** random returns numbers that are the same in each run. */
function random(seed: number) {
  return (below: number) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
}

const ann: Author = { principal: "p", name: "ann" };

/** history makes a conversation: texts, tools that overlap, questions; calls end before the next prompt. */
function history(rnd: (below: number) => number, length: number): Event[] {
  const events: Event[] = [];
  let n = 0;
  let open: string | undefined;
  let tools: string[] = [];
  let questions: string[] = [];
  let commands: string[] = [];
  const exit = (command_id: string) =>
    events.push({ type: "utility_command_exited", command_id, success: true, exit_code: 0, signal: null });
  const end = (call_id: string) => events.push({ type: "tool_end", call_id, success: true });
  const resolve = (request_id: string) =>
    events.push({
      type: "server_request_resolved",
      request_id,
      request_type: "approval",
      call_id: request_id,
      resolution: "approved",
      resolved_by: "user",
      author: ann,
      timestamp: "2026-05-03T10:59:30.250Z",
    });
  const close = () => {
    tools.forEach(end);
    questions.forEach(resolve);
    commands.forEach(exit);
    [tools, questions, commands] = [[], [], []];
    if (open)
      events.push({
        type: "response_end",
        response_id: open,
        duration_ms: 1,
        usage: {} as never,
        tools_summary: {} as never,
      });
    open = undefined;
  };
  while (events.length < length) {
    switch (rnd(13)) {
      case 0:
        close();
        events.push({
          type: "prompt_accepted",
          prompt_id: `p${++n}`,
          content: "do",
          author: ann,
          timestamp: "2026-05-03T10:59:30.250Z",
        });
        break;
      case 1:
        if (open) break;
        events.push({ type: "response_start", response_id: (open = `r${++n}`) });
        break;
      case 2:
        tools.push(`c${rnd(5) === 0 && !tools.includes(`c${n}`) ? n : ++n}`); // sometimes an id again
        events.push(
          { type: "tool_call", call_id: tools.at(-1)!, tool: "t", args: { n }, requires_approval: false },
          { type: "tool_start", call_id: tools.at(-1)! },
        );
        break;
      case 3:
        if (tools.length > 0 && rnd(3) === 0) {
          // A question about a call that runs announces the call again.
          events.push({
            type: "tool_call",
            call_id: tools[0]!,
            tool: "t",
            args: { again: ++n },
            requires_approval: true,
          });
          break;
        }
        if (tools.length > 0) end(tools.shift()!);
        break;
      case 4:
        questions.push(`q${++n}`);
        events.push(
          { type: "request_shown", request_id: `q${n}`, digest: "sha256:", display: "t {}" },
          {
            type: "server_request",
            request_id: `q${n}`,
            request_type: "approval",
            call_id: `q${n}`,
            tool: "t",
            args: {},
            reason: "",
          },
        );
        break;
      case 5:
        if (questions.length > 0) resolve(questions.shift()!);
        break;
      case 6:
      case 7:
        if (tools.length > 0)
          events.push({ type: "tool_output", call_id: tools[rnd(tools.length)]!, content: `${++n} ` });
        break;
      case 9:
        if (commands.length > 0 && rnd(2) === 0) exit(commands.shift()!);
        else if (commands.length > 0) {
          const command_id = commands[rnd(commands.length)]!;
          events.push({ type: "utility_command_output", command_id, stream: "stdout", content: `${++n} ` });
        } else {
          commands.push(`u${++n}`);
          const [shell_mode, terminal_mode] = ["shell", "pipe"] as const;
          events.push({ type: "utility_command_started", command_id: `u${n}`, command: "x", shell_mode, terminal_mode });
        }
        break;
      case 8:
        events.push({ type: "status", message: `s${++n}` });
        break;
      default:
        if (open)
          events.push({ type: "response_chunk", response_id: open, content: `${++n} `, is_thinking: rnd(4) === 0 });
    }
  }
  close();
  return events;
}

/** plain returns what a transcript shows, without keys and versions. */
function plain(items: readonly Item[]) {
  const unseen = new Set(["key", "version", "at", "startedAt", "endedAt"]);
  return items.map((i) => JSON.parse(JSON.stringify(i, (key, value) => (unseen.has(key) ? undefined : value))));
}

function transcriptOf(pages: (before: number) => HistoryPage, cursor = () => 0, state = newFold().state) {
  return newTranscript({
    fetch: async (r) => pages(r.before ?? 0),
    touched() {},
    listed() {},
    cursor,
    state,
    turns: 1,
  });
}

test("a window that is read in pages equals one that saw all events", async () => {
  for (let seed = 1; seed <= 150; seed++) {
    const rnd = random(seed);
    const events = history(rnd, 10 + rnd(120));
    const whole = transcriptOf(() => ({ epoch: "e", before: null }));
    events.forEach((e, i) => whole.apply(i + 1, e));
    const live = rnd(events.length + 1); // events before it are history
    const fold = newFold();
    events.slice(0, live).forEach(fold.apply);
    const paged = transcriptOf(
      (before) => {
        const end = before - 1;
        const begin = Math.max(0, end - 1 - rnd(20));
        const entries = events
          .slice(begin, end)
          .map((message, i) => ({ cursor: begin + i + 1, at: "2026-05-03T10:59:30.250Z", message }));
        return { epoch: "e", entries, before: begin > 0 ? begin + 1 : null };
      },
      () => live,
      fold.state,
    );
    paged.reset(false);
    await paged.load();
    for (let i = live; i < events.length; i++) {
      fold.apply(events[i]!);
      paged.apply(i + 1, events[i]!);
      if (rnd(10) === 0) await paged.older();
    }
    while (paged.more) await paged.older();
    assert.deepEqual(plain(paged.items), plain(whole.items), `seed ${seed}`);
    assert.equal(new Set(paged.items.map((i) => i.key)).size, paged.items.length);
  }
});

test("a window has a bound, and what it drops can be read again", async () => {
  const events = history(random(7), 30_000);
  const at = "2026-05-03T10:59:30.250Z";
  const pages = (before: number): HistoryPage => {
    const begin = Math.max(0, before - 1 - 200);
    return {
      epoch: "e",
      before: begin > 0 ? begin + 1 : null,
      entries: events.slice(begin, before - 1).map((message, i) => ({ cursor: begin + i + 1, at, message })),
    };
  };
  const t = transcriptOf(pages, () => events.length);
  let most = 0;
  events.forEach((e, i) => {
    t.apply(i + 1, e);
    most = Math.max(most, t.items.length);
  });
  assert.ok(most <= 10_001 && t.more, `${most} items`);
  const whole = newWhole(events);
  assert.deepEqual(plain(t.items), plain(whole.slice(whole.findIndex((i) => i.cursor === t.items[0]!.cursor))));
  while (t.more) await t.older();
  assert.equal(t.live, false);
  assert.ok(t.items.length <= 10_000, `${t.items.length} items`);
  assert.deepEqual(plain(t.items), plain(whole.slice(0, t.items.length)));
  t.apply(events.length + 1, { type: "status", message: "unseen" });
  await t.toEnd();
  assert.equal(t.live, true);
  assert.deepEqual(plain(t.items.slice(-20)), plain(whole.slice(-20)));
  await t.jump(5000);
  assert.ok(!t.live && t.items.at(-1)!.cursor < 5000);
});

test("a page that comes after its place was dropped leaves no hole", async () => {
  let answer = (_: HistoryPage) => {};
  const t = newTranscript({
    fetch: () => new Promise((done) => (answer = done)),
    touched() {},
    listed() {},
    cursor: () => 100,
    state: newFold().state,
    turns: 1,
  });
  const load = t.load();
  answer({ epoch: "e", before: 100, entries: [] });
  await load;
  const older = t.older();
  for (let i = 101; i <= 10_200; i++) t.apply(i, { type: "status", message: "s" });
  const [first] = t.items;
  assert.ok(first!.cursor > 101);
  const at = "2026-05-03T10:59:30.250Z";
  answer({ epoch: "e", before: 99, entries: [{ cursor: 99, at, message: { type: "status", message: "s" } }] });
  await older;
  assert.equal(t.items[0], first);
  assert.ok(t.more && !t.loading);
});

test("a call is whole although its window lost a later one with the same id", async () => {
  const at = "2026-05-03T10:59:30.250Z";
  const begin: Event = { type: "tool_call", call_id: "c", tool: "t", args: {}, requires_approval: false };
  const end: Event = { type: "tool_end", call_id: "c", success: true };
  const status: Event = { type: "status", message: "s" };
  const t = transcriptOf(
    (before) => {
      const first = Math.max(1, before - 40);
      const entries = Array.from({ length: before - first }, (_, i) => ({
        cursor: first + i,
        at,
        message: first + i === 1 ? begin : status,
      }));
      return { epoch: "e", entries, before: first > 1 ? first : null };
    },
    () => 100,
  );
  await t.load();
  t.apply(101, end);
  for (let i = 102; i < 10_050; i++) t.apply(i, status);
  t.apply(10_050, begin);
  t.apply(10_051, end);
  assert.ok(t.live && t.items.length <= 10_000, `${t.items.length} items`);
  while (t.more) await t.older();
  const calls = t.items.filter((i) => i.kind === "tool");
  assert.deepEqual(
    calls.map((i) => [i.cursor, i.last]),
    [[1, 101]],
  );
});

test("what ended after a window that is not live does not run in it", async () => {
  const call = { tool: "t", args: {}, requires_approval: false };
  const begin = (id: string): Event => ({ type: "tool_call", call_id: id, ...call });
  const end = (id: string): Event => ({ type: "tool_end", call_id: id, success: true });
  const events = [begin("over"), begin("runs"), end("over")];
  const fold = newFold();
  const at = "2026-05-03T10:59:30.250Z";
  const entries = events.map((message, i) => ({ cursor: i + 1, at, message }));
  const pages = (before: number) => ({ epoch: "e", before: null, entries: entries.slice(0, before - 1) });
  const t = transcriptOf(pages, undefined, fold.state);
  events.forEach(fold.apply);
  await t.jump(3);
  const marks = () => t.items.map((i) => i.kind === "tool" && [i.id, i.endedLater ?? false, i.stopped ?? false]);
  assert.deepEqual(marks(), [["over", true, false], ["runs", false, false]]);
  fold.apply(end("runs"));
  t.apply(4, end("runs"));
  assert.deepEqual(marks(), [["over", true, false], ["runs", true, false]]);
});

test("a window counts each text once, and those of notes too", () => {
  const t = transcriptOf(() => ({ epoch: "e", before: null }));
  const args = { text: "x".repeat(64 << 10) };
  for (let i = 1; i < 900; i += 3) {
    const call = { type: "tool_call", call_id: `c${i}`, tool: "t", args, requires_approval: true } as const;
    t.apply(i, call);
    t.apply(i + 1, call); // as when a question is asked about it
    t.apply(i + 2, { type: "tool_end", call_id: `c${i}`, success: true });
  }
  assert.ok(t.items.length > 150, `${t.items.length} calls`);
  for (let i = 900; i < 1500; i++) t.apply(i, { type: "status", message: args.text });
  assert.ok(t.items.length > 150 && t.items.length < 300, `${t.items.length} notes`);
});

test("a window is bounded even if it has no place for a cut", () => {
  const t = transcriptOf(() => ({ epoch: "e", before: null }));
  t.apply(1, { type: "tool_call", call_id: "c", tool: "t", args: {}, requires_approval: false });
  let most = 0;
  for (let i = 2; i < 60_000; i += 2) {
    t.apply(i, { type: "tool_output", call_id: "c", content: "x".repeat(100) });
    t.apply(i + 1, { type: "status", message: "s" });
    most = Math.max(most, t.items.length);
  }
  assert.ok(most <= 20_001, `${most} items`);
  const s = transcriptOf(() => ({ epoch: "e", before: null }));
  const content = "y".repeat(1 << 16);
  for (let i = 1; i < 1000; i++) s.apply(i, { type: "response_chunk", response_id: "r", content, is_thinking: false });
  const size = s.items.reduce((sum, i) => sum + (i.kind === "text" ? i.text.length : 0), 0);
  assert.ok(size <= 34 << 20 && s.items.every((i) => i.kind === "text" && i.text.length <= (1 << 20) + content.length));
});

/** newWhole folds all events without a bound, in pages of which none is full. */
function newWhole(events: Event[]): Item[] {
  const all: Item[] = [];
  let begin = 0;
  events.forEach((e, i) => {
    if (i < events.length - 1 && !(events[i + 1]!.type === "prompt_accepted" && i - begin > 2000)) return;
    const part = transcriptOf(() => ({ epoch: "e", before: null }));
    for (let k = begin; k <= i; k++) part.apply(k + 1, events[k]!);
    all.push(...part.items);
    begin = i + 1;
  });
  return all;
}

test("a snapshot and the events after it give the same state as all events", () => {
  const kinds: RequestType[] = ["approval", "client_tool", "mcp_elicitation", "user_input", "tool_retry"];
  for (let seed = 1; seed <= 60; seed++) {
    const rnd = random(seed);
    const id = () => `c${rnd(3)}`;
    const pick = <T>(list: T[]) => list[rnd(list.length)]!;
    const draw = (): Event =>
      pick<() => Event>([
        () => pick(history(rnd, 30).filter((e) => e.type !== "request_shown")), // comes right before its question
        () => ({ type: "response_start", response_id: id() }),
        () => ({
          type: "response_chunk",
          response_id: id(),
          content: "é😀x".repeat(rnd(3000)),
          is_thinking: rnd(2) === 0,
        }),
        () => ({ type: "tool_call", call_id: id(), tool: "t", args: {}, requires_approval: rnd(2) === 0 }),
        () => ({ type: "tool_start", call_id: id() }),
        () => ({ type: "tool_output", call_id: id(), content: "é😀\n".repeat(rnd(20_000)) }),
        () => ({ type: "tool_end", call_id: id(), success: true }),
        () => ({
          type: "server_request",
          request_id: id(),
          request_type: pick(kinds),
          call_id: id(),
          tool: "t",
          args: {},
          reason: "r",
        }),
        () => ({
          type: "server_request_resolved",
          request_id: id(),
          request_type: pick(kinds),
          call_id: id(),
          resolution: pick(["approved", "denied", "answered", "cancelled"]),
          resolved_by: "user",
        }),
        () => ({ type: "queue_changed", prompts: [], held: rnd(2) === 0 }),
        () => ({
          type: "connection_info",
          connection_id: id(),
          role: pick([undefined, "viewer", "controller"]),
          controller_connection_id: pick([null, "c1"]),
          connection_count: 3,
        }),
        () => ({
          type: "utility_command_started",
          command_id: id(),
          command: "x",
          shell_mode: "shell",
          terminal_mode: "pipe",
        }),
        () => ({
          type: "utility_command_output",
          command_id: id(),
          stream: "stdout",
          content: "y".repeat(rnd(50_000)),
        }),
        () => ({ type: "utility_command_exited", command_id: id(), success: true, exit_code: 0, signal: null }),
        () => ({ type: "utility_file_watch_started", watch_id: id(), root_dir: "/", debounce_ms: 1 }),
        () => ({ type: "ready", protocol_version: "v", model: "m", provider: "p", session_id: "s" }),
        () => ({ type: "error", message: "e", fatal: false, error_type: "tool" }),
      ])();
    const all = newFold();
    let other = newFold();
    const touched = new Set<keyof State>();
    const watched = newFold((f) => touched.add(f));
    for (let i = 0; i < 60; i++) {
      const e = draw();
      const before = watched.snapshot();
      touched.clear();
      for (const f of [all, other, watched]) f.apply(structuredClone(e));
      const after = watched.snapshot();
      for (const key of Object.keys({ ...before, ...after }) as (keyof State)[]) {
        if (!touched.has(key))
          assert.deepEqual(after[key], before[key], `seed ${seed}: ${key} changed by ${e.type} without a word`);
      }
      if (rnd(10) === 0) {
        const next = newFold();
        next.restore(
          JSON.parse(
            JSON.stringify({
              protocolVersion: "",
              session_id: "",
              cursor: 1,
              last_init: null,
              state: other.snapshot(),
            }),
          ) as Snapshot,
        );
        other = next;
      }
    }
    assert.deepEqual(
      JSON.parse(JSON.stringify(other.snapshot())),
      JSON.parse(JSON.stringify(all.snapshot())),
      `seed ${seed}`,
    );
  }
});

test("texts are cut by code points and bytes", () => {
  const text = "aé€😀".repeat(20);
  for (let limit = 0; limit < 100; limit++) {
    const h = head(text, limit);
    assert.ok(text.startsWith(h) && bytes(h) <= limit && bytes(h) > limit - 4);
    const t = tail(text, 1000, limit);
    assert.ok(text.endsWith(t) && bytes(t) <= limit && bytes(t) > limit - 4);
    assert.equal([...tail(text, limit, 10_000)].length, Math.min(limit, 80));
  }
});
