// Texts in blocks of markdown. A text that still grows is cut into blocks; finished blocks never change again, so only
// the last one is parsed while the text arrives. Blocks are bounded, so that parsing one takes little time whatever it
// contains: a longer list, table or code becomes several. Cutting looks at each line once.

// Bounds of a block. Code is not parsed, so a block of code may be longer.
const bounds = { size: 8 << 10, lines: 150 };
const codeBounds = { size: 16 << 10, lines: 400 };
const maxMarks = 600; // characters that markdown gives a meaning; those of emphasis count twice
const maxHead = 500; // characters of the line that begins a code, and of the head of a table

const fenceStart = /^( {0,3})(`{3,}(?=[^\n`]*(?:\n|$))|~{3,})([^\n]*)(?:\n|$)/;
const item = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)/;
const blank = /^[ \t\r]*$/;
const delimiters = /^[ \t]*\|?[ \t]*:?-+[-:| \t\r]*$/; // the line below the head of a table
const marks = /[*_~`[\]<>|&\\:@]/g;
// The beginning of a line that may become an item of a list or the beginning of a code.
const unclear = /^[ \t]*(?:`{1,2}|~{1,2}|[-*+]|\d{1,9}[.)]?)?$/;
// More levels of lists and quotations than a reader can tell apart; the parser calls itself for each.
const deep = /^(?=[ \t>*+\-\d.)]{60})(?:[ \t>]|(?:[-*+]|\d{1,9}[.)])[ \t])*/gm;

export type Code = { language: string; text: string };

type Kind = "code" | "list" | "indented" | "other";

