// Looking back: the moment of the past that the page shows, and the turns on the time line.
import { batch, computed, effect, signal } from "@preact/signals";
import type { HistoryTurn, Past } from "../client/index.ts";
import { clock, exact, second } from "./format";
import { place } from "./lists";
import { newRows } from "./rows";
import { address, announce, fragment, head, inWords, loaded, moment, openID, refusal, session } from "./store";

const maxTurns = 4_000; // on the time line; of more, the latest
const turnsPage = 500;
const maxPages = 8; // that are read for the time line; one takes the server up to 16 MiB of the session
const tick = 100; // ms between two moments that are played
const longestPause = 2_000; // ms, of the played time

/** A Turn on the time line. */
export interface Turn extends Pick<HistoryTurn, "cursor" | "line" | "outcome"> {
  began: number; // ms since 1970
  ended: number; // 0 if it has not
  end: number; // cursor; 0 if it has not ended
  questions: readonly number[];
}

export const turns = signal<readonly Turn[]>([]);
/** where the time line begins */
export const first = signal(1);
/** the cursor that was asked for last, before its moment is there; 0: live */
export const sought = signal(0);
/** the past is played so many times faster than it was; 0: it does not play */
export const speed = signal(0);

/** The turn of a cursor, from 0; -1 before the first. */
export const turnAt = (cursor: number) => turns.value.findLastIndex((t) => t.cursor <= cursor);

/** timeAt estimates when a cursor was, by the turns around it. */
export function timeAt(cursor: number): number {
  const m = moment.value;
  if (m && cursor === m.cursor) return m.at;
  const i = turnAt(cursor);
  const turn = turns.value[i];
  const next = turns.value[i + 1];
  if (!turn) return next?.began ?? Date.now();
  const after = turn.end > 0 && cursor > turn.end; // the run
  const from = after ? { cursor: turn.end, at: turn.ended } : { cursor: turn.cursor, at: turn.began };
  const to =
    after || turn.end === 0
      ? { cursor: next?.cursor ?? head.value, at: next?.began ?? (after ? turn.ended : Date.now()) }
      : { cursor: turn.end, at: turn.ended };
  const share = (cursor - from.cursor) / Math.max(1, to.cursor - from.cursor);
  return from.at + (to.at - from.at) * Math.min(1, share);
}

/** timeOf tells a time with its day if that is not today. */
export const timeOf = (at: number) =>
  new Date(at).toDateString() === new Date().toDateString() ? second(at) : exact(at);

/** spoken is the value of the slider in words. */
export const spoken = computed(() => {
  const n = turns.value.length;
  if (sought.value === 0) return n > 0 ? `Live, turn ${n} of ${n}` : "Live";
  const turn = turnAt(sought.value) + 1;
  return `${clock(timeAt(sought.value))}, ${turn > 0 ? `turn ${turn} of ${n}` : "before the first turn"}`;
});

let past: Past | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;

effect(() => {
  const s = session.value;
  clearTimeout(timer);
  past = undefined;
  batch(() => {
    moment.value = null;
    sought.value = 0;
    speed.value = 0;
    turns.value = [];
    first.value = 1;
  });
  if (!s) return;
  let own: readonly Turn[] = [];
  const set = (next: readonly Turn[]) => {
    own = next.slice(-maxTurns);
    turns.value = own;
  };
  const stop = s.onEvent(({ cursor, event }) => {
    const last = own.at(-1);
    if (event.type === "prompt_accepted") {
      const line = event.content.slice(0, 200).split("\n", 1)[0]!;
      const began = Date.parse(event.timestamp);
      set([...own, { cursor, line, outcome: "running", began, ended: 0, end: 0, questions: [] }]);
    } else if (!last) return;
    else if (event.type === "server_request")
      set([...own.slice(0, -1), { ...last, questions: [...last.questions, cursor].slice(-20) }]);
    else if (event.type === "response_end" || (event.type === "error" && !event.request_id)) {
      const failed = event.type === "error" && event.error_type !== "cancelled";
      const outcome = failed || last.outcome === "failed" ? "failed" : "completed";
      set([...own.slice(0, -1), { ...last, outcome, end: cursor, ended: Date.now() }]);
    }
  });
  const wait = effect(() => {
    if (loaded.value) void readTurns();
  });
  async function readTurns(): Promise<void> {
    let before: number | null | undefined;
    let known: Turn[] = [];
    try {
      for (let i = 0; i < maxPages && before !== null && known.length < maxTurns; i++) {
        const page = await s!.turns({ before: before ?? undefined, limit: turnsPage });
        if (session.peek() !== s) return;
        known = [...page.turns.map(turnOf), ...known];
        before = page.before;
        const newest = known.at(-1)?.cursor ?? 0;
        const since = own.filter((t) => t.cursor > newest);
        batch(() => {
          first.value = (before === null && !page.gap) || known.length === 0 ? 1 : known[0]!.cursor;
          set([...known, ...since]);
        });
      }
    } catch {
      // without a connection the line keeps the turns that are known
    }
  }
  return () => {
    stop();
    wait();
  };
});

