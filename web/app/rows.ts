// The lines of the transcript: each item of the client's transcript as one or more rows, which the
// list shows. A row is replaced, never changed, so that only what changed is drawn again.
import type { EndItem, Item, NoteItem, PromptItem, QuestionItem, TextItem, ToolItem } from "../client/transcript.ts";
import { split } from "./markdown";
import { reads } from "./tools";

export type Row = { key: string } & (
  | { kind: "prompt"; item: PromptItem }
  | { kind: "block"; text: string; open: boolean }
  | { kind: "thinking"; item: TextItem }
  | { kind: "tool"; item: ToolItem; waits: boolean }
  | { kind: "reads"; items: ToolItem[] }
  | { kind: "question"; item: QuestionItem }
  | { kind: "end"; item: EndItem }
  | { kind: "note"; item: NoteItem }
);

type Text = { seen: string; done: Row[]; rest: string };
type Kept = { version: number; waits: boolean; rows: Row[]; text?: Text };

/** newRows returns a function that turns items into rows. It keeps the rows of items that did not change. */
export function newRows() {
  let kept = new WeakMap<Item, Kept>();
  let folds = new Map<string, { of: string; row: Row }>();

  function rowsOf(item: Item, waits: boolean): Row[] {
    const old = kept.get(item);
    if (old && old.version === item.version && old.waits === waits) return old.rows;
    const now: Kept = { version: item.version, waits, rows: [], text: old?.text };
    if (item.kind === "text") {
      now.text = blocks(item, old?.text);
      now.rows = now.text.rest.trim() === "" ? now.text.done
        : [...now.text.done, { key: `${item.key}.${now.text.done.length}`, kind: "block", text: now.text.rest, open: item.open }];
    } else if (item.kind === "tool") now.rows = [{ key: item.key, kind: "tool", item, waits }];
    else if (shown(item)) now.rows = [{ key: item.key, kind: item.kind, item } as Row];
    kept.set(item, now);
    return now.rows;
  }

  return function rows(items: readonly Item[], waiting: ReadonlySet<string>): Row[] {
    const all: Row[] = [];
    const used: typeof folds = new Map();
    for (let i = 0; i < items.length; i++) {
      let end = i;
      while (end < items.length && folds1(items[end]!)) end++;
      if (end - i > 1) {
        const group = items.slice(i, end) as ToolItem[];
        const of = group.map((t) => `${t.key}:${t.version}`).join();
        const key = `${group[0]!.key}+`;
        const old = folds.get(key);
        const fold = old?.of === of ? old : { of, row: { key, kind: "reads", items: group } as Row };
        used.set(key, fold);
        all.push(fold.row);
        i = end - 1;
        continue;
      }
      const item = items[i]!;
      for (const row of rowsOf(item, item.kind === "tool" && waiting.has(item.id))) all.push(row);
    }
    folds = used;
    return all;
  };
}

// folds1 reports whether a call is one of those that fold into one line: it only read, and is over.
function folds1(item: Item): boolean {
  return item.kind === "tool" && item.end?.success === true && item.call !== undefined && reads(item.call.tool);
}

// shown leaves out what another row or the frame of the page says.
function shown(item: Item): boolean {
  switch (item.kind) {
    case "question":
      return item.resolved !== undefined || item.stopped === true || item.request !== undefined && item.request.request_type !== "approval";
    case "note":
      return item.event.type !== "status" || item.event.message !== "";
    case "thinking":
      return item.text.trim() !== "";
    default:
      return true;
  }
}

// blocks takes what was added to a text since the last call.
function blocks(item: TextItem, old: Text | undefined): Text {
  const grown = old && item.text.length >= old.seen.length && item.text.startsWith(old.seen.slice(0, 64)) ? old : undefined;
  const added = grown ? item.text.slice(grown.seen.length) : item.text;
  const from = grown?.done.length ?? 0;
  const { done, rest } = split((grown?.rest ?? "") + added);
  const rows = done.map((text, i): Row => ({ key: `${item.key}.${from + i}`, kind: "block", text, open: false }));
  return { seen: item.text, done: rows.length > 0 ? [...(grown?.done ?? []), ...rows] : (grown?.done ?? []), rest };
}
