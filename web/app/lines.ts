// The lines of a change, with marks at what differs inside a line.
import { diffLines, diffWordsWithSpace } from "diff";
import type { Change } from "./tools";

type Piece = { text: string; marked: boolean };
export type Line = { sign: "+" | "-" | " "; before?: number; after?: number; pieces: Piece[] };

const longest = 400 << 10; // characters; a longer change is shown as text

/** stats counts the lines that a change adds and removes. */
export function stats(change: Change): { added: number; removed: number } {
  const lines = linesOf(change);
  return { added: lines.filter((l) => l.sign === "+").length, removed: lines.filter((l) => l.sign === "-").length };
}

const known = new WeakMap<Change, Line[]>();

export function linesOf(change: Change): Line[] {
  let lines = known.get(change);
  if (!lines)
    known.set(change, (lines = "patch" in change ? fromPatch(change.patch) : compare(change.before, change.after)));
  return lines;
}

function compare(before: string, after: string): Line[] {
  if (before.length + after.length > longest) return [...numbered("-", before), ...numbered("+", after)];
  const lines: Line[] = [];
  let a = 1,
    b = 1;
  for (const part of diffLines(before, after)) {
    for (const text of part.value.replace(/\n$/, "").split("\n")) {
      if (before === "" && part.removed) continue;
      const line: Line = { sign: part.added ? "+" : part.removed ? "-" : " ", pieces: [{ text, marked: false }] };
      if (!part.added) line.before = a++;
      if (!part.removed) line.after = b++;
      lines.push(line);
    }
  }
  return markInside(lines);
}

function numbered(sign: "+" | "-", text: string): Line[] {
  if (text === "") return [];
  return text
    .replace(/\n$/, "")
    .split("\n")
    .map((t, i) => ({ sign, [sign === "-" ? "before" : "after"]: i + 1, pieces: [{ text: t, marked: false }] }));
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
    const line: Line = { sign, pieces: [{ text: /^[-+ ]/.test(text) ? text.slice(1) : text, marked: false }] };
    if (inside && sign !== "+") line.before = a++;
    if (inside && sign !== "-") line.after = b++;
    lines.push(line);
  }
  return markInside(lines);
}

// markInside marks what differs between a removed line and the added one that replaces it.
function markInside(lines: Line[]): Line[] {
  for (let i = 0; i < lines.length; i++) {
    let j = i;
    while (lines[j]?.sign === "-") j++;
    let k = j;
    while (lines[k]?.sign === "+") k++;
    if (j > i && k > j && k - i <= mostPaired) markPairs(lines.slice(i, j), lines.slice(j, k));
    if (k > i) i = k - 1;
  }
  return lines;
}

const mostPaired = 24; // lines of one change; a larger one is rarely made of similar lines

// markPairs looks for each removed line for the first later added line that resembles it.
function markPairs(removed: Line[], added: Line[]): void {
  let from = 0;
  for (const old of removed) {
    for (let n = from; n < added.length; n++) {
      if (!markPair(old, added[n]!)) continue;
      from = n + 1;
      break;
    }
  }
}

function markPair(old: Line, now: Line): boolean {
  const [a, b] = [old.pieces[0]!.text, now.pieces[0]!.text];
  if (a.length + b.length > 2000) return false;
  const parts = diffWordsWithSpace(a, b);
  const same = parts.filter((p) => !p.added && !p.removed).reduce((n, p) => n + p.value.trim().length, 0);
  if (same * 2 < Math.max(a.trim().length, b.trim().length)) return false; // another line altogether
  old.pieces = parts.filter((p) => !p.added).map((p) => ({ text: p.value, marked: p.removed }));
  now.pieces = parts.filter((p) => !p.removed).map((p) => ({ text: p.value, marked: p.added }));
  return true;
}
