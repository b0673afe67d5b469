// The transcript: a windowed list of rows that follows its end while a reader is there.
import {
  elementScroll,
  measureElement,
  observeElementOffset,
  observeElementRect,
  Virtualizer,
} from "@tanstack/virtual-core";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { NothingSaid } from "./begin";
import { parts } from "./blocks";
import { plural } from "./format";
import { Icon } from "./icons";
import { onFrame, spend } from "./frame";
import { RowView } from "./row";
import type { Row } from "./rows";
import { act, announce, busy, loaded, moment, older, people, rows, session } from "./store";

type List = Virtualizer<HTMLDivElement, HTMLDivElement>;

const nearEnd = 80; // pixels
const ahead = 3000; // pixels above the reader that are left when an older page is read

/** The list that is on the screen, for keys that move in it. */
let shown: { list: List; rows: readonly Row[]; pinned: { current: boolean } } | undefined;

export function Transcript() {
  const all = rows.value;
  const scroller = useRef<HTMLDivElement>(null);
  const [, draw] = useState(0);
  const [atEnd, setAtEnd] = useState(true);
  const keyed = useRef({ all, key: (i: number): string | number => all[i]?.key ?? i });
  const rekeyed = !sameKeys(keyed.current.all, all);
  if (rekeyed) keyed.current = { all, key: (i) => all[i]?.key ?? i };
  const drawn = useRef<ReadonlySet<string>>(new Set());
  const pinned = useRef(true); // the reader is at the end, where the list stays when its height changes
  const last = useRef({ top: 0, height: 0 });
  const note = () => {
    const { scrollHeight: height, scrollTop: top } = scroller.current ?? { scrollHeight: 0, scrollTop: 0 };
    last.current = { top, height };
  };
  const options = {
    count: all.length,
    getScrollElement: () => scroller.current,
    estimateSize: (i: number) => estimate(all[i]!),
    getItemKey: keyed.current.key, // a new function makes the list place all rows again
    overscan: 8,
    paddingEnd: 24, // not of the last row, whose height would change with each new one
    anchorTo: "end" as const,
    followOnAppend: true,
    scrollEndThreshold: nearEnd,
    // A row that was just made has no content yet. The list's observer measures it before it is painted.
    measureElement: (row: HTMLDivElement, entry: ResizeObserverEntry | undefined, l: List) => {
      const i = l.indexFromElement(row);
      return entry ? measureElement(row, entry, l) : (l.itemSizeCache.get(all[i]!.key) ?? estimate(all[i]!));
    },
    observeElementRect,
    observeElementOffset,
    scrollToFn: (offset: number, how: Parameters<typeof elementScroll>[1], l: List) => {
      elementScroll(offset, how, l);
      note(); // so that the event, which comes later, is not taken for a reader's
    },
    onChange: (l: List) => {
      draw((n) => n + 1);
      setAtEnd(l.isAtEnd(nearEnd));
      const { more, loading } = older.peek();
      if (ended.current && more && !loading && (l.scrollOffset ?? 0) < ahead) void readOlder();
    },
  };
  const [list] = useState<List>(() => new Virtualizer(options));
  const place = rekeyed && !pinned.current ? placeOf(list, all) : undefined;
  list.setOptions(options);
  const begun = loaded.value && all.length > 0;
  const ended = useRef(false); // the list was scrolled to its end
  const total = list.getTotalSize();
  const drawnTotal = useRef(0);
  // The rows at the end are the first to be drawn. The list itself follows only appended rows, and only from near the
  // end: many rows at once, or heights that were guessed too small, would leave it behind.
  const follow = begun && pinned.current && total !== drawnTotal.current;
  if (begun && (follow || !ended.current)) list.scrollOffset = Math.max(0, total - (list.scrollRect?.height ?? 0));
  if (place) list.scrollOffset = startOf(list, place.index) + place.below;
  useLayoutEffect(() => list._didMount(), [list]);
  useLayoutEffect(() => {
    list._willUpdate();
    if (place) scroller.current!.scrollTop = list.scrollOffset!;
    drawnTotal.current = total;
    if (follow) list.scrollToEnd();
  });
  useLayoutEffect(() => {
    shown = { list, rows: all, pinned };
    return () => {
      shown = undefined;
    };
  });
  useEffect(() => {
    const watch = new ResizeObserver(() => {
      if (pinned.current) list.scrollToEnd();
    });
    watch.observe(scroller.current!);
    return () => watch.disconnect();
  }, [list]);
  const scrolled = () => {
    if (!scroller.current) return; // the event comes a frame later, when the list may be gone
    const { scrollHeight: height, scrollTop: top, clientHeight: visible } = scroller.current;
    const by = last.current;
    if (height - top - visible < nearEnd) pinned.current = true;
    // A reader scrolled up; less content would leave the distance to the end as it was.
    else if (top < by.top && height - top > by.height - by.top) pinned.current = false;
    note();
  };
  const then = moment.value?.cursor;
  const [settled, setSettled] = useState(false); // rows are where their heights put them, and no longer guessed
  useLayoutEffect(() => {
    ended.current = begun;
    if (!begun) return;
    list.scrollToEnd();
    let frame = requestAnimationFrame(() => {
      frame = requestAnimationFrame(() => setSettled(true));
    });
    const late = setTimeout(() => setSettled(true), 250); // pages in the background have no frames
    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(late);
    };
  }, [begun, then, list]);

  const { gap, more, live } = older.value;
  const empty = loaded.value && all.length === 0;
  useEffect(() => {
    if (empty && more) void readOlder(); // nobody can scroll up here
  }, [empty, more, then]);

  // What becomes visible is drawn first. A row that has to wait keeps its place.
  const places = list.getVirtualItems();
  const [from, to] = [list.range?.startIndex ?? 0, list.range?.endIndex ?? 0];
  const visible = ({ index }: { index: number }) => index >= from && index <= to;
  const now = new Set<string>();
  for (const { index } of [...places.filter(visible), ...places.filter((p) => !visible(p))]) {
    const row = all[index];
    if (row && (drawn.current.has(row.key) || spend(weight(row)))) now.add(row.key);
  }
  useLayoutEffect(() => {
    drawn.current = now;
    return places.some(({ index }) => all[index] && !now.has(all[index].key))
      ? onFrame(() => draw((n) => n + 1))
      : undefined;
  });

  return (
    <>
      <div
        class="transcript"
        ref={scroller}
        role="log"
        aria-label="Conversation"
        aria-live="off"
        aria-busy={busy.value}
        tabIndex={0}
        onScroll={scrolled}
      >
        {(gap || more) && (
          <p class="older meta">
            {more ? "Earlier turns are loaded as you scroll up." : "What was before is not kept any more."}
          </p>
        )}
        <div class={settled ? "rows" : "rows unsettled"} style={{ height: `${list.getTotalSize()}px` }}>
          {places.map((at) => {
            const row = all[at.index];
            return (
              row &&
              now.has(row.key) && (
                <Placed
                  key={row.key}
                  row={row}
                  index={at.index}
                  start={at.start}
                  list={list}
                />
              )
            );
          })}
        </div>
        {empty && !more && !people.value?.prompts.length && <NothingSaid />}
      </div>
      {(!live || (!atEnd && all.length > 0)) && (
        <div class="anchor">
          <button type="button" class="button jump" onClick={toEnd}>
            <Icon sign="down" />
            {busy.value ? "Follow the answer" : "To the end"}
          </button>
        </div>
      )}
    </>
  );
}

