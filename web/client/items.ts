import type {
  Author,
  Event,
  PromptAccepted,
  RequestShown,
  RequestVoted,
  ResponseEnd,
  ServerRequest,
  ServerRequestResolved,
  ToolCall,
  ToolEnd,
  UtilityCommandExited,
  UtilityCommandStarted,
} from "../../contracts/ts/maestro.d.ts";
import { bytes, tail } from "./texts.ts";

interface Entry {
  /** unique among the items, and stays as long as the item is there */
  readonly key: string;
  /** cursor of the first event of the item */
  readonly cursor: number;
  /** when it happened, in milliseconds since 1970; of live events without a time, when they arrived */
  readonly at: number;
  /** rises with every change of the item */
  version: number;
  /** cursor of its last event */
  last: number;
}

/** A prompt and who wrote it. */
export interface PromptItem extends Entry {
  kind: "prompt";
  prompt: PromptAccepted;
}

/** A run of text of one response. A tool between two texts of a response makes two items. */
export interface TextItem extends Entry {
  kind: "text" | "thinking";
  response: string;
  text: string;
  /** more may come */
  open: boolean;
}

/**
 * A Cut is an output of which the history has sent the beginning. Ask for all of it with
 * `before: cursor + 1, limit: 1, full: true`.
 */
interface Cut {
  cursor: number;
  /** where the beginning is in the output of the item */
  from: number;
  to: number;
  /** bytes that are left out after it */
  omitted: number;
}

/** A tool call. */
export interface ToolItem extends Entry {
  kind: "tool";
  id: string;
  /** absent until the page with the beginning of the call is read */
  call?: ToolCall;
  /** when it began to run */
  startedAt?: number;
  output: string;
  /** characters or bytes of the output that are left out at its end, or at its beginning if it is live */
  omitted: number;
  /** the outputs that the history cut, the oldest first */
  cuts: Cut[];
  end?: ToolEnd;
  endedAt?: number;
  /** it ended without a tool_end, such as by an interrupt */
  stopped?: boolean;
  /** it ended after the window, which is not live */
  endedLater?: boolean;
}

/** A command that a client runs beside the agent. `output` has both streams. */
export interface CommandItem extends Entry {
  kind: "command";
  id: string;
  /** absent until the page with the beginning of the command is read */
  start?: UtilityCommandStarted;
  /** as in a ToolItem */
  output: string;
  omitted: number;
  cuts: Cut[];
  exit?: UtilityCommandExited;
  endedAt?: number;
  /** it ended without an event, such as with the server */
  stopped?: boolean;
  /** as in a ToolItem */
  endedLater?: boolean;
}

/** A question, and how it ended. */
export interface QuestionItem extends Entry {
  kind: "question";
  id: string;
  /** absent until the page with the beginning of the question is read */
  request?: ServerRequest;
  shown?: RequestShown;
  votes: RequestVoted[];
  resolved?: ServerRequestResolved;
  /** who answered, and when; absent if nobody did */
  answer?: { author: Author; timestamp: string };
  /** it ended without an event */
  stopped?: boolean;
  /** as in a ToolItem */
  endedLater?: boolean;
}

/** The end of a response: usage and durations. */
export interface EndItem extends Entry {
  kind: "end";
  end: ResponseEnd;
}

/** Anything else that people may want to see. */
export interface NoteItem extends Entry {
  kind: "note";
  event: Extract<Event, { type: "error" | "status" | "compaction" | "control_changed" }>;
}

/** An item that later events change. They find it by its id. */
type OpenItem = ToolItem | CommandItem | QuestionItem;

export type Item = PromptItem | TextItem | OpenItem | EndItem | NoteItem;

// Bounds of the window.
const maxItems = 10_000;
const maxSize = 16 << 20; // characters
const itemSize = 256; // what an item counts beside its texts
const maxPiece = 1 << 20; // characters of one item; a longer text goes on in a second item
const maxOutput = 256 << 10; // characters of one output; a longer one loses its beginning

