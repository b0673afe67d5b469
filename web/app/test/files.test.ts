// Tests of how files are read, and of which files tool calls changed, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { plain } from "../ansi";
import { count, newEdits } from "../edits";
import { readComparison } from "../git";
import { place, quote, wanted, within } from "../paths";
import { newText, pageLines } from "../reading";
import type { Event, ToolItem } from "../../client/index.ts";

/** file serves the lines of a text, which a test may change, as the server does. */
function file(lines: string[], longestPage = pageLines) {
  const reads: [offset: number, limit: number][] = [];
  const served = {
    lines,
    reads,
    refuse: undefined as Error | undefined,
    async read(offset: number, limit: number) {
      reads.push([offset, limit]);
      if (served.refuse) throw served.refuse;
      const total_lines = served.lines.length;
      if (total_lines === 0) return { content: "", start_line: 0, end_line: 0, total_lines };
      if (offset > total_lines) throw new Error(`Offset ${offset} is beyond end of file (${total_lines} lines total)`);
      const page = served.lines.slice(offset - 1, offset - 1 + Math.min(limit, longestPage));
      return { content: page.join("\n"), start_line: offset, end_line: offset + page.length - 1, total_lines };
    },
  };
  return served;
}

const numbered = (n: number, word = "line") => Array.from({ length: n }, (_, i) => `${word} ${i + 1}`);

/** until waits for a condition, which each change may fulfil. */
function newWaiter() {
  let look = () => {};
  return {
    changed: () => look(),
    until: (condition: () => boolean) =>
      new Promise<void>((resolve) => {
        look = () => condition() && resolve();
        look();
      }),
  };
}

test("a file is read where somebody looks, and no line twice", async () => {
  const disk = file(numbered(10_000));
  const { changed, until } = newWaiter();
  const text = newText(disk.read, changed);
  text.need(1, 100);
  await until(() => text.at(100) !== undefined);
  assert.equal(text.total, 10_000);
  text.need(7001, 7100);
  await until(() => text.at(7100) !== undefined);
  assert.equal(text.at(7001), "line 7001");
  text.need(6950, 7050); // its first lines are missing
  await until(() => text.at(6950) !== undefined);
  text.need(20, 90);
  text.need(9_990, 10_400);
  await until(() => text.at(10_000) !== undefined);
  assert.deepEqual(disk.reads, [[1, 400], [7001, 400], [6950, 400], [9_990, 400]]);
  assert.equal(text.at(5000), undefined);
});

test("pages that are shorter than what was asked are continued", async () => {
  const disk = file(numbered(250), 60);
  const { changed, until } = newWaiter();
  const text = newText(disk.read, changed);
  text.need(1, 200);
  await until(() => text.at(200) !== undefined);
  assert.deepEqual(disk.reads.map(([offset]) => offset), [1, 61, 121, 181]);
});

test("a file that changed is read again, and the old lines stay until then", async () => {
  const disk = file(numbered(1000));
  const { changed, until } = newWaiter();
  const text = newText(disk.read, changed);
  text.need(901, 1000);
  await until(() => text.at(1000) !== undefined);
  disk.lines = numbered(1001, "new");
  text.reload();
  assert.equal(text.at(950), "line 950");
  await until(() => text.at(950) === "new 950");
  assert.equal(text.total, 1001);
  disk.lines = numbered(3, "short"); // the lines that somebody looks at are gone
  text.reload();
  await until(() => text.total === 3);
  assert.deepEqual([text.at(1), text.at(3), text.at(950)], ["short 1", "short 3", undefined]);
  disk.lines = [];
  text.reload();
  await until(() => text.total === 0);
  assert.equal(text.at(1), undefined);
});

test("a refusal ends the reading until somebody reads again", async () => {
  const disk = file(numbered(10));
  disk.refuse = new Error("no");
  const { changed, until } = newWaiter();
  const text = newText(disk.read, changed);
  text.need(1, 10);
  await until(() => text.failure === disk.refuse);
  text.need(1, 10);
  assert.equal(disk.reads.length, 1);
  disk.refuse = undefined;
  text.reload();
  await until(() => text.at(10) === "line 10");
  assert.equal(text.failure, undefined);
  text.close();
  text.take({ content: "other", start_line: 1, end_line: 1, total_lines: 1 });
  assert.equal(text.at(1), "other");
});

