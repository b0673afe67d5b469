// Puts an agent behind `maestro serve`, drives it with two `maestro attach --json`, kills the server in
// mid-answer, and writes down what came. It fails if a client lost, repeated or reordered anything.
//
//   node record.mjs STARTER FILE        such as: node record.mjs opencode docs/transcripts/opencode.md
//
// MAESTRO names the binary; by default it is bin/maestro of this repository.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const [starter, file] = process.argv.slice(2);
if (!file) {
  console.error("usage: node record.mjs STARTER FILE");
  process.exit(2);
}
const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const maestro = process.env.MAESTRO ?? join(root, "bin/maestro");
const home = mkdtempSync(join(tmpdir(), "maestro-record."));
const children = new Set();
const page = [];
let epoch; // of the journal, which outlives the server
const write = (...lines) => page.push(...lines);

// Every wait ends with what it waits for, or fails after a minute.
function until(what, look, watch) {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`did not see: ${what}`)), 60_000);
    const check = () => {
      const seen = look();
      if (!seen) return;
      clearTimeout(late);
      watch.delete(check);
      resolve(seen);
    };
    watch.add(check);
    check();
  });
}

function run(command, args, options = {}) {
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"], ...options });
  child.ended = new Promise((resolve) => child.once("close", resolve));
  children.add(child);
  child.ended.then(() => children.delete(child));
  child.noise = "";
  child.stderr.on("data", (text) => (child.noise += text));
  return child;
}

// hide makes output the same on every machine.
const hide = (text) => text.replaceAll(home, "DIR").replaceAll(root, ".").replaceAll(maestro, "maestro");

// Client is one `maestro attach --json`, with every line it ever printed.
class Client {
  constructor(name, url, ...flags) {
    this.name = name;
    this.lines = [];
    this.shown = 0;
    this.watch = new Set();
    this.args = ["attach", url, "--json", "--name", name, "--token-file", join(home, "state/token"), ...flags];
    this.child = run(maestro, this.args);
    createInterface({ input: this.child.stdout }).on("line", (text) => {
      this.lines.push(JSON.parse(text));
      for (const check of [...this.watch]) check();
    });
  }
  type(line) {
    write("", `${this.name} types:`, "", "```", line, "```");
    this.child.stdin.write(line + "\n");
  }
  // saw waits for a line after the last one shown that test accepts.
  saw(what, test) {
    return until(`${this.name}: ${what}`, () => this.lines.slice(this.shown).find(test), this.watch);
  }
  sawMessage(type, test = () => true) {
    return this.saw(type, (l) => l.message?.type === type && test(l.message));
  }
  alive() {
    return this.child.exitCode === null && this.child.signalCode === null;
  }
  messages() {
    return this.lines.filter((l) => l.message && l.kind === "event");
  }
  // fresh returns what came since the last time.
  fresh() {
    const lines = this.lines.slice(this.shown).filter((l) => l.kind !== "heartbeat");
    this.shown = this.lines.length;
    for (const line of lines) assert.equal(line.epoch, (epoch ??= line.epoch));
    return lines.map(({ epoch, ...rest }) => rest);
  }
}

// show writes down what came to both since the last time, and what came to one of them only.
function show(first, second) {
  const [a, b] = [first.fresh(), second.fresh()];
  const rest = b.map((l) => JSON.stringify(l));
  const both = a.filter((l) => rest.includes(JSON.stringify(l)));
  const shared = new Set(both.map((l) => JSON.stringify(l)));
  const alone = (lines) => lines.filter((l) => !shared.has(JSON.stringify(l)));
  put(`${first.name} and ${second.name} get:`, both);
  put(`${first.name} gets besides:`, alone(a));
  put(`${second.name} gets besides:`, alone(b));
}

function put(head, lines) {
  if (lines.length > 0) write("", head, "", "```json", ...fold(lines), "```");
}

const folded = new Set(["response_chunk", "tool_output"]);

// fold leaves out of a long row of pieces all but the first two and the last, and shortens long texts.
function fold(lines) {
  const out = [];
  for (let i = 0; i < lines.length; ) {
    const kind = lines[i].message?.type;
    let end = i + 1;
    while (folded.has(kind) && lines[end]?.message?.type === kind) end++;
    const row = lines.slice(i, end);
    const shown = row.length > 4 ? [...row.slice(0, 2), null, row.at(-1)] : row;
    for (const line of shown) out.push(line ? short(line) : `[… ${row.length - 3} more ${kind} …]`);
    i = end;
  }
  return out;
}

