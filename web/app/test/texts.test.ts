// Tests of what the page does with texts, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { linesOf, piecesOf, stats } from "../lines";
import { content, fieldsOf, wrong } from "../form";
import { expose, exposed } from "../hidden";
import { code, parts, split, tooDeep } from "../blocks";
import { pieces } from "../pieces";
import { about, json, withoutChange } from "../tools";
import { isQuiet, parseQuiet } from "../quiet";
import { questionTag } from "../tag";

const sample = [
  "# Title\n\nA paragraph\nof two lines.\n\n",
  "- one\n- two\n\n  more of two\n- three\n\n",
  "```go\nfunc f() {\n\n\treturn\n}\n```\n\n",
  "| a | b |\n|---|---|\n| 1 | 2 |\n\n",
  "> quoted\n> twice\n\n~~~\n``` inside\n~~~\nafter the fence\n\n1. x\n2. y\n\n***\n\nThe end",
].join("");

const squeezed = (texts: string[]) => texts.join("").replace(/\n+/g, "");

test("a text that grows ends in the same blocks as the whole text", () => {
  const whole = split(sample);
  for (const step of [1, 2, 7, 64]) {
    const done: string[] = [];
    let rest = "";
    for (let i = 0; i < sample.length; i += step) {
      const next = split(rest + sample.slice(i, i + step));
      done.push(...next.done);
      rest = next.rest;
    }
    assert.equal(squeezed([...done, rest]), squeezed([sample]), `in steps of ${step} nothing is lost`);
    assert.deepEqual(
      done.filter((b) => code(b)),
      whole.done.filter((b) => code(b)),
      `in steps of ${step} code is the same`,
    );
  }
  assert.ok(whole.done.length > 6, `got ${whole.done.length} blocks`);
});

test("long blocks are ended, so that the open one stays short", () => {
  for (const [line, start] of [
    ["x".repeat(99) + "\n", ""],
    ["x".repeat(100), ""],
    ["x".repeat(99) + "\n", "```js\n"],
  ]) {
    let rest = start!,
      size = 0;
    for (let i = 0; i < 1000; i++) {
      const next = split(rest + line);
      size += squeezed(next.done.map((b) => code(b)?.text ?? b)).length;
      rest = next.rest;
      assert.ok(rest.length <= (16 << 10) + 200, `the open block has ${rest.length} characters`);
    }
    const last = code(rest)?.text ?? rest;
    assert.equal(size + squeezed([last]).length, 1000 * line!.trim().length);
  }
});

