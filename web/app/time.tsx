// The time line of a session, and what stands around the conversation while the page shows the past.
import { useMemo, useRef, useState } from "preact/hooks";
import { plural } from "./format";
import { Icon } from "./icons";
import {
  backToLive,
  first,
  leap,
  linkTo,
  lookAt,
  play,
  sought,
  speed,
  spoken,
  timeAt,
  timeOf,
  turnAt,
  turns,
  walk,
} from "./look";
import { narrow } from "./screen";
import { head, moment } from "./store";

const speeds = [1, 4, 16];
const places = 300; // of marks on the line
const nearLive = 0.992; // of the line; what is dragged there is live again

/** focusLine gives the time line the focus; on a page without one, the page looks back first. */
export function focusLine(): void {
  const line = () => document.querySelector<HTMLElement>(".line-slider");
  if (line()) line()!.focus();
  else void lookAt(head.peek()).then(() => requestAnimationFrame(() => line()?.focus()));
}

type Mark = { at: number; kind: "turn" | "asked" | "failed" };

const rank = { turn: 0, asked: 1, failed: 2 };

/** marksOf returns at most one mark for each place of the line, the most important one. */
function marksOf(from: number, to: number): Mark[] {
  const marks = new Map<number, Mark>();
  const put = (cursor: number, kind: Mark["kind"]) => {
    const at = (cursor - from) / Math.max(1, to - from);
    if (at < 0 || at > 1) return;
    const place = Math.round(at * places);
    const old = marks.get(place);
    if (!old || rank[old.kind] < rank[kind]) marks.set(place, { at, kind });
  };
  for (const t of turns.value) {
    put(t.cursor, "turn");
    for (const q of t.questions) put(q, "asked");
    if (t.outcome === "failed") put(t.end || t.cursor, "failed");
  }
  return [...marks.values()];
}

/** TimeLine shows turns, questions and failures of the whole session, and moves to any moment of it. */
function TimeLine({ across = false }: { across?: boolean }) {
  const line = useRef<HTMLDivElement>(null);
  const [hint, setHint] = useState<number | null>(null); // the cursor under the pointer
  const from = first.value;
  const to = Math.max(head.value, from + 1);
  const now = sought.value || to;
  // The line ends a little after the newest event, so that its marks do not move with every event.
  const grain = 2 ** Math.max(0, Math.floor(Math.log2((to - from) / places)));
  const end = from + Math.ceil((to - from) / grain) * grain;
  const marks = useMemo(() => marksOf(from, end), [turns.value, from, end]);
  const share = (cursor: number) => `${Math.max(0, Math.min(1, (cursor - from) / (end - from))) * 100}%`;
  const place = (cursor: number) => (across ? { left: share(cursor) } : { top: share(cursor) });
  const under = (e: PointerEvent) => {
    const { left, top, width, height } = line.current!.getBoundingClientRect();
    const at = across ? (e.clientX - left) / width : (e.clientY - top) / height;
    return at > nearLive ? to : Math.min(to, from + Math.max(0, at) * (end - from));
  };
  const go = (e: PointerEvent) => {
    const cursor = under(e);
    setHint(cursor);
    speed.value = 0;
    if (cursor < to || moment.peek()) void lookAt(cursor);
  };
  const keys = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "ArrowLeft" || e.key === "ArrowUp") void walk(-1);
    else if (e.key === "ArrowRight" || e.key === "ArrowDown") void walk(1);
    else if (e.key === "PageUp") leap(-1);
    else if (e.key === "PageDown") leap(1);
    else if (e.key === "Home") void lookAt(from);
    else if (e.key === "End") backToLive();
    else return;
    setHint(null);
    e.preventDefault();
    e.stopPropagation();
  };
  const told = hint === null ? undefined : turns.value[turnAt(hint)];
  return (
    <div
      class={`line-slider ${across ? "across" : ""} ${sought.value ? "past" : ""}`}
      role="slider"
      tabIndex={0}
      aria-label="Time line"
      aria-orientation={across ? "horizontal" : "vertical"}
      aria-valuemin={from}
      aria-valuemax={to}
      aria-valuenow={Math.round(now)}
      aria-valuetext={spoken.value}
      onKeyDown={keys}
      onPointerDown={(e) => {
        if (e.button !== 0) return;
        e.currentTarget.setPointerCapture(e.pointerId);
        go(e);
      }}
      onPointerMove={(e) => (e.currentTarget.hasPointerCapture(e.pointerId) ? go(e) : setHint(under(e)))}
      onPointerUp={(e) => {
        if (under(e) >= to) backToLive();
        if (e.pointerType !== "mouse") setHint(null);
      }}
      onPointerLeave={() => setHint(null)}
    >
      <div class="groove" ref={line}>
        {marks.map((m) => (
          <i key={m.at} class={m.kind} style={across ? { left: `${m.at * 100}%` } : { top: `${m.at * 100}%` }} />
        ))}
        <b class="thumb" style={place(now)} />
        {hint !== null && (
          <span class="instant meta" style={place(hint)} aria-hidden="true">
            <b>{hint >= to ? "Live" : timeOf(timeAt(hint))}</b>
            {told && <span class="cut">{told.line}</span>}
          </span>
        )}
      </div>
    </div>
  );
}