/** newWindow folds consecutive events into items. */
export function newWindow(touched: (item: Item) => void) {
  const items: Item[] = [];
  const latest = new Map<string, OpenItem>(); // the latest of each kind and id
  const firsts = new Map<string, { item: OpenItem; begins: boolean }>();
  let open: TextItem | undefined; // takes further text
  let size = 0;

  function push<T extends Item>(item: T): T {
    items.push(item);
    size += itemSize + weight(item);
    touched(item);
    return item;
  }

  function entry(prefix: string, cursor: number, at: number) {
    return { key: `${prefix}${cursor}`, cursor, at, version: 0, last: cursor };
  }

  function change(item: Item, cursor: number): void {
    item.version++;
    item.last = cursor;
    touched(item);
  }

  function closeText(): void {
    if (open) {
      open.open = false;
      change(open, open.last);
    }
    open = undefined;
  }

  function text(cursor: number, at: number, response: string, thinking: boolean, content: string): void {
    const kind = thinking ? "thinking" : "text";
    if (
      open &&
      (open.response !== response || open.kind !== kind || items.at(-1) !== open || open.text.length > maxPiece)
    )
      closeText();
    open ??= push({ ...entry("t", cursor, at), kind, response, text: "", open: true });
    open.text += content;
    size += content.length;
    change(open, cursor);
  }

  /** find returns the item of a kind and id. One that begins after another with the same id has ended is a new one. */
  function find<T extends OpenItem>(kind: T["kind"], id: string, begins: boolean, make: () => T): T {
    const key = keyOf({ kind, id });
    let item = latest.get(key) as T | undefined;
    if (!item || (begins && isOver(item))) {
      item = push(make());
      latest.set(key, item);
      // The first item of each id may continue one of an older window.
      if (!firsts.has(key)) firsts.set(key, { item, begins });
    }
    return item;
  }

  function tool(id: string, cursor: number, at: number, begins = false): ToolItem {
    return find<ToolItem>("tool", id, begins, () => ({
      ...entry("c", cursor, at),
      ...{ kind: "tool", id, output: "", omitted: 0, cuts: [] },
    }));
  }

  function command(id: string, cursor: number, at: number, begins = false): CommandItem {
    return find<CommandItem>("command", id, begins, () => ({
      ...entry("u", cursor, at),
      ...{ kind: "command", id, output: "", omitted: 0, cuts: [] },
    }));
  }

  function question(id: string, cursor: number, at: number, begins = false): QuestionItem {
    return find<QuestionItem>("question", id, begins, () => ({
      ...entry("q", cursor, at),
      ...{ kind: "question", id, votes: [] },
    }));
  }

  function output(item: ToolItem | CommandItem, cursor: number, content: string, omitted: number): void {
    size += content.length;
    const from = item.output.length;
    item.output += content;
    if (omitted > 0) {
      item.omitted += omitted;
      item.cuts.push({ cursor, from, to: item.output.length, omitted });
    }
    const over = item.output.length - maxOutput;
    if (over > maxOutput) {
      // twice as long: cutting is rare
      item.output = item.output.slice(over);
      item.cuts = moved(item.cuts, -over);
      item.omitted += over;
      size -= over;
    }
    change(item, cursor);
  }

  function add(cursor: number, at: number, e: Event, omitted = 0): void {
    switch (e.type) {
      case "prompt_accepted":
        push({ ...entry("p", cursor, at), kind: "prompt", prompt: e });
        break;
      case "response_start":
        closeText();
        break;
      case "response_chunk":
        text(cursor, at, e.response_id, e.is_thinking, e.content);
        break;
      case "response_end":
        closeText();
        push({ ...entry("e", cursor, at), kind: "end", end: e });
        break;
      case "tool_call": {
        const item = tool(e.call_id, cursor, at, true);
        size += sizeOf(e.args) - sizeOf(item.call?.args); // a call can be announced again
        item.call = e;
        change(item, cursor);
        break;
      }
      case "tool_start": {
        const item = tool(e.call_id, cursor, at);
        item.startedAt = at;
        change(item, cursor);
        break;
      }
      case "tool_output":
        output(tool(e.call_id, cursor, at), cursor, e.content, omitted);
        break;
      case "tool_end": {
        const item = tool(e.call_id, cursor, at);
        item.end = e;
        item.endedAt = at;
        change(item, cursor);
        break;
      }
      case "server_request": {
        const item = question(e.request_id, cursor, at, true);
        size += sizeOf(e.args) - sizeOf(item.request?.args);
        item.request = e;
        change(item, cursor);
        break;
      }
      case "request_shown":
      case "request_voted":
      case "server_request_resolved": {
        const item = question(e.request_id, cursor, at, e.type === "request_shown");
        if (e.type === "request_shown") {
          size += e.display.length - (item.shown?.display.length ?? 0);
          item.shown = e;
        } else if (e.type === "request_voted") item.votes.push(e);
        else {
          item.resolved = e;
          if (e.author) item.answer = { author: e.author, timestamp: e.timestamp ?? "" };
        }
        change(item, cursor);
        break;
      }
      case "utility_command_started": {
        const item = command(e.command_id, cursor, at, true);
        size += e.command.length - (item.start?.command.length ?? 0);
        item.start = e;
        change(item, cursor);
        break;
      }
      case "utility_command_output":
        output(command(e.command_id, cursor, at), cursor, e.content, omitted);
        break;
      case "utility_command_exited": {
        const item = command(e.command_id, cursor, at);
        item.exit = e;
        item.endedAt = at;
        change(item, cursor);
        break;
      }
      case "error":
      case "status":
      case "compaction":
      case "control_changed":
        push({ ...entry("n", cursor, at), kind: "note", event: e });
        break;
    }
  }

  /**
   * join appends a newer window, which must not be used afterwards. Items of it that continue an item of this window
   * become a part of that one.
   */
  function join(newer: ReturnType<typeof newWindow>): void {
    const own = newer.parts();
    const merged = new Set<Item>();
    for (const [key, first] of own.firsts) {
      const { item: later, begins } = first;
      const mine = latest.get(key);
      if (!mine || (begins && isOver(mine))) {
        if (!firsts.has(key)) firsts.set(key, first);
        continue;
      }
      if (mine.kind === "question" && later.kind === "question") {
        absorb(mine, later, { votes: [...mine.votes, ...later.votes] });
      } else if (mine.kind !== "question" && later.kind !== "question") {
        absorb(mine, later as typeof mine, {
          output: mine.output + later.output,
          omitted: mine.omitted + later.omitted,
          cuts: [...mine.cuts, ...moved(later.cuts, mine.output.length)],
          ...(mine.kind === "tool" && { startedAt: (later as ToolItem).startedAt ?? mine.startedAt }),
        });
      }
      if (own.latest.get(key) === later) own.latest.set(key, mine);
      merged.add(later);
    }
    const cutOff = open;
    if (own.items.length > merged.size) open = undefined;
    for (const item of own.items) {
      if (merged.has(item)) continue;
      const before = items.at(-1);
      if (
        isText(item) &&
        before &&
        isText(before) &&
        before.response === item.response &&
        before.kind === item.kind &&
        before.text.length <= maxPiece
      ) {
        absorb(before, item, { text: before.text + item.text });
        merged.add(item);
        if (item === own.open) open = before;
      } else items.push(item);
    }
    for (const [key, item] of own.latest) latest.set(key, item);
    size += own.size - merged.size * itemSize;
    if (own.open && !merged.has(own.open)) open = own.open;
    if (cutOff && cutOff !== open) cutOff.open = false; // something else followed
  }

  /** absorb adds what a later part of the same item knows. The size counts the later part already. */
  function absorb<T extends Item>(mine: T, later: T, sum: Partial<T>): void {
    const { key, cursor, at, version } = mine;
    const before = weight(mine) + weight(later);
    Object.assign(mine, later, sum, { key, cursor, at, version });
    size += weight(mine) - before;
    change(mine, later.last);
  }

  const over = (times: number) => items.length > times * maxItems || size > times * maxSize;

  /** drop removes items and their counts. */
  function drop(from: number, count: number): void {
    for (const item of items.splice(from, count)) {
      size -= itemSize + weight(item);
      if (isOpen(item)) {
        const key = keyOf(item);
        if (latest.get(key) === item) latest.delete(key);
        if (firsts.get(key)?.item === item) firsts.delete(key);
      }
      if (item === open) open = undefined;
    }
  }

  /**
   * cut returns the first index at or after `from` at which no item before has an event after the item there, so that
   * a page that ends there has all of them. A text is no place for a cut, because the history joins pieces of texts.
   * If there is none, a window of twice the size is cut anyhow.
   */
  function cut(from: number): number | undefined {
    let last = 0;
    for (const [i, item] of items.entries()) {
      if (i >= from && !isText(item) && last < item.cursor) return i;
      last = Math.max(last, item.last);
    }
    return over(2) ? from : undefined;
  }

  /** trimStart drops the oldest quarter of a full window. It returns the cursor at which the window then begins. */
  function trimStart(): number | undefined {
    const at = over(1) ? cut(Math.ceil(items.length / 4)) : undefined;
    if (at === undefined) return undefined;
    drop(0, at);
    return items[0]?.cursor;
  }

  /** trimEnd drops the newest quarter of a full window. */
  function trimEnd(): boolean {
    const at = over(1) ? cut(Math.floor((items.length * 3) / 4)) : undefined;
    if (at === undefined) return false;
    drop(at, items.length - at);
    open = undefined;
    return true;
  }

  /** settle marks the items that are open although running says that they are not. */
  function settle(running: (item: Item) => boolean, mark: "stopped" | "endedLater"): void {
    if (open && !running(open)) closeText();
    for (const item of latest.values()) {
      const begun = item.kind === "tool" ? item.call : item.kind === "command" ? item.start : item.request;
      if (item.stopped || item.endedLater || !begun || isOver(item) || running(item)) continue;
      item[mark] = true;
      change(item, item.last);
    }
  }

  return {
    items,
    add,
    join,
    trimStart,
    trimEnd,
    settle,
    question: (id: string) => latest.get(keyOf({ kind: "question", id })) as QuestionItem | undefined,
    parts: () => ({ items, latest, firsts, size, open }),
  };
}

