// The files that tool calls changed. A session is read from its end, so calls and their ends come in any order. They
// are told apart by their cursors.
import type { Event, ToolItem } from "../client/index.ts";
import { stats } from "./lines";
import { about, type Change } from "./tools";

/** An Edit is a change of one file by a call, or by a comparison, whose note says what happened. */
export type Edit = { cursor: number; at: number; change: Change; note?: string };
export type Changed = { path: string; edits: Edit[] };

type Entry = { id: string } & ({ at: number; changes: Change[]; size: number } | { success: boolean });

// Bounds of what is kept; beyond them the oldest entries are dropped.
const maxEntries = 20_000;
const maxSize = 16 << 20; // characters

export type Edits = ReturnType<typeof newEdits>;

/** newEdits collects changes. Paths are made relative by a function. */
export function newEdits(relative: (path: string) => string = (p) => p) {
  const entries = new Map<number, Entry>();
  let size = 0;
  let cut = 0; // entries before this cursor were dropped

  function put(cursor: number, entry: Entry): void {
    if (cursor < cut) return;
    const old = entries.get(cursor);
    size += sizeOf(entry) - (old ? sizeOf(old) : 0);
    entries.set(cursor, entry);
    if (entries.size <= maxEntries && size <= maxSize) return;
    for (const [at, e] of [...entries].sort(([a], [b]) => a - b)) {
      if (entries.size <= maxEntries * 0.75 && size <= maxSize * 0.75) break;
      entries.delete(at);
      size -= sizeOf(e);
      cut = at + 1;
    }
  }

  function call(cursor: number, at: number, id: string, tool: string, args: unknown): boolean {
    const change = about(tool, args).change;
    if (!change) return false;
    const changes = split(change);
    put(cursor, { id, at, changes, size: changes.reduce((n, c) => n + lengthOf(c), 0) });
    return true;
  }

  return {
    /** the cursor before which changes were dropped, or 0 */
    get cut() {
      return cut;
    },

    /** takes a tool of the transcript. It reports whether the list may have changed. */
    take(item: ToolItem): boolean {
      const { id, cursor, at, last, end } = item;
      if (!end && entries.has(cursor)) return false;
      if (item.call && !call(cursor, at, id, item.call.tool, item.call.args)) return false;
      if (end) put(last, { id, success: end.success });
      return true;
    },

    /** takes an event of the history */
    event(cursor: number, at: number, e: Event): void {
      if (e.type === "tool_call") call(cursor, at, e.call_id, e.tool, e.args);
      else if (e.type === "tool_end") put(cursor, { id: e.call_id, success: e.success });
    },

    /** lists the files whose changes succeeded, the one that was changed last first */
    list(): Changed[] {
      const open = new Map<string, { cursor: number; at: number; changes: Change[] }>();
      const files = new Map<string, Changed>();
      for (const [cursor, e] of [...entries].sort(([a], [b]) => a - b)) {
        if ("changes" in e) {
          open.set(e.id, { cursor: open.get(e.id)?.cursor ?? cursor, at: e.at, changes: e.changes });
          continue;
        }
        const done = open.get(e.id);
        open.delete(e.id);
        if (!done || !e.success) continue;
        for (const change of done.changes) {
          const path = relative(change.path);
          const file = files.get(path) ?? { path, edits: [] };
          file.edits.push({ cursor: done.cursor, at: done.at, change });
          files.delete(path); // goes to the end
          files.set(path, file);
        }
      }
      return [...files.values()].reverse();
    },
  };
}

/** count sums up the lines that changes add and remove. */
export function count(edits: readonly Edit[]): { added: number; removed: number } {
  const sum = { added: 0, removed: 0 };
  for (const { change } of edits) {
    const { added, removed } = stats(change);
    sum.added += added;
    sum.removed += removed;
  }
  return sum;
}

const sizeOf = (e: Entry) => ("changes" in e ? e.size : 0);
const lengthOf = (c: Change) => ("patch" in c ? c.patch.length : c.before.length + c.after.length);

/** split makes a change of each file of a patch. */
function split(change: Change): Change[] {
  if (!("patch" in change)) return [change];
  const pieces = change.patch.split(/^(?=--- [^\n]*\n\+\+\+ )/m).filter((p) => p.startsWith("--- "));
  if (pieces.length < 2) return [change];
  return pieces.map((patch) => {
    const [, from = "", to = ""] = /^--- ([^\t\n]*)[^\n]*\n\+\+\+ ([^\t\n]*)/.exec(patch) ?? [];
    return { path: (to === "/dev/null" ? from : to).replace(/^[ab]\//, ""), patch };
  });
}
