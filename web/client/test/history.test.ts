import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { mock, test } from "node:test";
import {
  Refusal,
  type ActiveCommand,
  type AttachOptions,
  type Item,
  type Session,
  type State,
  type TerminalNews,
  type UtilityFileWatchEvent,
} from "../index.ts";
import { wholeOutput } from "../items.ts";
import { newUtilities } from "../utilities.ts";
import { client, network, page, serve, texts } from "./harness.ts";

// It becomes five entries of the history, of which the first is not cut.
const output = Array.from({ length: 18_500 }, (_, i) => `line ${i} ä\n`).join("");
const script = {
  model: "m",
  provider: "p",
  prompts: [
    { match: "wait", steps: [{ delay_ms: 60_000 }] },
    { match: "big", steps: [{ tool: { name: "t", args: {}, output, chunk: 1000 } }, { say: "big done" }] },
    { match: "pieces", steps: [{ tool: { name: "t", args: {}, output: output.slice(0, 66_000), chunk: 20_000 } }] },
  ],
  default: [{ say: "a lantern" }],
};
const server = await serve(script);

async function session(prompts: string[]) {
  const c = client(server);
  const s = c.attach(await c.create(), { role: "controller" });
  await s.ready();
  for (const [i, p] of prompts.entries()) {
    await s.prompt(p);
    await s.until(() => s.transcript.items.filter((x) => x.kind === "end").length === i + 1 && !s.state.is_responding);
  }
  return s;
}

test("an old session opens with its last turns, and the others are read page by page", async () => {
  const s = await session(Array.from({ length: 30 }, (_, i) => `prompt ${i}`));
  const late = client(server).attach(s.id, { turns: 2 });
  await late.ready();
  assert.deepEqual(
    texts(late).filter((t) => t.startsWith(">")),
    ["> prompt 28", "> prompt 29"],
  );
  assert.equal(late.transcript.more, true);
  while (late.transcript.more) await late.transcript.older();
  assert.deepEqual(texts(late), texts(s));
  const turns = await late.turns({ limit: 3 });
  assert.deepEqual(
    turns.turns.map((t) => [t.line, t.outcome]),
    [27, 28, 29].map((i) => [`prompt ${i}`, "completed"]),
  );
  await late.transcript.jump(turns.turns[1]!.cursor);
  assert.deepEqual(texts(late), ["> prompt 27", "a lantern"]);
  await late.transcript.toEnd();
  assert.equal(texts(late).at(-2), "> prompt 29");
  const found = await late.search("LANTERN", { limit: 5 });
  assert.equal(found.hits?.length, 5);
  assert.match(found.hits![0]!.excerpt, /lantern/);
  assert.equal((await late.history({ limit: 1 })).entries?.length, 1);
});

test("a long output is cut in the history, and its cuts are read and put in their places", async () => {
  const s = await session(["big"]);
  const late = client(server).attach(s.id);
  await late.ready();
  const whole = async (item: Item | undefined) => {
    assert.ok(item?.kind === "tool");
    const read = new Map<number, string>();
    for (const { cursor } of item.cuts) {
      const { entries } = await late.history({ before: cursor + 1, limit: 1, full: true });
      const message = entries?.[0]?.message;
      if (message?.type === "tool_output") read.set(cursor, message.content);
    }
    const { text, omitted } = wholeOutput(item, read);
    return { cuts: item.cuts.length, same: output.startsWith(text), length: text.length, omitted };
  };
  const found = () => late.transcript.items.findLast((i) => i.kind === "tool");
  assert.ok(found()!.output.length < 60_000);
  assert.deepEqual(await whole(found()), { cuts: 4, same: true, length: output.length, omitted: 0 });

  // Those who look back read the same output in pieces, each of which is cut.
  const past = late.past();
  await past.show(late.cursor);
  await s.prompt("pieces");
  await s.until(() => s.transcript.items.filter((i) => i.kind === "end").length === 2 && !s.state.is_responding);
  await past.show(s.cursor);
  const piece = past.transcript.items.findLast((i) => i.kind === "tool");
  assert.deepEqual(await whole(piece), { cuts: 3, same: true, length: 66_000, omitted: 0 });
});