/**
 * placeOf returns where the reader is in new rows, if the first row on the screen is not among them: the beginning of a
 * text or a call came with an older page, and they are one row now. In all other cases the list keeps the place.
 */
function placeOf(list: List, all: readonly Row[]): { index: number; below: number } | undefined {
  const offset = list.scrollOffset ?? 0;
  const indexes = new Map(all.map((row, i): [unknown, number] => [row.key, i]));
  const seen = list.getVirtualItems().filter((v) => v.end > offset);
  const stays = seen.find((v) => indexes.has(v.key));
  return stays && stays !== seen[0] ? { index: indexes.get(stays.key)!, below: offset - stays.start } : undefined;
}

function startOf(list: List, index: number): number {
  list.getTotalSize(); // places the rows
  return list.measurementsCache[index]!.start;
}

function sameKeys(a: readonly Row[], b: readonly Row[]): boolean {
  return a === b || (a.length === b.length && a.every((row, i) => row === b[i] || row.key === b[i]!.key));
}

function Placed({
  row,
  index,
  start,
  list,
}: {
  row: Row;
  index: number;
  start: number;
  list: List;
}) {
  const body = useMemo(() => <RowView row={row} />, [row]);
  return (
    <div class="row" data-index={index} ref={list.measureElement} style={{ top: `${start}px` }}>
      {body}
    </div>
  );
}

