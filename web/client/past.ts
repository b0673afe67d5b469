import type { Event, HistoryEntry, HistoryPage, Snapshot, State } from "../../contracts/ts/maestro.d.ts";
import { newListeners, type Schedule } from "./notify.ts";
import type { PageRequest } from "./session.ts";
import { newTranscript, type OwnTranscript, type Transcript } from "./transcript.ts";

/**
 * A Past shows a session as its clients saw it at an earlier moment. It never acts. The session itself goes on as if
 * nobody looked back.
 */
export interface Past {
  /** cursor of the last event before the moment; 0 until the first moment is there */
  readonly cursor: number;
  /** when that event happened, in milliseconds since 1970 */
  readonly at: number;
  /** the state as of the cursor, without those who were connected; replaced with each moment */
  readonly state: Readonly<State> | null;
  /** the window of the conversation that ends with the moment */
  readonly transcript: Transcript;
  /** is called when the moment or its transcript has changed; the result removes the listener */
  on(listen: () => void): () => void;
  /**
   * goes to the moment after the last event up to a cursor, or to the oldest one that is stored. A call replaces an
   * earlier one that has not begun
   */
  show(cursor: number): Promise<void>;
  /** goes to where the next or the previous thing had happened; the pieces of a text are one thing */
  step(by: 1 | -1): Promise<void>;
  /** reads the next events, the earliest first; at most 512, and none at the end */
  ahead(): Promise<readonly HistoryEntry[]>;
}

interface Hooks {
  history(request: PageRequest): Promise<HistoryPage>;
  stateAt(cursor: number): Promise<Snapshot>;
  schedule: Schedule;
}

const chunkSize = 512; // cursors that are read ahead
const pageSize = 200; // entries of the first page of a moment

export function newPast(hooks: Hooks): Past {
  const listeners = newListeners<void>();
  let scheduled = false;
  let cursor = 0;
  let at = 0;
  let state: State | null = null;
  let transcript = make();
  let chunk = { after: 0, until: 0, entries: [] as HistoryEntry[] }; // the events between two cursors
  let wanted: number | undefined;
  let reading: Promise<void> | undefined;

  function changed(): void {
    if (scheduled) return;
    scheduled = true;
    hooks.schedule(() => {
      scheduled = false;
      listeners.tell();
    });
  }

  function make(): OwnTranscript {
    return newTranscript({
      fetch: hooks.history,
      touched: changed,
      listed: changed,
      cursor: () => cursor,
      get state() {
        return state!;
      },
      turns: 1,
    });
  }

  function show(to: number): Promise<void> {
    wanted = Math.max(1, Math.floor(to));
    return (reading ??= read());
  }

  async function read(): Promise<void> {
    try {
      while (wanted !== undefined) {
        const to = wanted;
        wanted = undefined;
        await go(to).catch((err) => {
          if (wanted === undefined) throw err; // otherwise a later call has replaced this one
        });
      }
    } finally {
      reading = undefined;
    }
  }

  async function go(to: number): Promise<void> {
    const near = cursor > 0 && to > cursor && to - cursor <= chunkSize && transcript.live;
    const [snapshot, next] = await Promise.all([hooks.stateAt(to), near ? readChunk(to) : undefined]);
    if (next && next.until >= to && snapshot.cursor <= to) advance(snapshot, next.entries);
    else await replace(snapshot);
    changed();
  }

  /** advance adds the events up to a moment that is a little later. */
  function advance(snapshot: Snapshot, entries: HistoryEntry[]): void {
    const from = cursor;
    ({ cursor, state } = snapshot);
    for (const e of entries) {
      if (e.cursor <= from || e.cursor > cursor) continue;
      at = Date.parse(e.at);
      if (e.message) transcript.apply(e.cursor, e.message, at, e.omitted);
    }
    transcript.settle();
  }

  /** replace reads the window of any other moment. */
  async function replace(snapshot: Snapshot): Promise<void> {
    const page = await hooks.history({ before: snapshot.cursor + 1, limit: pageSize });
    ({ cursor, state } = snapshot);
    transcript = make();
    transcript.opening(page);
    const last = page.entries?.at(-1);
    if (last) at = Date.parse(last.at);
  }

  /** readChunk returns the events after the moment, up to a cursor or further. */
  async function readChunk(to: number): Promise<typeof chunk> {
    if (chunk.after <= cursor && chunk.until >= to) return chunk;
    const after = cursor;
    for (let size = chunkSize; size > 0; size = size > 2 ? size / 4 : size - 1) {
      const page = await hooks.history({
        before: after + size + 1,
        limit: size,
        bytes: 512 << 10,
        pieces: true,
      });
      // The page is shorter if its events are long.
      if (page.before !== null && page.before > after + 1) continue;
      chunk = { after, until: after + size, entries: (page.entries ?? []).filter((e) => e.cursor > after) };
      break;
    }
    return chunk;
  }

  async function ahead(): Promise<HistoryEntry[]> {
    await reading;
    let found = (await readChunk(cursor + 1)).entries.filter((e) => e.cursor > cursor);
    // What is read at the end may have got longer.
    if (found.length === 0) {
      chunk = { after: 0, until: 0, entries: [] };
      found = (await readChunk(cursor + 1)).entries.filter((e) => e.cursor > cursor);
    }
    return found;
  }

  return {
    get cursor() {
      return cursor;
    },
    get at() {
      return at;
    },
    get state() {
      return state;
    },
    get transcript() {
      return transcript;
    },
    on: listeners.add,
    show,
    ahead,
    async step(by) {
      await reading;
      if (by > 0) {
        const next = await ahead();
        let i = 0;
        while (i + 1 < next.length && goesOn(next[i]!.message, next[i + 1]!.message)) i++;
        if (next.length > 0) await show(next[i]!.cursor);
        return;
      }
      const { entries = [], before } = await hooks.history({ before: cursor + 1, limit: 50 });
      let i = entries.length - 1;
      while (i > 0 && goesOn(entries[i - 1]!.message, entries[i]!.message)) i--;
      const to = i > 0 ? entries[i - 1]!.cursor : before !== null ? before - 1 : 0;
      if (to > 0) await show(to);
    },
  };
}

/** goesOn reports whether two adjacent events are pieces of one text or output. */
function goesOn(a: Event | undefined, b: Event | undefined): boolean {
  if (a?.type === "response_chunk" && b?.type === "response_chunk")
    return a.response_id === b.response_id && a.is_thinking === b.is_thinking;
  return a?.type === "tool_output" && b?.type === "tool_output" && a.call_id === b.call_id;
}