/** SideLine is the time line beside the conversation; on a phone it is in the strip instead. */
export function SideLine() {
  return narrow.value || turns.value.length === 0 ? null : <TimeLine />;
}

/** PastStrip says which moment is shown, and leads on from there. */
export function PastStrip() {
  const m = moment.value;
  if (!m) return null;
  const later = head.value - m.cursor;
  const playing = speed.value;
  return (
    <section class="strip past-strip" aria-label="The past">
      <p class="grow">
        <Icon sign="clock" />
        <span>
          You look at <time dateTime={new Date(m.at).toISOString()}>{timeOf(m.at)}</time>.{" "}
          <span class="meta">
            {later > 0 ? `Live goes on, ${plural(later, "event")} later.` : "This is the newest event."}
          </span>
        </span>
      </p>
      <span class="player" role="group" aria-label="Play the past">
        <button type="button" class="button quiet square" aria-label="Step back" onClick={() => void walk(-1)}>
          <Icon sign="left" />
        </button>
        <button
          type="button"
          class="button quiet square"
          aria-label={playing ? "Pause" : "Play"}
          onClick={() => play(playing ? 0 : 1)}
        >
          <Icon sign={playing ? "pause" : "play"} />
        </button>
        <button type="button" class="button quiet square" aria-label="Step on" onClick={() => void walk(1)}>
          <Icon sign="right" />
        </button>
        {speeds.map((times) => (
          <button
            type="button"
            class="button quiet times"
            key={times}
            aria-label={`Play ${times} times as fast`}
            aria-pressed={playing === times}
            onClick={() => play(playing === times ? 0 : times)}
          >
            {times}×
          </button>
        ))}
      </span>
      {navigator.clipboard && <CopyLink cursor={m.cursor} />}
      {narrow.value && <TimeLine across />}
      <button type="button" class="button primary back" onClick={backToLive}>
        Back to live{" "}
        <kbd class="only-wide" aria-hidden="true">
          G
        </kbd>
      </button>
    </section>
  );
}

function CopyLink({ cursor }: { cursor: number }) {
  const [copied, setCopied] = useState(0);
  const done = copied === cursor;
  return (
    <button
      type="button"
      class="button quiet square only-wide"
      title="Copy a link to this moment"
      aria-label={done ? "Copied" : "Copy a link to this moment"}
      onClick={() => void navigator.clipboard.writeText(linkTo(cursor)).then(() => setCopied(cursor))}
    >
      <Icon sign={done ? "check" : "copy"} />
    </button>
  );
}

/** PastEnd stands in place of the composer while the page shows the past. */
export function PastEnd() {
  const m = moment.value;
  if (!m) return null;
  return (
    <div class="closed">
      <p>This is the past. Nothing can be sent or answered here.</p>
    </div>
  );
}