export function isText(item: Item): item is TextItem {
  return item.kind === "text" || item.kind === "thinking";
}

export function isOpen(item: Item): item is OpenItem {
  return item.kind === "tool" || item.kind === "command" || item.kind === "question";
}

function isOver(item: OpenItem): boolean {
  const last = item.kind === "tool" ? item.end : item.kind === "command" ? item.exit : item.resolved;
  return last !== undefined;
}

const keyOf = ({ kind, id }: Pick<OpenItem, "kind" | "id">) => `${kind} ${id}`;

/** moved returns cuts of an output that gets a longer or shorter beginning. */
const moved = (cuts: Cut[], by: number) =>
  cuts.map((c) => ({ ...c, from: c.from + by, to: c.to + by })).filter((c) => c.from >= 0);

/**
 * wholeOutput returns the output of an item with the texts that were read for its cuts, by cursor, in their places. A
 * text may begin with earlier outputs, because the history joins them.
 */
export function wholeOutput({ output, omitted, cuts }: ToolItem | CommandItem, read: ReadonlyMap<number, string>) {
  let text = "";
  let at = 0;
  for (const { cursor, from, to, omitted: rest } of cuts) {
    const full = read.get(cursor);
    if (full === undefined) continue;
    text += output.slice(at, from) + tail(full, Infinity, bytes(output.slice(from, to)) + rest);
    at = to;
    omitted -= rest;
  }
  return { text: text + output.slice(at), omitted };
}

const sizeOf = (args: unknown) => JSON.stringify(args)?.length ?? 0;

/** weight returns how many characters the texts of an item have. */
function weight(item: Item): number {
  switch (item.kind) {
    case "prompt":
      return item.prompt.content.length;
    case "text":
    case "thinking":
      return item.text.length;
    case "tool":
      return item.output.length + sizeOf(item.call?.args);
    case "command":
      return item.output.length + (item.start?.command.length ?? 0);
    case "question":
      return sizeOf(item.request?.args) + (item.shown?.display.length ?? 0);
    case "note":
      return sizeOf(item.event);
    case "end":
      return 0;
  }
}
