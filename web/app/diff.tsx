// Changes of a file: lines with numbers and signs, marks inside the line, unchanged parts folded.
import { diffLines, diffWordsWithSpace } from "diff";
import { useMemo, useState } from "preact/hooks";
import type { Change } from "./tools";
import { expose } from "./hidden";
import { plural } from "./format";

type Piece = { text: string; marked: boolean };
type Line = { sign: "+" | "-" | " "; before?: number; after?: number; pieces: Piece[] };
type Part = Line | { skipped: Line[] };

const around = 3; // unchanged lines beside a change
const longest = 400 << 10; // characters; a longer change is shown as text
const firstLines = 400; // lines that are drawn before somebody asks for more

/** stats counts the lines that a change adds and removes. */
export function stats(change: Change): { added: number; removed: number } {
  const lines = linesOf(change);
  return { added: lines.filter((l) => l.sign === "+").length, removed: lines.filter((l) => l.sign === "-").length };
}

const known = new WeakMap<Change, Line[]>();

function linesOf(change: Change): Line[] {
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

function fold(lines: Line[]): Part[] {
  const parts: Part[] = [];
  for (let i = 0; i < lines.length;) {
    if (lines[i]!.sign !== " ") {
      parts.push(lines[i++]!);
      continue;
    }
    let end = i;
    while (end < lines.length && lines[end]!.sign === " ") end++;
    const head = i === 0 ? 0 : around,
      tail = end === lines.length ? 0 : around;
    if (end - i <= head + tail + 1) parts.push(...lines.slice(i, end));
    else
      parts.push(
        ...lines.slice(i, i + head),
        { skipped: lines.slice(i + head, end - tail) },
        ...lines.slice(end - tail, end),
      );
    i = end;
  }
  return parts;
}

export function Diff({ change }: { change: Change }) {
  const parts = useMemo(() => fold(linesOf(change)), [change]);
  const [open, setOpen] = useState<ReadonlySet<Part>>(new Set());
  const [limit, setLimit] = useState(firstLines);
  const { added, removed } = stats(change);
  const rows = parts.flatMap((part) => {
    if (!("skipped" in part)) return [<DiffLine line={part} />];
    if (open.has(part)) return part.skipped.map((line) => <DiffLine line={line} />);
    return [
      <tr class="skip">
        <td colSpan={4}>
          <button type="button" onClick={() => setOpen(new Set([...open, part]))}>
            Show {plural(part.skipped.length, "unchanged line")}
          </button>
        </td>
      </tr>,
    ];
  });
  return (
    <figure class="diff">
      <figcaption class="file">
        <span class="cut grow">
          <bdi>{change.path || "change"}</bdi>
        </span>
        <span>
          <span class="added">+{added}</span> <span class="removed">−{removed}</span>
        </span>
      </figcaption>
      <table role="presentation">
        <tbody>
          {rows.slice(0, limit)}
          {rows.length > limit && (
            <tr class="skip">
              <td colSpan={4}>
                <button type="button" onClick={() => setLimit(limit * 4)}>
                  Show {plural(rows.length - limit, "more line")}
                </button>
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </figure>
  );
}

const rowClass = { "+": "plus", "-": "minus", " ": "" };
const signText = { "+": "+", "-": "−", " ": "" };

function DiffLine({ line }: { line: Line }) {
  return (
    <tr class={rowClass[line.sign]}>
      <td class="no">{line.before}</td>
      <td class="no">{line.after}</td>
      <td class="sign">{signText[line.sign]}</td>
      <td>
        {line.pieces.map((p) =>
          p.marked ? (
            <mark>
              <Exposed text={p.text} />
            </mark>
          ) : (
            <Exposed text={p.text} />
          ),
        )}
      </td>
    </tr>
  );
}

/** Exposed shows a text with its hidden characters drawn. */
export function Exposed({ text }: { text: string }) {
  return (
    <>
      {expose(text).map((p) =>
        p.hidden ? (
          <span class="hidden-char" title="a character that would not be seen">
            {p.text}
          </span>
        ) : (
          p.text
        ),
      )}
    </>
  );
}