/** split returns the blocks of a text that cannot change when more text follows, and the rest. */
export function split(text: string): { done: string[]; rest: string } {
  const done: string[] = [];
  let kind: Kind | undefined; // of the open block; without one, the next line begins a block
  let start = 0; // of the open block
  let head = ""; // that a block repeats which continues a code or a table
  let fence = ""; // that ends the code, or the code inside a list
  let [lines, marked] = [0, 0];
  let lastItem = 0; // where the last item of a list begins
  let empty = false; // the line before has nothing in it

  // end ends the open block at a position. With a kind, the next block continues it, and begins with its head.
  const end = (at: number, next?: Kind, nextHead = "") => {
    const body = text.slice(start, at);
    if (kind === "code" || body.trim() !== "") done.push(head + (next ? body : body.replace(/\n+$/, "")));
    if (!next) fence = "";
    head = nextHead;
    kind = next;
    start = at;
    [lines, marked] = [0, 0];
  };

  let feed = 0; // the end of the line, kept because a text without lines is searched to its end
  for (let at = 0; at < text.length;) {
    if (feed >= 0 && feed <= at) feed = text.indexOf("\n", at);
    const next = feed < 0 ? text.length : feed + 1;
    const line = text.slice(at, Math.min(feed < 0 ? next : feed, at + codeBounds.size + 1)); // enough to cut it
    const nothing = line.length <= bounds.size && blank.test(line);
    const indent = line.length - line.trimStart().length;
    const opens = line.length <= maxHead ? fenceStart.exec(line) : null;

    if (kind === "other" && ((nothing && feed >= 0) || opens)) end(at);
    else if (kind === "indented" && empty && !nothing && indent < 4) end(at);
    else if (kind === "list" && !nothing && indent < 2) {
      if (fence !== "" && !closes(line, fence)) fence = ""; // the item is over, and so is its code
      if (fence === "" && (opens || (empty && !item.test(line)))) {
        if (feed < 0 && unclear.test(line)) break;
        end(at);
      }
    }

    const begins = kind === undefined;
    if (begins) {
      start = at;
      if (nothing && feed < 0) break;
      if (nothing) {
        at = start = next;
        continue;
      }
      kind = opens ? "code" : item.test(line) ? "list" : indent >= 4 ? "indented" : "other";
      if (opens) fence = opens[2]!;
      lastItem = at;
    }

    const { size, lines: most } = kind === "code" ? codeBounds : bounds;
    const found = kind === "code" ? 0 : count(line);
    if (next - start > size || lines >= most || marked + found > maxMarks) {
      if (at > start) {
        const cut = kind === "list" && lastItem > (start + at) / 2 ? lastItem : at;
        end(cut, kind, head || headOf(kind!, text, start, at));
        if (cut < at) feed = 0;
        at = lastItem = cut;
        continue;
      }
      if (line.length > size || found > maxMarks) {
        const cut = at + cutLine(line.slice(0, size), kind === "code" ? Infinity : maxMarks);
        if (kind === "code") end(cut, kind, head);
        else end(cut, "other");
        at = cut;
        continue;
      }
    }

    lines++;
    marked += found;
    empty = nothing;
    at = next;
    if (kind === "code" && !begins && feed >= 0 && closes(line, fence)) end(at);
    else if (kind === "list") {
      if (item.test(line)) lastItem = next - line.length - 1;
      const inner = /^(?:[ \t]|[-*+][ \t]|\d{1,9}[.)][ \t])*(`{3,}|~{3,})/.exec(line)?.[1];
      if (inner && fence === "") fence = inner;
      else if (closes(line.trimStart(), fence)) fence = "";
    }
  }
  return { done, rest: kind === undefined ? text.slice(start) : head + text.slice(start) };
}

const weight = (mark: string) => (mark === "*" || mark === "_" || mark === "~" ? 2 : 1);

function count(line: string): number {
  let n = 0;
  marks.lastIndex = 0;
  for (let m = marks.exec(line); m && n <= maxMarks; m = marks.exec(line)) n += weight(m[0]);
  return n;
}

/** parts returns about how many elements a block becomes. */
export function parts(block: string): number {
  return block.split("\n").reduce((n, line) => n + 1 + count(line), 0);
}

// headOf returns what a block must repeat to continue the one that begins at a position: the first line of a code,
// or the head of a table.
function headOf(kind: Kind, text: string, start: number, end: number): string {
  const first = text.indexOf("\n", start) + 1;
  if (kind === "code") return text.slice(start, first);
  const second = text.indexOf("\n", first) + 1;
  if (kind !== "other" || first === 0 || second === 0 || second > end || second - start > maxHead) return "";
  return delimiters.test(text.slice(first, second - 1)) ? text.slice(start, second) : "";
}

// cutLine returns where to cut a line that is too long: after the last blank, if there is one near the end.
function cutLine(line: string, most: number): number {
  let at = line.length;
  marks.lastIndex = 0;
  for (let n = 0, m = marks.exec(line); m; m = marks.exec(line)) {
    n += weight(m[0]);
    if (n <= most) continue;
    at = m.index;
    break;
  }
  const gap = line.lastIndexOf(" ", at - 1) + 1;
  if (gap > at / 2) return gap;
  return /[\ud800-\udbff]/.test(line[at - 1]!) ? at - 1 : at;
}

function closes(line: string, fence: string): boolean {
  if (fence === "") return false;
  const own = /^ {0,3}(`{3,}|~{3,})[ \t\r]*$/.exec(line)?.[1];
  return own !== undefined && own[0] === fence[0] && own.length >= fence.length;
}

/** tooDeep reports whether a block has so many levels of lists and quotations that it is shown as it was written. */
export function tooDeep(block: string): boolean {
  for (const [levels] of block.matchAll(deep)) if (levels.length >= 60) return true;
  return false;
}

// A word without a place for a line break takes quadratic time if its letters move each other. Scripts that break
// anywhere have no such words.
const solid = /[^\s\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef]{400}/;

/** hasLongWord reports whether a text has words that are longer than any line. */
export const hasLongWord = (text: string) => solid.test(text);

/** code returns the content of a block that is one block of code. */
export function code(block: string): Code | null {
  const fence = fenceStart.exec(block);
  if (!fence) return null;
  const lines = block.slice(fence[0].length).split("\n");
  const end = lines.findIndex((line) => closes(line, fence[2]!));
  if (end >= 0) lines.length = end;
  return { language: fence[3]!.trim().split(/\s+/)[0]!, text: lines.join("\n").replace(/\n$/, "") };
}
