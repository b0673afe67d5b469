// The dashboard shows what all sessions are doing. Nothing can be changed there.
import { effect, signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { InboxQuestion, SessionSummary } from "../client/index.ts";
import { Exposed } from "./long";
import { ago, cost, exact, plural, second, who } from "./format";
import { Icon } from "./icons";
import { beginning, Top } from "./inbox";
import { dialogOpen } from "./keys";
import { place, questions, wall } from "./lists";
import { groups, signs, titleOf } from "./sidebar";
import { address, heard, listLink, moreSessions, now, sessions } from "./store";

const bucket = 2_000; // ms in which events are counted; the server tells of running sessions as often
const buckets = 30;
const silence = 20_000; // ms without news from the server, after which the page is behind

/** A Pulse is how many events a session had in each of the last buckets, the newest last. */
interface Pulse {
  cursor: number;
  counts: number[];
}

const pulses = signal<ReadonlyMap<string, Pulse>>(new Map());
/** how long the server has been silent, in ms */
const lag = signal(0);

effect(() => {
  if (place.value !== "dashboard") return;
  const timer = setInterval(() => {
    lag.value = Date.now() - heard();
    pulses.value = new Map([...pulses.peek()].map(([id, p]) => [id, { ...p, counts: [...p.counts.slice(1), 0] }]));
  }, bucket);
  return () => {
    clearInterval(timer);
    pulses.value = new Map();
  };
});

effect(() => {
  if (place.value !== "dashboard") return;
  const known = pulses.peek();
  pulses.value = new Map(
    sessions.value.map((s): [string, Pulse] => {
      const { cursor, counts } = known.get(s.session_id) ?? {
        cursor: s.cursor,
        counts: Array<number>(buckets).fill(0),
      };
      const more = Math.max(0, s.cursor - cursor);
      return [
        s.session_id,
        { cursor: s.cursor, counts: more > 0 ? [...counts.slice(0, -1), counts.at(-1)! + more] : counts },
      ];
    }),
  );
  lag.value = Math.max(0, Date.now() - heard());
});

export function Dashboard({ list }: { list: () => void }) {
  const all = sessions.value;
  const asked = new Map<string, InboxQuestion>();
  for (const q of questions.value) if (!asked.has(q.session_id)) asked.set(q.session_id, q);
  const board = useRef<HTMLDivElement>(null);
  const parts = groups
    .map(({ title, of }) => ({ title, of: all.filter((s) => of.includes(s.status)) }))
    .filter(({ of }) => of.length > 0);
  const first = parts[0]?.of[0]?.session_id;
  return (
    <>
      {wall.value ? (
        <Wall parts={parts} />
      ) : (
        <Top title="Dashboard" list={list}>
          <Lag />
          <button
            type="button"
            class="button quiet only-wide"
            onClick={() => {
              location.hash = "#dashboard=wall";
              // A browser may refuse; then the dashboard fills the window.
              void document.documentElement.requestFullscreen?.().catch(() => {});
            }}
          >
            Whole screen
          </button>
        </Top>
      )}
      <div class={`board ${wall.value ? "wall" : ""}`} ref={board} onKeyDown={(e) => move(board.current!, e)}>
        {parts.map(({ title, of }) => (
          <section key={title} class={title.toLowerCase().replace(" ", "-")} aria-label={title}>
            <h2>
              {title} <span>{of.length}</span>
            </h2>
            <ul>
              {of.map((s) => (
                <li key={s.session_id}>
                  <Tile session={s} question={asked.get(s.session_id)} first={s.session_id === first} />
                </li>
              ))}
            </ul>
          </section>
        ))}
        {all.length === 0 && listLink.value.status === "online" && <p class="rest">No sessions yet.</p>}
        {moreSessions.value && <p class="meta">These are not all sessions. The others can be found by a search.</p>}
      </div>
    </>
  );
}

/** Lag says whether the page is up to date. */
function Lag() {
  const behind = listLink.value.status !== "online" || lag.value > silence;
  const at = Date.now() - lag.value;
  return (
    <span class={`lag meta ${behind ? "bad" : ""}`} role="status">
      <span class={`dot ${behind ? "" : "good"}`} aria-hidden="true" />
      {!behind
        ? "Up to date"
        : heard() === 0
          ? "Connecting…"
          : `As of ${second(at)}, ${Math.round(lag.value / 1000)} s behind`}
    </span>
  );
}

/** Wall is the head of a dashboard that fills the screen. */
function Wall({ parts }: { parts: { title: string; of: SessionSummary[] }[] }) {
  useLayoutEffect(() => {
    const leave = () => {
      if (document.fullscreenElement) void document.exitFullscreen();
      location.hash = "#dashboard";
    };
    const changed = () => {
      if (!document.fullscreenElement) leave();
    };
    const keys = (e: KeyboardEvent) => {
      if (e.key === "Escape" && !dialogOpen()) leave();
    };
    document.addEventListener("fullscreenchange", changed);
    addEventListener("keydown", keys);
    return () => {
      document.removeEventListener("fullscreenchange", changed);
      removeEventListener("keydown", keys);
    };
  }, []);
  return (
    <header class="wall-head">
      <h1 class="unseen">Dashboard</h1>
      {parts.map(({ title, of }) => (
        <span key={title} class={`total ${title.toLowerCase().replace(" ", "-")}`}>
          <b>{of.length}</b> {title === "Needs you" ? "waiting" : title.toLowerCase()}
        </span>
      ))}
      <span class="grow" />
      <Lag />
      <a class="button quiet leave" href="#dashboard">
        Leave <kbd aria-hidden="true">Esc</kbd>
      </a>
    </header>
  );
}

/** move goes to another tile by the arrows, J and K. */
function move(board: HTMLElement, e: KeyboardEvent): void {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const tiles = [...board.querySelectorAll<HTMLElement>(".tile")];
  const at = tiles.indexOf(document.activeElement as HTMLElement);
  const from = tiles[at]?.getBoundingClientRect();
  /** next is the tile in the next or previous row that is closest to this one. */
  const next = (by: 1 | -1) => {
    if (!from) return undefined;
    const boxes = tiles.map((t) => t.getBoundingClientRect());
    const other = boxes.filter((b) => (by > 0 ? b.top >= from.bottom : b.bottom <= from.top));
    const row = by > 0 ? Math.min(...other.map((b) => b.top)) : Math.max(...other.map((b) => b.top));
    const near = other
      .filter((b) => b.top === row)
      .sort((a, b) => Math.abs(a.left - from.left) - Math.abs(b.left - from.left));
    return tiles[boxes.indexOf(near[0]!)];
  };
  const to = {
    ArrowRight: tiles[at + 1],
    j: tiles[at + 1],
    ArrowLeft: tiles[at - 1],
    k: tiles[at - 1],
    ArrowDown: next(1),
    ArrowUp: next(-1),
    Home: tiles[0],
    End: tiles.at(-1),
  }[e.key];
  if (!to) return;
  e.preventDefault();
  e.stopPropagation();
  to.focus();
  to.scrollIntoView({ block: "nearest" });
}

type TileProps = { session: SessionSummary; question: InboxQuestion | undefined; first: boolean };

function Tile({ session: s, question, first }: TileProps) {
  const at = Date.parse(s.updated_at);
  const sign = signs[s.status];
  const pulse = pulses.value.get(s.session_id)?.counts ?? [];
  const rate = pulse.reduce((a, b) => a + b, 0);
  const asks = question && beginning(question);
  return (
    <a class={`tile ${s.status}`} href={address(s.session_id)} tabIndex={first ? 0 : -1}>
      <span class="title cut">{titleOf(s, s.session_id)}</span>
      <time class="meta" dateTime={s.updated_at} title={exact(at)}>
        {ago(at, now.value)}
      </time>
      <span class={`doing ${sign && sign.tone !== "spin" ? sign.tone : ""}`}>
        {sign && <Icon sign={sign.sign} tone={sign.tone} />}
        <span class="cut">
          {asks ? <Exposed text={asks.asks} /> : (sign?.words ?? (s.status === "at_rest" ? "at rest" : "idle"))}
        </span>
        {s.pending_request_count > 1 && <span class="needs">{plural(s.pending_request_count, "question")}</span>}
        {s.status === "running" && rate > 0 && <Spark counts={pulse} rate={rate} />}
      </span>
      {asks?.code && (
        <code>
          <Exposed text={asks.code} />
        </code>
      )}
      <span class="facts meta">
        <span class="cut grow">{driver(s)}</span>
        {cost(s.total_cost_usd) && <span>{cost(s.total_cost_usd)}</span>}
      </span>
    </a>
  );
}

function driver(s: SessionSummary): string {
  if (s.controller) return `${who(s.controller)} drives`;
  return s.status === "at_rest" ? (s.author ? `last ${who(s.author)}` : "") : "nobody drives";
}

/** Spark draws how many events there were lately. */
function Spark({ counts, rate }: { counts: readonly number[]; rate: number }) {
  const most = Math.max(8, ...counts);
  const bars = counts
    .map((n, i) => (n > 0 ? `M${i * 2 + 1} 12v${-Math.max(1, Math.round((n / most) * 12))}` : ""))
    .join("");
  return (
    <span class="rate" title="Events in the last minute">
      <svg viewBox="0 0 60 12" width={60} height={12} aria-hidden="true">
        <path d={bars} stroke="currentColor" stroke-width="1.5" />
      </svg>
      {plural(rate, "event")}/min
    </span>
  );
}