function short(value, most = 700) {
  const text = hide(typeof value === "string" ? value : JSON.stringify(value));
  const [head, tail] = [Math.floor(most * 0.7), Math.floor(most * 0.2)];
  if (text.length <= most) return text;
  return `${text.slice(0, head)} [… ${text.length - head - tail} characters …] ${text.slice(-tail)}`;
}

// The model server, behind a proxy that notes what it was asked.
const asked = [];
async function model() {
  const args = ["--listen", "127.0.0.1:0", "--pause", "20ms", "--script", join(here, "model.json")];
  const server = run(join(home, "localmodel"), args);
  const [line] = await once(createInterface({ input: server.stdout }), "line");
  const proxy = createServer((req, res) => {
    const body = [];
    req.on("data", (piece) => body.push(piece));
    req.on("end", () => {
      const text = Buffer.concat(body);
      try {
        asked.push(JSON.parse(text));
      } catch {
        asked.push(null); // not a question to a model
      }
      const out = request(new URL(req.url, line), { method: req.method, headers: req.headers }, (reply) => {
        res.writeHead(reply.statusCode, reply.headers);
        reply.pipe(res);
      });
      out.on("error", () => res.destroy());
      res.on("close", () => out.destroy());
      out.end(text);
    });
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  return { url: `http://127.0.0.1:${proxy.address().port}`, close: () => proxy.close().closeAllConnections() };
}

const once = (emitter, name) => new Promise((resolve) => emitter.once(name, (...values) => resolve(values)));

async function freePort() {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

// start starts the server and waits until it listens.
async function start(url, port) {
  const server = run(join(here, starter), ["--ready-stdout"], {
    env: { ...process.env, MAESTRO: maestro, AGENT_HOME: home, MODEL_URL: url, PORT: port },
  });
  const lines = createInterface({ input: server.stdout });
  const line = await Promise.race([once(lines, "line"), server.ended.then(() => null)]);
  if (!line) throw new Error(`the server did not start:\n${server.noise}`);
  return { ...JSON.parse(line[0]), child: server };
}

const count = JSON.parse(readFileSync(join(here, "model.json"))).find((c) => c.match === "count").turns[0].text;

// answers returns what each response said.
function answers(client) {
  const all = new Map();
  for (const { message: m } of client.messages())
    if (m.type === "response_chunk" && !m.is_thinking) all.set(m.response_id, (all.get(m.response_id) ?? "") + m.content);
  return [...all.values()];
}

async function stop(child) {
  child.kill("SIGTERM");
  await child.ended;
}

async function build() {
  const go = run("go", ["build", "-o", join(home, "localmodel"), "./internal/testkit/localmodel/serve"], { cwd: root });
  assert.equal(await go.ended, 0, go.noise);
}

// conversation lists who said what in a question to the model.
function conversation(question) {
  const block = (b) => b.text ?? `[${b.type} ${JSON.stringify(b.input ?? b.content ?? "")}]`;
  const blocks = (content) => (typeof content === "string" ? [content] : (content ?? []).map(block));
  const calls = (m) => (m.tool_calls ?? []).map((c) => JSON.stringify(c.function));
  return question.messages
    .filter((m) => m.role !== "system")
    .map((m) => `${m.role}: ${short([...blocks(m.content), ...calls(m)].join(" "), 300)}`);
}

// check fails unless a client saw every message once and in order, and the others the same ones.
function check(clients) {
  const own = new Set(["hello_ok", "connection_info", "heartbeat"]); // of one connection
  const told = clients.map((c) => {
    const lines = c.messages();
    lines.slice(1).forEach((l, i) => assert(l.cursor > lines[i].cursor, `${c.name}: ${JSON.stringify(l)}`));
    return lines.filter((l) => !own.has(l.message.type)).map((l) => [l.cursor, l.message]);
  });
  for (const t of told) assert.deepEqual(t, told[0]);
  return told[0].length;
}

async function record() {
  await build();
  const { url: modelURL, close } = await model();
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const command = `AGENT_HOME=DIR MODEL_URL=${modelURL} PORT=${port} examples/agents/${starter}`;

  write(`# ${starter} behind Maestro`, "");
  write("Two clients drive one agent, which talks to the [local model](../local-model.md). This was written by");
  write(`\`examples/agents/record.mjs ${starter}\`, which fails if a client loses, repeats or reorders anything. Left out are heartbeats,`);
  write('the epoch of the journal, which is the same in every line, and what is marked with "[… …]".');
  write("", "```", `$ ${command}`, `$ maestro attach ${url} --json --name ann --token-file DIR/state/token`);
  write(`$ maestro attach ${url} --json --name ben --token-file DIR/state/token`, "```");
  let server = await start(modelURL, port);
  const ann = new Client("ann", url);
  await ann.sawMessage("connection_info");
  const ben = new Client("ben", url);
  await ben.sawMessage("hello_ok");
  await ann.sawMessage("connection_info", (m) => m.connection_count === 2);
  await ben.sawMessage("connection_info", (m) => m.connection_count === 2);
  show(ann, ben);
  const over = (client) => client.sawMessage("raw_agent_event", (m) => m.event_type === "agent_end");
  const both = (see) => Promise.all([see(ann), see(ben)]);

  write("", "## A tool, approved by a viewer who took control in the middle");
  ann.type("please make a file");
  await both((c) => c.sawMessage("server_request"));
  show(ann, ben);
  ben.type("/take");
  await both((c) => c.saw("the hand-over", (l) => l.control?.reason === "taken_over"));
  await both((c) => c.sawMessage("connection_info"));
  show(ann, ben);
  ben.type("y");
  await both(over);
  show(ann, ben);
  assert.equal(readFileSync(join(home, "work/made.txt"), "utf8"), "made\n");

  write("", "## An interrupt in mid-answer");
  const chunks = (client) => client.lines.slice(client.shown).filter((l) => l.message?.type === "response_chunk");
  const talk = (client, n) => until(`${n} chunks`, () => chunks(client).length > n, client.watch);
  ben.type("please count");
  await both((c) => talk(c, 20));
  write("", "ben presses Ctrl-C (SIGINT).");
  ben.child.kill("SIGINT");
  await both(over);
  show(ann, ben);

  write("", "## The server is killed in mid-answer");
  ben.type("please count once more");
  await both((c) => talk(c, 60));
  process.kill(server.pid, "SIGKILL");
  await server.child.ended;
  await both((c) => c.saw("the loss of the connection", (l) => l.kind === "disconnected"));
  show(ann, ben);
  write("", "```", `$ kill -KILL ${server.pid}    # maestro`, `$ ${command}`, "```", "", "Both clients come back by themselves.");
  server = await start(modelURL, port);
  await both((c) => c.saw("the connection", (l) => l.kind === "connected"));
  await both((c) => c.sawMessage("hello_ok"));
  await both((c) => c.sawMessage("connection_info", (m) => m.connection_count === 2));
  show(ann, ben);

  write("", "## The conversation goes on");
  ben.type("what was that");
  await both(over);
  show(ann, ben);
  const last = (q) => JSON.stringify(q.messages.at(-1));
  const question = asked.findLast((q) => q?.tools?.length > 0 && last(q).includes("what was that"));
  write("", "What the agent asked the model for that, without the system prompt:", "", "```", ...conversation(question), "```");
  const earlier = JSON.stringify(question.messages.slice(0, -1));
  for (const said of ["please make a file", "made.txt", "please count", "w001 w002 w003", "please count once more"])
    assert(earlier.includes(said), said);

  write("", "## Nothing was lost, doubled or reordered", "");
  write("A third client reads the session from its beginning, and has the same messages at the same cursors.");
  const eve = new Client("eve", url);
  const { cursor } = ann.messages().at(-1);
  await eve.saw("the past", (l) => l.cursor >= cursor);
  const words = answers(ann).filter((text) => text.startsWith("w001"));
  assert.equal(words.length, 2);
  for (const text of words) assert(count.startsWith(text) && text.length > 100, text);
  const messages = check([ann, ben, eve]);
  write("", "```", `${messages} messages; the two answers that were cut off, each as the model began it:`);
  write(...words.map((text) => short(text, 120)), "```");
  for (const c of [ann, ben, eve]) assert(c.alive(), `${c.name} has ended: ${c.child.noise}`);
  await stop(server.child);
  close();
}

try {
  await record();
} finally {
  writeFileSync(file, page.join("\n") + "\n");
  await Promise.all([...children].map(stop));
  rmSync(home, { recursive: true, force: true });
}
