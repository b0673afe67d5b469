// The lines of the transcript: each item of the client's transcript as one or more rows, which the
// list shows. A row is replaced, never changed, so that only what changed is drawn again.
import type {
  CommandItem,
  EndItem,
  Item,
  NoteItem,
  PromptItem,
  QuestionItem,
  TextItem,
  ToolItem,
} from "../client/items.ts";
import { split } from "./blocks";
import { reads } from "./tools";

export type Row = { key: string } & (
  | { kind: "prompt"; item: PromptItem }
  | { kind: "block"; text: string; open: boolean }
  | { kind: "thinking"; item: TextItem }
  | { kind: "tool"; item: ToolItem; waits: boolean }
  | { kind: "reads"; items: ToolItem[] }
  | { kind: "command"; item: CommandItem }
  | { kind: "question"; item: QuestionItem }
  | { kind: "end"; item: EndItem; earlier: readonly EndItem[] }
  | { kind: "note"; item: NoteItem }
);

const mostReads = 50; // calls in one line

// What was made of a text: its length and beginning then, the rows of its finished blocks, and the open block.
type Text = { length: number; start: string; done: Row[]; rest: string };
type Kept = { version: number; rest: string; waits: boolean; rows: Row[]; text?: Text };
type Going = { texts: TextItem[]; notes: Item[] };

const alone: Going = { texts: [], notes: [] };

/** newRows returns a function that turns items into rows. It keeps the rows of items that did not change. */
export function newRows() {
  const kept = new WeakMap<Item, Kept>();
  let folds = new Map<string, { count: number; versions: number; row: Row }>();

  // rowsOf returns the rows of an item, and of those that are shown with it: texts that go on after a text,
  // and earlier ends of the turn.
  function rowsOf(item: Item, waits: boolean, more: readonly (TextItem | EndItem)[]): Row[] {
    const { version } = item;
    const rest = more.length === 0 ? "" : more.map((i) => i.version).join();
    const old = kept.get(item);
    if (old?.version === version && old.rest === rest && old.waits === waits) return old.rows;
    const now: Kept = { version, rest, waits, rows: [], text: old?.text };
    if (item.kind === "text") {
      const texts = [item, ...(more as readonly TextItem[])];
      now.text = blocks(texts, old?.text);
      const { done, rest } = now.text;
      now.rows =
        rest.trim() === ""
          ? done
          : [
              ...done,
              { key: `${item.key}.${done.length}`, kind: "block", text: rest, open: texts.at(-1)!.open },
            ];
    } else if (item.kind === "tool") now.rows = [{ key: item.key, kind: "tool", item, waits }];
    else if (item.kind === "end") {
      now.rows = [{ key: item.key, kind: "end", item, earlier: more as readonly EndItem[] }];
    } else if (shown(item)) now.rows = [{ key: item.key, kind: item.kind, item } as Row];
    kept.set(item, now);
    return now.rows;
  }

  return function rows(items: readonly Item[], waiting: ReadonlySet<string>): Row[] {
    const all: Row[] = [];
    const used: typeof folds = new Map();
    let ends: EndItem[] = []; // of the turn, that are not shown
    for (let i = 0; i < items.length; i++) {
      let end = i;
      while (end < items.length && end - i < mostReads && foldable(items[end]!)) end++;
      if (end - i > 1) {
        const group = items.slice(i, end) as ToolItem[];
        const count = group.length;
        const versions = group.reduce((sum, t) => sum + t.version, 0); // which only rise
        const key = `${group[0]!.key}+`;
        const old = folds.get(key);
        const fold =
          old?.count === count && old.versions === versions
            ? old
            : { count, versions, row: { key, kind: "reads", items: group } as Row };
        used.set(key, fold);
        all.push(fold.row);
        i = end - 1;
        continue;
      }
      const item = items[i]!;
      if (item.kind === "prompt") ends = [];
      if (item.kind === "end") {
        if (item.end.usage.total_tokens === 0 && goesOnAfter(items, i)) ends.push(item);
        else {
          all.push(...rowsOf(item, false, ends));
          ends = [];
        }
        continue;
      }
      const { texts, notes } = item.kind === "text" && items[i + 1]?.kind === "note" ? goesOn(items, i) : alone;
      for (const row of rowsOf(item, item.kind === "tool" && waiting.has(item.id), texts)) all.push(row);
      for (const note of notes) all.push(...rowsOf(note, false, []));
      i += texts.length + notes.length;
    }
    folds = used;
    return all;
  };
}

// goesOnAfter reports whether the turn of an item goes on after it.
function goesOnAfter(items: readonly Item[], at: number): boolean {
  const next = items[at + 1];
  return next !== undefined && next.kind !== "prompt";
}

// goesOn returns the texts that continue the one at an index although something else happened between
// them, such as a change of control or a command, and those notes, which are shown after the whole text.
function goesOn(items: readonly Item[], at: number): Going {
  const first = items[at] as TextItem;
  const texts: TextItem[] = [],
    notes: Item[] = [];
  for (let i = at + 1; ; i++) {
    let end = i;
    while (items[end]?.kind === "note" || items[end]?.kind === "command") end++;
    const next = items[end];
    if (end === i || next?.kind !== "text" || next.response !== first.response) return { texts, notes };
    notes.push(...items.slice(i, end));
    texts.push(next);
    i = end;
  }
}

// foldable reports whether a call is one of those that fold into one line: it only read, and is over.
function foldable(item: Item): boolean {
  return item.kind === "tool" && item.end?.success === true && item.call !== undefined && reads(item.call.tool);
}

// shown leaves out what another row or the frame of the page says.
function shown(item: Item): boolean {
  switch (item.kind) {
    case "question":
      return (
        item.resolved !== undefined ||
        item.stopped === true ||
        (item.request !== undefined && item.request.request_type !== "approval")
      );
    case "note": // who takes or leaves a free session is not news for the conversation
      return item.event.type === "control_changed"
        ? item.event.from !== null && item.event.to !== null
        : item.event.type !== "status";
    case "command": // a terminal has a place of its own
      return item.start?.terminal_mode === "pipe";
    case "thinking":
      return item.text.trim() !== "";
    default:
      return true;
  }
}

// blocks takes what was added to consecutive texts since the last call.
function blocks(texts: TextItem[], old: Text | undefined): Text {
  const { key, text } = texts[0]!;
  const length = texts.reduce((n, t) => n + t.text.length, 0);
  const grown = old && length >= old.length && text.startsWith(old.start) ? old : undefined;
  let known = grown?.length ?? 0;
  let added = "";
  for (const t of texts) {
    added += t.text.slice(known);
    known = Math.max(0, known - t.text.length);
  }
  const from = grown?.done.length ?? 0;
  const { done, rest } = split((grown?.rest ?? "") + added);
  const rows = done.map((text, i): Row => ({ key: `${key}.${from + i}`, kind: "block", text, open: false }));
  return {
    length,
    start: text.slice(0, 64),
    done: rows.length > 0 ? [...(grown?.done ?? []), ...rows] : (grown?.done ?? []),
    rest,
  };
}