const change = (path: string, before: string, after: string) => ({ path, old_string: before, new_string: after });
const call = (call_id: string, args: unknown): Event => ({
  type: "tool_call",
  call_id,
  tool: "edit",
  args: args as never,
  requires_approval: false,
});
const end = (call_id: string, success = true): Event => ({ type: "tool_end", call_id, success });

test("changes are the same in whatever order their events come", () => {
  const events: Event[] = [
    call("a", change("/ws/one.go", "x\n", "y\nz\n")),
    call("b", change("two.go", "x\n", "y\n")),
    end("a"),
    end("b", false), // failed
    call("a", change("./one.go", "y\n", "w\n")), // the id again
    call("c", change("three.go", "", "n\n")),
    call("c", change("three.go", "", "n\nm\n")), // its approval shows all of it
    end("c"),
    end("a"),
    call("d", change("four.go", "x", "y")), // still runs
    call("e", { path: "five.go" }), // changes nothing
    end("e"),
  ];
  const orders = [
    events.map((_, i) => i),
    events.map((_, i) => events.length - 1 - i),
    [6, 7, 8, 9, 10, 11, 3, 4, 5, 0, 1, 2],
  ];
  for (const order of orders) {
    const edits = newEdits((p) => within("/ws", p));
    for (const i of [...order, ...order]) edits.event(i + 1, 0, events[i]!);
    const list = edits.list();
    assert.deepEqual(list.map((f) => [f.path, f.edits.map((e) => e.cursor)]), [["one.go", [1, 5]], ["three.go", [6]]]);
    assert.deepEqual(list.map((f) => count(f.edits)), [{ added: 3, removed: 2 }, { added: 2, removed: 0 }]);
  }
});

test("a call whose beginning is read later counts then", () => {
  const edits = newEdits();
  const item = { key: "c9", cursor: 9, at: 0, version: 1, last: 9, kind: "tool", id: "a", output: "" };
  edits.take({ ...item, omitted: 0, cuts: [], end: { type: "tool_end", call_id: "a", success: true } } as ToolItem);
  assert.deepEqual(edits.list(), []);
  edits.event(4, 0, call("a", change("one.go", "x", "y")));
  assert.deepEqual(edits.list().map((f) => f.path), ["one.go"]);
});

test("a patch of several files is a change of each", () => {
  const edits = newEdits();
  const patch = [
    "--- a/one.go\n+++ b/one.go\n@@ -1 +1,2 @@\n-x\n+y\n+z\n",
    "--- /dev/null\n+++ b/new.go\n@@ -0,0 +1 @@\n+n\n",
    "--- a/old.go\n+++ /dev/null\n@@ -1 +0,0 @@\n-o\n",
  ].join("");
  edits.event(1, 0, call("a", { path: "one.go", _acp: { title: "Patch", diff: patch } }));
  edits.event(2, 0, end("a"));
  const list = edits.list();
  assert.deepEqual(list.map((f) => f.path), ["old.go", "new.go", "one.go"]);
  assert.deepEqual(count(list.flatMap((f) => f.edits)), { added: 3, removed: 2 });
});