test("the controller runs commands and terminals, and finds, reads and watches files", async () => {
  const net = await network(server);
  const c = client({ url: net.url, token: server.token });
  const s = c.attach(await c.create(), { role: "controller" });
  await s.ready();
  const { utilities } = s;
  let output = "";
  const ran = utilities.run("read x; echo got $x; exit 3", { allow_stdin: true }, (p) => {
    output += p.content;
  });
  assert.equal((await ran.started).command_id, ran.id);
  net.cut(); // a running command outlives its connection
  await s.until(() => s.link.status !== "online");
  await ran.write("it\n", true);
  const { exit_code } = await ran.exited;
  assert.deepEqual([output, exit_code], ["got it\n", 3]);

  const terminal = utilities.run("stty size; sleep 60", { terminal_mode: "pty", columns: 100, rows: 30 }, (p) => {
    output += p.content;
  });
  await terminal.started;
  await terminal.resize(90, 20);
  await s.until(() => s.state.active_utility_commands[0]?.columns === 90);
  await terminal.stop(true);
  await terminal.exited;
  await assert.rejects(utilities.run("").exited, (e) => (e as Refusal).code !== undefined);

  const changes: UtilityFileWatchEvent[] = [];
  const watch = utilities.watchFiles({ include_patterns: ["**/*.txt"] }, (change) => changes.push(change));
  await s.until(() => s.state.active_file_watches.length === 1);
  mkdirSync(join(server.workspace, "notes"));
  writeFileSync(join(server.workspace, "notes", "plan.txt"), "one\ntwo\n");
  await new Promise<void>((resolve) =>
    s.onEvent(({ event }) => {
      if (event.type === "utility_file_watch_event") resolve();
    }),
  );
  assert.equal(changes[0]?.relative_path, "notes/plan.txt");
  await watch.stop();
  await watch.stopped;
  const found = await utilities.findFiles("plan");
  assert.equal(found.results[0]?.path, "notes/plan.txt");
  const read = await utilities.readFile("notes/plan.txt", { offset: 2 });
  assert.equal(read.content, "two");
  await assert.rejects(utilities.readFile("absent.txt"), /File not found/);
});

test("all clients follow a terminal, also late ones and a reloaded page that continues its connection", async () => {
  const c = client(server);
  const id = await c.create();
  const options: AttachOptions = { role: "controller", clientInfo: { name: "page" } };
  const first = page();
  const owner = client(server, { around: first.around }).attach(id, options);
  await owner.ready();
  const shell = owner.utilities.run("stty -echo; read x; echo got $x; read y; exit 4", {
    terminal_mode: "pty",
    allow_stdin: true,
  });
  await shell.started;
  const { text, heard } = follow(owner);
  const late = client(server).attach(id, { role: "controller" });
  await late.ready();
  const seen = follow(late);
  await shell.resize(70, 20);
  await shell.write("it\n");
  await late.until(() => seen.text().includes("got it"));
  await late.lease.take();
  await owner.until(() => !owner.control.mine);
  await assert.rejects(late.utilities.controls(shell.id).write("x"), (e) => (e as Refusal).code === "access_denied");
  assert.deepEqual(kinds(seen.heard), ["running", "resized", "output"], "a hand-over changes no terminal");
  await late.lease.release();

  // The page is loaded again.
  first.fire("pagehide");
  const again = client(server).attach(id, { ...options, connection: owner.connection! });
  await again.ready();
  assert.equal(again.me?.connectionId, owner.me?.connectionId);
  const anew = follow(again);
  assert.equal(anew.text(), text());
  if (!again.control.mine) await again.lease.ask();
  await again.utilities.controls(shell.id).write("end\n");
  await Promise.all([again, late].map((s) => s.until(() => s.state.active_utility_commands.length === 0)));
  for (const h of [anew.heard, seen.heard]) {
    const last = h.at(-1);
    assert.equal(last?.kind === "ended" && last.exit?.exit_code, 4);
  }
  assert.deepEqual(kinds(heard).slice(0, 2), ["running", "resized"]);
  again.close();

  // A connection that the server does not have becomes a new one.
  const other = client(server).attach(id, { role: "controller", connection: { id: "conn_gone", token: "x" } });
  await other.ready();
  assert.notEqual(other.me?.connectionId, "conn_gone");
});