function turnOf({ cursor, line, outcome, at, duration_ms, end, questions = [] }: HistoryTurn): Turn {
  const began = Date.parse(at);
  const over = end !== undefined && duration_ms !== null;
  return { cursor, line, outcome, began, ended: over ? began + duration_ms : 0, end: over ? end : 0, questions };
}

/** linkTo is the address of a moment of the open session. */
export const linkTo = (cursor: number) => new URL(`${address(openID.peek() ?? "")}&at=${cursor}`, location.href).href;

/** follow goes to the moment in the address, if there is one. */
function follow(): void {
  const at = Number(fragment("at"));
  if (at > 0 && loaded.peek() && fragment("session") === openID.peek()) void lookAt(at);
}
addEventListener("hashchange", follow);
effect(() => {
  if (loaded.value) queueMicrotask(follow);
});

effect(() => {
  if (place.value !== "session") backToLive(); // the inbox is never of the past
});

/** lookAt shows the session as it was after the last event up to a cursor. */
export async function lookAt(cursor: number): Promise<void> {
  const to = Math.max(first.peek(), Math.min(Math.round(cursor), head.peek()));
  sought.value = to;
  await seek((p) => p.show(to));
}

/** walk goes to the next or the previous event; the pieces of a text count as one. */
export async function walk(by: 1 | -1): Promise<void> {
  speed.value = 0;
  if (sought.peek() === 0) {
    if (by > 0) return;
    await lookAt(head.peek());
  }
  await seek((p) => p.step(by));
}

/** leap goes to the next or previous mark: the beginning or end of a turn, or a question. */
export function leap(by: 1 | -1): void {
  const from = sought.peek() || head.peek() + 1;
  const marks = turns.peek().flatMap((t) => [t.cursor, ...t.questions, ...(t.end > 0 ? [t.end] : [])]);
  const next = by > 0 ? marks.find((c) => c > from) : marks.findLast((c) => c < from);
  speed.value = 0;
  if (next !== undefined) void lookAt(next);
  else if (by > 0) backToLive();
  else void lookAt(first.peek());
}

async function seek(go: (p: Past) => Promise<void>): Promise<void> {
  const s = session.peek();
  if (!s) return;
  const mine = (past ??= open());
  refusal.value = "";
  try {
    await go(mine);
    if (mine === past) sought.value = mine.cursor;
  } catch (err) {
    if (mine !== past || sought.peek() === 0) return;
    refusal.value = inWords(err);
    speed.value = 0;
    if (moment.peek()) sought.value = moment.peek()!.cursor;
    else backToLive();
  }
}

function open(): Past {
  const made = session.peek()!.past();
  const draw = newRows();
  made.on(() => {
    const { state, transcript: t } = made;
    if (made !== past || !state) return;
    const { more, gap, loading, live } = t;
    moment.value = {
      cursor: made.cursor,
      at: made.at,
      state,
      transcript: t,
      rows: draw(t.items, new Set(state.pending_requests.map((r) => r.call_id))),
      older: { more, gap, loading, live },
    };
  });
  return made;
}

/** backToLive shows the session as it is. */
export function backToLive(): void {
  if (moment.peek()) announce("Live again.");
  clearTimeout(timer);
  batch(() => {
    speed.value = 0;
    sought.value = 0;
    moment.value = null;
    past = undefined; // pages that are still being read are dropped
  });
  if (fragment("at") !== null && openID.peek()) history.replaceState(null, "", address(openID.peek()!));
}

/** play lets the past go on at a speed, or stops it. It ends in the live session. */
export function play(times: number): void {
  clearTimeout(timer);
  speed.value = times;
  const p = past;
  const m = moment.peek();
  if (times === 0 || !p || !m) return;
  let now = m.at; // the time that is played
  let began = Date.now();
  const go = async () => {
    const newest = head.peek();
    const next = await p.ahead();
    if (p !== past || speed.peek() !== times) return;
    if (next.length === 0) return backToLive();
    const passed = Date.now() - began;
    began += passed;
    const soonest = Date.parse(next[0]!.at);
    now = Math.max(now + passed * times, soonest - longestPause * times);
    const to = next.findLast((e) => Date.parse(e.at) <= now);
    if (to) await p.show(to.cursor);
    if (p !== past || speed.peek() !== times) return;
    // An agent that writes all the time has always something ahead.
    if (p.cursor >= newest) backToLive();
    else timer = setTimeout(run, tick);
  };
  const run = () => void seek(go);
  run();
}
