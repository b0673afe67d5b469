// Tests of what the page does with texts, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { stats } from "../lines";
import { content, fieldsOf, wrong } from "../form";
import { expose, exposed } from "../hidden";
import { code, split } from "../blocks";
import { about, withoutChange } from "../tools";

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
  assert.equal(wrong(n, 3), "");
  assert.equal(wrong(tags, []), "");
  assert.equal(wrong(mail, "nobody"), "Want an e-mail address.");
  assert.equal(wrong(yes, undefined), "");
  assert.deepEqual(content(fields, { n: 3, mail: "" }), { n: 3, yes: false });
  assert.equal(fieldsOf({ properties: { deep: { type: "object" } } }), undefined);
});