test("a utility ends with its own answer, also if it was started before the first state or beside an interrupt", async () => {
  const c = client(server);
  const s = c.attach(await c.create(), { role: "controller" });
  await s.utilities.findFiles("x");
  await s.prompt("wait");
  const interrupted = s.interrupt(); // the server sends a state
  const found = s.utilities.findFiles("x");
  const ran = s.utilities.run("exit 3");
  await Promise.all([interrupted, found, ran.exited]);
});

test("a command whose beginning was missed has begun, and one that the server does not know is lost", async () => {
  const state = { active_utility_commands: [] as ActiveCommand[] } as State;
  let ids = 0;
  const utilities = newUtilities({ send: () => new Promise(() => {}), newID: () => `u${++ids}`, state });
  const [known, unknown] = [utilities.run("x"), utilities.run("y")];
  utilities.doubt();
  const late = utilities.run("z");
  state.active_utility_commands = [
    { command_id: known.id, command: "x", shell_mode: "shell", terminal_mode: "pipe", output: "" },
  ];
  utilities.restored(true);
  assert.equal((await known.started).command, "x");
  await assert.rejects(unknown.started, (e) => (e as Refusal).code === "answer_lost");
  utilities.end(new Refusal("closed", "The session was closed"));
  await assert.rejects(late.started, (e) => (e as Refusal).code === "closed");
});

test("an error of who listens to a command is reported, and the command goes on", async () => {
  const reported = mock.method(globalThis, "queueMicrotask", () => {});
  const state = { active_utility_commands: [] as ActiveCommand[] } as State;
  const utilities = newUtilities({ send: () => new Promise(() => {}), newID: () => "u", state });
  const ran = utilities.run("x", {}, () => {
    throw new Error("not drawn");
  });
  utilities.apply({ type: "utility_command_output", command_id: "u", stream: "stdout", content: "x" });
  assert.equal(reported.mock.callCount(), 1);
  reported.mock.restore();
  utilities.apply({ type: "utility_command_exited", command_id: "u", success: true, exit_code: 0, signal: null });
  await ran.exited;
});

test("terminals come again when events were missed", () => {
  const command = (id: string, output: string): ActiveCommand => ({
    command_id: id,
    command: "sh",
    shell_mode: "shell",
    terminal_mode: "pty",
    output,
  });
  const state = { active_utility_commands: [command("a", "1"), command("b", "1")] } as State;
  const utilities = newUtilities({ send: () => Promise.reject(), newID: () => "x", state });
  const heard: string[] = [];
  utilities.restored(true);
  utilities.terminals((n) => heard.push(`${n.kind} ${n.id} ${n.kind === "running" ? n.terminal.output : ""}`));
  assert.deepEqual(heard.splice(0), ["running a 1", "running b 1"]);
  state.active_utility_commands = [command("b", "2")];
  utilities.restored(true);
  assert.deepEqual(heard.splice(0), ["ended a ", "running b 2"]);
  state.active_utility_commands = [command("b", "3"), command("c", "")];
  utilities.restored(false); // nothing was missed, such as at a hand-over
  assert.deepEqual(heard.splice(0), ["running c "]);
});

const kinds = (news: TerminalNews[]) => [...new Set(news.map((n) => n.kind))];

/** follow gathers the news of the terminals of a session, and what the terminal shows. */
function follow(s: Session) {
  const heard: TerminalNews[] = [];
  s.utilities.terminals((n) => heard.push(n));
  const text = () =>
    heard.reduce((t, n) => (n.kind === "running" ? n.terminal.output : n.kind === "output" ? t + n.content : t), "");
  return { heard, text };
}

test("a viewer may not use utilities", async () => {
  const s = client(server).attach("main");
  await s.ready();
  await assert.rejects(s.utilities.findFiles("x"), (e) => (e as Refusal).code === "access_denied");
});