test("what git says is read", () => {
  const diff = (from: string, to: string, ...more: string[]) =>
    [`diff --git a/${from} b/${to}`, ...more, ""].join("\n");
  const output = [
    'new.txt\n"odd\\tname \\"x\\""\n',
    diff("a b.go", "a b.go", "index 1..2", "--- a/a b.go\t", "+++ b/a b.go\t", "@@ -1 +1,2 @@", "-x", "+y", "+z"),
    diff("gone.go", "gone.go", "deleted file mode 100644", "--- a/gone.go", "+++ /dev/null", "@@ -1 +0,0 @@", "-x"),
    diff("one.go", "two.go", "similarity index 100%", "rename from one.go", "rename to two.go"),
    diff("x.png", "x.png", "index 1..2 100644", "Binary files a/x.png and b/x.png differ"),
    diff("run.sh", "run.sh", "old mode 100644", "new mode 100755"),
    diff("é.md", "é.md", "new file mode 1", "--- /dev/null", "+++ b/é.md", "@@ -0,0 +1 @@", "+diff --git a/x b/x"),
    diff("q", "q", '--- "a/t\\tq"', '+++ "b/t\\tq"', "@@ -1 +1 @@", "-a", "\\ No newline at end of file", "+b"),
  ].join("");
  const { files, untracked } = readComparison(output, 7);
  assert.deepEqual(untracked, ["new.txt", 'odd\tname "x"']);
  assert.deepEqual(
    files.map((f) => [f.path, f.edits[0]!.note, ...Object.values(count(f.edits))]),
    [
      ["a b.go", "Changed", 2, 1],
      ["gone.go", "Deleted", 0, 1],
      ["two.go", "Renamed from one.go", 0, 0],
      ["x.png", "Changed, not a text", 0, 0],
      ["run.sh", "Changed in its mode only", 0, 0],
      ["é.md", "New", 1, 0],
      ["t\tq", "Changed", 1, 1],
    ],
  );
  assert.deepEqual(readComparison("", 7), { files: [], untracked: [] });
});

test("the list of changes has a bound", () => {
  const edits = newEdits();
  const text = "x".repeat(1 << 20);
  for (let i = 1; i <= 80; i += 2) {
    edits.event(i, 0, call(`c${i}`, change(`f${i}.go`, "", text)));
    edits.event(i + 1, 0, end(`c${i}`));
  }
  const list = edits.list();
  assert.ok(list.length >= 10 && list.length <= 17, `${list.length} files`);
  assert.equal(list[0]!.path, "f79.go", "the latest stay");
  assert.ok(edits.cut > 0);
  edits.event(1, 0, call("c1", change("f1.go", "", "x")));
  assert.equal(edits.list().length, list.length, "what is older than the bound is not taken");
});

test("output is shown without what only a terminal understands", () => {
  for (const [raw, want] of [
    ["\x1b[1;31mred\x1b[0m and \x1b[38;5;196mred\x1b[m", "red and red"],
    ["\x1b]8;;https://evil.example\x07link\x1b]8;;\x07\x1b]0;title\x1b\\", "link"],
    ["one\r\ntwo\r\n", "one\ntwo\n"],
    ["10 %\r50 %\r100 %\ndone", "100 %\ndone"],
    ["50 %\r", "50 %"],
    ["\x1b[2J\x1b[Hcleared\x1b(B\x1b7\x1bP1$r\x1b\\", "cleared"],
    ["a\x07b\x00c\x9b31md", "abcd"],
    ["cut \x1b[3", "cut "],
    ["tab\tand é 漢", "tab\tand é 漢"],
  ]) {
    assert.equal(plain(raw!), want);
  }
  const bomb = "\x1b]".repeat(200_000) + "\x1b[".repeat(200_000) + "\r".repeat(200_000) + "x";
  const began = performance.now();
  plain(bomb);
  assert.ok(performance.now() - began < 2000, "a long text of sequences takes no long time");
});

test("queries, quotes and paths", () => {
  assert.deepEqual(wanted(" login.go:42 "), { name: "login.go", line: 42 });
  assert.deepEqual(wanted("login.go:"), { name: "login.go:", line: undefined });
  assert.deepEqual(wanted(""), { name: "", line: undefined });
  assert.equal(quote("a.go", place(3, 4), ["x", ""]), "a.go, lines 3-4:\n> x\n> \n\n");
  assert.equal(quote("a.go", place(7, 7), ["x"]), "a.go, line 7:\n> x\n\n");
  assert.equal(within("/ws", "/ws/a/b.go"), "a/b.go");
  assert.equal(within("/ws/", "./a.go"), "a.go");
  assert.equal(within("/ws", "/wsx/a.go"), "/wsx/a.go");
});