async function readOlder(): Promise<void> {
  await act((s) => (moment.peek() ?? s).transcript.older());
}

// estimate guesses the height of a row that was never drawn.
function estimate(row: Row): number {
  switch (row.kind) {
    case "prompt":
      return 92 + 24 * Math.min(12, Math.ceil(row.item.prompt.content.length / 80));
    case "block":
      return 12 + 24 * Math.ceil(row.text.length / 84);
    case "command":
      return row.item.output ? 200 : 36;
    default:
      return 28;
  }
}

// weight is how much work a row is that was not drawn yet: its characters, and more for what becomes an element.
function weight(row: Row): number {
  if (row.kind === "block") return row.text.length + 16 * parts(row.text);
  const args: unknown = row.kind === "tool" ? row.item.call?.args : undefined;
  const texts = typeof args === "object" && args !== null ? Object.values(args) : [];
  return texts.reduce((n: number, t) => n + (typeof t === "string" ? t.length : 0), 500);
}

export function toEnd(): void {
  const s = moment.peek() ?? session.peek();
  if (s && !s.transcript.live) void act(() => s.transcript.toEnd());
  if (!shown) return;
  shown.pinned.current = true;
  shown.list.scrollToEnd();
}

// leaveEnd scrolls to a row. What is appended no longer moves the list, unless the row is at its end.
function leaveEnd(index: number, align: "start" | "center"): void {
  shown!.pinned.current = false;
  shown!.list.scrollToIndex(index, { align });
}

/** step moves to the previous or next prompt. */
export function step(by: 1 | -1): void {
  if (!shown) return;
  const { list, rows: all } = shown;
  const top = (list.scrollOffset ?? 0) + 1;
  const prompts = all.flatMap((r, i) => (r.kind === "prompt" ? [i] : []));
  const starts = prompts.map((i) => list.getOffsetForIndex(i, "start")?.[0] ?? 0);
  const next = by > 0 ? starts.findIndex((s) => s > top + 1) : starts.findLastIndex((s) => s < top - 2);
  if (next < 0) return by > 0 ? toEnd() : void readOlder();
  leaveEnd(prompts[next]!, "start");
  announce(`Turn ${next + 1} of ${plural(prompts.length, "turn")}`);
}

/** goTo shows the row of a prompt, if it is loaded. */
export function goTo(cursor: number): boolean {
  const index = shown?.rows.findIndex((r) => r.kind === "prompt" && r.item.cursor === cursor) ?? -1;
  if (index < 0) return false;
  leaveEnd(index, "start");
  return true;
}

/** show scrolls to a row once it is in the list. */
export function show(key: string): void {
  requestAnimationFrame(() => {
    const index = shown?.rows.findIndex((r) => r.key === key) ?? -1;
    if (index >= 0) leaveEnd(index, "center");
  });
}

/** useVisible sets the height that a virtual keyboard leaves. */
export function useVisible(): void {
  useEffect(() => {
    const view = window.visualViewport;
    if (!view) return;
    const fit = () => {
      document.documentElement.style.setProperty("--visible", `${view.height}px`);
      if (window.scrollY > 0) window.scrollTo(0, 0);
    };
    fit();
    view.addEventListener("resize", fit);
    return () => view.removeEventListener("resize", fit);
  }, []);
}
