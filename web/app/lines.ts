// The lines of a change, with marks at what differs inside a line. The work for a change is bounded: if comparing takes
// too many steps, its lines are shown as removed and added.
import { diffLines, diffWordsWithSpace } from "diff";
import type { Change } from "./tools";

export type Piece = { text: string; marked: boolean };
export type Line = {
  sign: "+" | "-" | " ";
  before?: number;
  after?: number;
  text: string;
  /** the text goes on in the next line, because it is long */
  goesOn?: boolean;
};

const longest = 400 << 10; // characters; the texts of a longer change are not compared
const mostSteps = 500; // lines that differ; with more, comparing takes too long
const longestLine = 2000; // characters

/** stats counts the lines that a change adds and removes. */
export function stats(change: Change): { added: number; removed: number } {
  const count = (sign: string) => linesOf(change).filter((l) => l.sign === sign && !l.goesOn).length;
  return { added: count("+"), removed: count("-") };
}

const known = new WeakMap<Change, Line[]>();

export function linesOf(change: Change): Line[] {
  let lines = known.get(change);
  if (!lines) {
    lines = "patch" in change ? fromPatch(change.patch) : compare(change.before, change.after);
    known.set(change, (lines = lines.flatMap(cut)));
    noteRuns(lines);
  }
  return lines;
}

// cut makes several lines of a long one.
function cut(line: Line): Line[] {
  if (line.text.length <= longestLine) return [line];
  const { sign, text } = line;
  const parts: Line[] = [];
  for (let at = 0; at < text.length; at += longestLine)
    parts.push({ sign, text: text.slice(at, at + longestLine), goesOn: at + longestLine < text.length });
  Object.assign(parts[0]!, { before: line.before, after: line.after });
  return parts;
}

function compare(before: string, after: string): Line[] {
  const parts =
    before.length + after.length > longest ? undefined : diffLines(before, after, { maxEditLength: mostSteps });
  if (!parts) return [...numbered("-", before), ...numbered("+", after)];
  const lines: Line[] = [];
  let a = 1,
    b = 1;
  for (const part of parts) {
    for (const text of part.value.replace(/\n$/, "").split("\n")) {
      if (before === "" && part.removed) continue;
      const line: Line = { sign: part.added ? "+" : part.removed ? "-" : " ", text };
      if (!part.added) line.before = a++;
      if (!part.removed) line.after = b++;
      lines.push(line);
    }
  }
  return lines;
}

function numbered(sign: "+" | "-", text: string): Line[] {
  if (text === "") return [];
  return text
    .replace(/\n$/, "")
    .split("\n")
    .map((t, i) => ({ sign, [sign === "-" ? "before" : "after"]: i + 1, text: t }));
}

function fromPatch(patch: string): Line[] {
  const lines: Line[] = [];
  let a = 0,
    b = 0,
    inside = false;
  for (const text of patch.replace(/\n$/, "").split("\n")) {
    const head = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(text);
    if (head) {
      a = Number(head[1]);
      b = Number(head[2]);
      inside = true;
      continue;
    }
    if (text[0] === "\\") continue; // about the line before, such as that it has no end
    if (!inside && (/^(---|\+\+\+|diff |index |===)/.test(text) || text === "")) continue;
    const sign = text[0] === "+" || text[0] === "-" ? text[0] : " ";
    const line: Line = { sign, text: /^[-+ ]/.test(text) ? text.slice(1) : text };
    if (inside && sign !== "+") line.before = a++;
    if (inside && sign !== "-") line.after = b++;
    lines.push(line);
  }
  return lines;
}

const mostPaired = 24; // lines of one run; a longer one is rarely made of similar lines

const runs = new WeakMap<Line, Line[]>(); // removed lines and the added ones that replace them
const marked = new WeakMap<Line[], Map<Line, Piece[]>>();

function noteRuns(lines: Line[]): void {
  for (let i = 0; i < lines.length; i++) {
    let j = i;
    while (lines[j]?.sign === "-") j++;
    let k = j;
    while (lines[k]?.sign === "+") k++;
    if (j > i && k > j && k - i <= mostPaired) {
      const run = lines.slice(i, k);
      for (const line of run) runs.set(line, run);
    }
    if (k > i) i = k - 1;
  }
}

/** piecesOf returns a line with marks at what differs from the line that it replaces, or that replaces it. */
export function piecesOf(line: Line): Piece[] {
  const run = runs.get(line);
  if (!run) return [{ text: line.text, marked: false }];
  let pairs = marked.get(run);
  if (!pairs) marked.set(run, (pairs = pairUp(run)));
  return pairs.get(line) ?? [{ text: line.text, marked: false }];
}

// pairUp looks for each removed line for the first later added line that resembles it.
function pairUp(run: Line[]): Map<Line, Piece[]> {
  const pairs = new Map<Line, Piece[]>();
  const added = run.filter((l) => l.sign === "+");
  let from = 0;
  for (const old of run.slice(0, run.length - added.length)) {
    for (let n = from; n < added.length; n++) {
      if (!markPair(pairs, old, added[n]!)) continue;
      from = n + 1;
      break;
    }
  }
  return pairs;
}

function markPair(pairs: Map<Line, Piece[]>, old: Line, now: Line): boolean {
  if (old.text.length + now.text.length > 2000) return false;
  const parts = diffWordsWithSpace(old.text, now.text, { maxEditLength: 200 });
  if (!parts) return false;
  const same = parts.filter((p) => !p.added && !p.removed).reduce((n, p) => n + p.value.trim().length, 0);
  if (same * 2 < Math.max(old.text.trim().length, now.text.trim().length)) return false; // another line altogether
  pairs.set(old, parts.filter((p) => !p.added).map((p) => ({ text: p.value, marked: p.removed })));
  pairs.set(now, parts.filter((p) => !p.removed).map((p) => ({ text: p.value, marked: p.added })));
  return true;
}
