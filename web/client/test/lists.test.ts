import assert from "node:assert/strict";
import { test } from "node:test";
import type { InboxList, Refusal, Server, SessionList } from "../index.ts";
import { client, network, serve, socket } from "./harness.ts";

const script = {
  model: "m",
  provider: "p",
  prompts: [
    {
      match: "ask",
      steps: [{ tool: { name: "bash", args: { command: "ls" }, output: "x\n", gated: true } }, { say: "done" }],
    },
  ],
  default: [{ say: "hello" }],
};
const server = await serve(script);

/** until waits until a list satisfies a condition. */
function until<L extends SessionList | InboxList>(list: L, condition: (list: L) => boolean): Promise<void> {
  return new Promise((resolve) => {
    const check = () => {
      if (!condition(list)) return;
      remove();
      resolve();
    };
    const remove = (list.on as (listen: (l: L) => void) => () => void)(check);
    check();
  });
}

async function prompted(c: Server, text: string) {
  const id = await c.create();
  const s = c.attach(id, { role: "controller" });
  await s.ready();
  await s.prompt(text);
  return s;
}

test("the list follows new, renamed, archived, deleted and restored sessions", async () => {
  const c = client(server);
  const list = c.sessions();
  await until(list, (l) => l.link.status === "online");
  const s = await prompted(c, "hi there");
  const find = () => list.sessions.find((x) => x.session_id === s.id);
  await until(list, () => find()?.title === "hi there");
  await c.update(s.id, { title: "A name" });
  await until(list, () => find()?.title === "A name");
  await c.update(s.id, { archived: true });
  await until(list, () => !find());
  await c.update(s.id, { archived: false });
  await until(list, () => find() !== undefined);
  await c.remove(s.id);
  await until(list, () => !find());
  await assert.rejects(c.history(s.id), (e) => (e as Refusal).code === "stale_session");
  assert.equal((await c.overview({ status: ["deleted"] })).sessions[0]?.session_id, s.id);
  await c.restore(s.id);
  await until(list, () => find()?.title === "A name");
  assert.deepEqual(
    (await c.overview({ q: "A name" })).sessions.map((x) => x.session_id),
    [s.id],
  );
});

test("sessions that wait for somebody come first, and further pages can be read", async () => {
  const c = client(server);
  const list = c.sessions();
  const waiting = await prompted(c, "ask for it");
  const other = await prompted(c, "hi");
  await until(list, (l) => l.sessions.some((x) => x.session_id === other.id && x.status === "idle"));
  await until(list, (l) => l.sessions[0]?.session_id === waiting.id && l.sessions[0].status === "waiting");
  const first = await c.overview({ limit: 1 });
  assert.equal(first.sessions.length, 1);
  const second = await c.overview({ limit: 1, after: first.next });
  assert.notEqual(second.sessions[0]?.session_id, first.sessions[0]?.session_id);
  assert.equal(list.partial, false);
  await waiting.interrupt();
});

test("a key makes one session, and no connection is left behind", async () => {
  const c = client(server);
  const [a, b] = [await c.create("once"), await c.create("once")];
  assert.equal(a, b);
  const s = c.attach(a);
  await s.ready();
  await s.until(() => s.state.connections.length === 1);
});

test("a question is answered from the inbox once, and everybody is told who did it", async () => {
  const c = client(server);
  const [mine, other] = [c.questions(), client(server).questions()];
  const s = await prompted(c, "ask me");
  const find = (l: InboxList) => l.questions.find((q) => q.session_id === s.id);
  await Promise.all([mine, other].map((l) => until(l, () => find(l) !== undefined)));
  const q = find(mine)!;
  assert.match(q.display, /^bash \{"command":"ls"\}/);
  const ended = new Promise<string | undefined>((resolve) => {
    other.on((l) => {
      const e = l.ended.find((x) => x.request_id === q.request_id);
      if (e) resolve(e.author?.name);
    });
  });
  const answers = await Promise.allSettled([
    c.answer(q, { approved: true, note: "ok" }),
    c.answer(q, { approved: false }),
  ]);
  assert.equal(answers.filter((a) => a.status === "fulfilled").length, 1);
  assert.equal(await ended, "owner");
  await Promise.all([mine, other].map((l) => until(l, () => find(l) === undefined)));
});

test("a list comes back after the connection was lost, and ends when the server refuses it", async () => {
  const net = await network(server);
  const list = client({ url: net.url, token: server.token }).sessions();
  await until(list, (l) => l.link.status === "online");
  net.cut();
  await until(list, (l) => l.link.status === "waiting");
  await until(list, (l) => l.link.status === "online");
  const refused = client({ url: net.url, token: "wrong" }).questions();
  await until(refused, (l) => l.link.status === "closed");
  assert.equal(refused.link.status === "closed" && refused.link.why.code, "unauthenticated");
  list.close();
});

test("both lists share one socket, and end with it", async () => {
  let sockets = 0;
  const c = client(server, {
    socket: (...args) => {
      sockets++;
      return socket!(...args);
    },
  });
  const [sessions, questions] = [c.sessions(), c.questions()];
  assert.equal(c.sessions(), sessions);
  await Promise.all([
    until(sessions, (l) => l.sessions.length > 0),
    until(questions, (l) => l.link.status === "online"),
  ]);
  questions.close();
  const again = c.questions();
  assert.notEqual(again, questions);
  const s = await prompted(c, "ask again");
  await until(again, (l) => l.questions.some((q) => q.session_id === s.id));
  assert.equal(sockets, 2); // one is that of the session
  await s.interrupt();
});

test("a viewer follows the sessions, and is refused the questions", async () => {
  const c = client(server);
  const id = await c.create();
  const { token } = await c.share(id);
  const guest = client({ url: server.url, token });
  const [sessions, questions] = [guest.sessions(), guest.questions()];
  await until(questions, (l) => l.link.status === "closed");
  assert.equal(questions.link.status === "closed" && questions.link.why.code, "access_denied");
  await until(sessions, (l) => l.sessions.length === 1 && l.sessions[0]!.session_id === id);
});