test("every block is small, whatever the text is", () => {
  const texts = [
    "[a](".repeat(8000),
    "*a _b ".repeat(5000),
    "word".repeat(50_000),
    "a\n".repeat(20_000),
    "- a\n".repeat(20_000),
    "| a | b |\n|---|---|\n" + "| 1 | 2 |\n".repeat(5000),
    "```js\n" + "x\n".repeat(20_000) + "```\n",
    "> " + " ".repeat(100_000) + "b",
  ];
  for (const text of texts) {
    const { done, rest } = split(text);
    for (const block of [...done, rest]) {
      const size = code(block) ? 17_000 : 8900;
      assert.ok(block.length <= size, `a block of ${block.length} characters of ${text.slice(0, 20)}`);
      if (!code(block)) assert.ok(parts(block) <= 800, `a block of ${parts(block)} parts of ${text.slice(0, 20)}`);
    }
    if (!/^(?:```|\||>)/.test(text)) assert.equal(squeezed([...done, rest]), squeezed([text]), "nothing is lost");
  }
});

test("a table and a code that are cut go on with their heads", () => {
  const table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n".repeat(500);
  const tables = split(table + "\nend");
  assert.ok(tables.done.length > 3);
  assert.ok(tables.done.every((b) => b.startsWith("| a | b |\n|---|---|\n| 1 |")));
  assert.equal(tables.done.join("").match(/\| 1 \| 2 \|/g)!.length, 500);
  const codes = split("```go\n" + "x\n".repeat(1000) + "```\n\nend");
  assert.ok(codes.done.length > 2);
  assert.ok(codes.done.every((b) => code(b)?.language === "go"));
  assert.equal(codes.done.map((b) => code(b)!.text.match(/x/g)!.length).reduce((a, b) => a + b), 1000);
});

test("a list stays one block with its empty lines, paragraphs and codes", () => {
  const list = "1. one\n\n   more of one\n\n   ```sh\n   ls\n\n   pwd\n   ```\n2. two\n";
  assert.deepEqual(split(`${list}\nafter\n\nend`).done, [list.trimEnd(), "after"]);
  const long = Array.from({ length: 400 }, (_, i) => `${i}. item\n   of two lines\n`).join("");
  assert.ok(split(long).done.every((b) => /^\d+\. item/.test(b) && b.endsWith("lines\n")), "it is cut between items");
});

test("lists and quotations of many levels are shown as they were written", () => {
  assert.ok(tooDeep("> ".repeat(40) + "a"));
  assert.ok(tooDeep("text\n" + "- ".repeat(40) + "a"));
  assert.ok(tooDeep("- a\n" + " ".repeat(70) + "- b"));
  assert.ok(!tooDeep("- a\n" + " ".repeat(20) + "- b\n" + "-".repeat(80)));
});

test("long texts are cut into pieces at line ends, and nothing is lost", () => {
  const all = (text: string) => pieces([{ text, hidden: false }]);
  const whole = (text: string) =>
    all(text)
      .flatMap((p) => p.tokens.map((t) => t.text))
      .join("");
  for (const text of ["", "a", "a\n".repeat(5000), "word ".repeat(5000), "\u{1f600}".repeat(5000), "x".repeat(100_000) + "\nb"]) {
    assert.equal(whole(text), text);
    for (const p of all(text)) {
      const own = p.tokens.map((t) => t.text).join("");
      assert.ok(own.length <= 2048 && own.split("\n").length <= 51);
      assert.ok(!/[\ud800-\udbff]$/.test(own), "no character is cut");
    }
  }
  assert.equal(all("a\n".repeat(5000)).length, 100);
  assert.equal(all("a\n".repeat(5000))[0]!.rows, 50);
  const hidden = expose("\u200b\u202e".repeat(1000));
  assert.equal(hidden.length, 2000);
  assert.ok(pieces(hidden).every((p) => p.tokens.length <= 40 && p.rows >= 1));
});

test("runs of blanks are named, and can be unfolded", () => {
  assert.equal(exposed("a" + "\n".repeat(21) + "b"), "a\n<20 empty lines>\nb");
  assert.equal(exposed("a" + "\n \t".repeat(20) + "\nb"), "a\n<20 empty lines>\nb");
  assert.equal(exposed(`a${" ".repeat(1000)}b${"\t".repeat(20)}c`), "a<1,000 spaces>b<20 tabs>c");
  assert.equal(exposed("\u200b".repeat(3000)), "<U+200B × 3,000>");
  assert.equal(exposed("a\n\n\nb        c"), "a\n\n\nb        c");
  const text = `a${" ".repeat(1000)}b\u202e`;
  assert.deepEqual(expose(text, true), [
    { text: text.slice(0, -1), hidden: false },
    { text: "U+202E", hidden: true },
  ]);
});

test("comparing takes a bounded number of steps, and shows all lines", () => {
  const lines = (count: number, text: (i: number) => string) => Array.from({ length: count }, (_, i) => text(i)).join("\n");
  const before = lines(12_000, (i) => `old ${i}`);
  const after = lines(12_000, (i) => `new ${i}`);
  assert.deepEqual(stats({ path: "a", before, after }), { added: 12_000, removed: 12_000 });
  const long = linesOf({ path: "a", before: "", after: "x".repeat(9000) + "\nend" });
  assert.equal(long.map((l) => l.text).join(""), "x".repeat(9000) + "end");
  assert.ok(long.every((l) => l.text.length <= 2000));
  assert.deepEqual(stats({ path: "a", before: "", after: "x".repeat(9000) + "\nend" }), { added: 2, removed: 0 });
  const [old, now] = linesOf({ path: "a", before: "one two three\n", after: "one four three\n" });
  assert.deepEqual(piecesOf(old!), [
    { text: "one ", marked: false },
    { text: "two", marked: true },
    { text: " three", marked: false },
  ]);
  assert.deepEqual(piecesOf(now!)[1], { text: "four", marked: true });
});

test("deep JSON is not indented", () => {
  assert.equal(json({ a: [1] }), '{\n  "a": [\n    1\n  ]\n}');
  const deep = "[".repeat(100) + "]".repeat(100);
  assert.equal(json(JSON.parse(deep)), deep);
  assert.equal(json({ a: "[[[[[[[[[[[[[[[[[[[[[[[[" }).split("\n").length, 3);
});

test("code knows its language and its text", () => {
  assert.deepEqual(code("```go\na\n\nb\n```\n"), { language: "go", text: "a\n\nb" });
  assert.deepEqual(code("```go\na\nb"), { language: "go", text: "a\nb" });
  assert.deepEqual(code("~~~~\n~~~\n~~~~"), { language: "", text: "~~~" });
  assert.deepEqual(code("```\n```"), { language: "", text: "" });
  assert.equal(code("no `code` here"), null);
});

test("characters that hide are named", () => {
  assert.equal(exposed("rm \u202ex\u200b\u0007\u{e0041}"), "rm <U+202E>x<U+200B><U+0007><U+E0041>");
  assert.equal(exposed("tab\tline\nüß中文"), "tab\tline\nüß中文");
  const odd = "\u00a0\u00ad\u115f\u2028\u2066\u2800\u3164\ufe0f\ufeff\uffa0\ud800\u{f0000}";
  assert.ok(
    expose(odd).every((p) => p.hidden),
    "each of them is drawn",
  );
});

test("a call is shown with all of its arguments", () => {
  const bash = about("bash", { command: "make\ntest", timeout: 5, description: "run" });
  assert.equal(bash.command, "make\ntest");
  assert.equal(bash.object, "make test");
  assert.deepEqual(bash.rest, [
    ["timeout", "5"],
    ["description", "run"],
  ]);
  const edit = about("edit", { path: "a.go", old_string: "x\n", new_string: "x\ny\n", replace_all: true });
  assert.deepEqual(stats(edit.change!), { added: 1, removed: 0 });
  assert.deepEqual(edit.rest, [["replace_all", "true"]]);
  const acp = about("edit", {
    _acp: { diff: "@@ -1 +1 @@\n-a\n+b\n", options: [{ id: "1", name: "Always", kind: "allow_always" }] },
  });
  assert.deepEqual(stats(acp.change!), { added: 1, removed: 1 });
  assert.equal(acp.options[0]!.id, "1");
  const two = about("write", { path: "a.go", file_path: "b.go", content: "x" });
  assert.deepEqual(two.rest, [["file_path", "b.go"]], "a second path is told");
  assert.deepEqual(about("x", ["list"]).rest, [["args", '[\n  "list"\n]']]);
});

test("a change is told once, and nothing but a repetition is left out", () => {
  const patch = "--- a/w/a.go\n+++ b/w/a.go\n@@ -1,1 +1,1 @@\n-a\n+b\n";
  const other = patch.replace("+b", "+c");
  const args = (diff: string) => ({
    filepath: "/w/a.go",
    diff,
    _acp: { title: "/w/a.go", diff: patch, locations: [{ path: "/w/a.go" }, { path: "/etc/b" }], omitted_bytes: 9 },
  });
  const told = about("edit", args(`Index: /w/a.go\n===\n${patch}`), "/w");
  assert.equal(told.object, "a.go");
  assert.equal(told.change!.path, "a.go");
  const more = [
    ["location", "/etc/b"],
    ["not shown", "9 bytes"],
  ];
  assert.deepEqual(told.rest, more);
  assert.deepEqual(about("edit", args(other), "/w").rest, [...more, ["diff", other]]);
  const elsewhere = patch.replaceAll("a.go", "b.go");
  assert.deepEqual(about("edit", args(elsewhere), "/w").rest, [...more, ["diff", elsewhere]]);
  const output = `${patch}\nApplied.\n${patch.trim()}`;
  assert.equal(withoutChange(output, told.change!, told.path), "Applied.");
  assert.equal(withoutChange(other, told.change!, told.path), other);
});

test("forms take what their schema allows", () => {
  const fields = fieldsOf({
    properties: {
      n: { type: "integer", minimum: 1, maximum: 9 },
      tags: { type: "array", items: { enum: ["a", "b"] }, minItems: 1 },
      mail: { type: "string", format: "email" },
      yes: { type: "boolean" },
    },
    required: ["n", "yes"],
  })!;
  const [n, tags, mail, yes] = fields as [
    (typeof fields)[0],
    (typeof fields)[0],
    (typeof fields)[0],
    (typeof fields)[0],
  ];
  assert.equal(wrong(n, undefined), "Needed.");
  assert.equal(wrong(n, 1.5), "Want a whole number.");
  assert.equal(wrong(n, 10), "Want at most 9.");
  assert.equal(wrong(n, "ten"), "Want a number.");
  assert.equal(wrong({ ...n, max: undefined }, "9007199254740993"), "Want at most 15 digits.");
  assert.equal(wrong({ ...n, max: undefined }, "9007199254740991"), "");
  assert.equal(wrong(n, 3), "");
  assert.equal(wrong(tags, []), "");
  assert.equal(wrong(mail, "nobody"), "Want an e-mail address.");
  assert.equal(wrong(yes, undefined), "");
  assert.equal(wrong(n, " "), "Needed.");
  assert.equal(wrong(n, "10"), "Want at most 9.");
  assert.deepEqual(content(fields, { n: 3, mail: "" }), { n: 3, yes: false });
  assert.deepEqual(content(fields, { n: " 5.0", mail: "5" }), { n: 5, mail: "5", yes: false });
  assert.equal(fieldsOf({ properties: { deep: { type: "object" } } }), undefined);
});

test("quiet hours end on the same or the next day", () => {
  for (const [hours, time, quiet] of [
    ["22:00-07:00", "21:59", false],
    ["22:00-07:00", "22:00", true],
    ["22:00-07:00", "06:59", true],
    ["22:00-07:00", "07:00", false],
    ["09:00-17:30", "17:29", true],
    ["09:00-17:30", "08:00", false],
    ["09:00-09:00", "09:00", false],
    ["24:00-07:00", "01:00", false],
    ["", "01:00", false],
  ] as const) {
    assert.equal(isQuiet(hours, time), quiet, `${time} in ${hours}`);
  }
  assert.equal(parseQuiet("9:00-17:00"), undefined);
});

test("notifications of one question have one tag", () => {
  const tag = "main req 1";
  assert.equal(questionTag("https://maestro.example/inbox?session=main&request=req%201"), tag);
  assert.equal(questionTag("/inbox?session=main&request=req+1"), tag);
  assert.notEqual(questionTag("https://elsewhere.example/1"), questionTag("https://elsewhere.example/2"));
});
