// The right column in tabs: files, changes, who is here, and the turns of the whole session to jump by.
import { useEffect, useState } from "preact/hooks";
import type { Author, ConnectionState, HistoryTurn } from "../client/index.ts";
import { Changes, changed } from "./changes";
import { Files } from "./files";
import { ago, duration, exact, plural, who } from "./format";
import { Icon, type Outcome } from "./icons";
import { backToLive, lookAt } from "./look";
import {
  act,
  busy,
  control,
  head,
  mayShare,
  moment,
  nameOf,
  now,
  nowState,
  openID,
  ownName,
  people,
  server,
  session,
  turns,
} from "./store";
import { settingsOpen } from "./settings";
import { Shares } from "./share";
import { closeSheet, paneled, showTab, type Tab, tab, tabs } from "./side";
import { goTo } from "./transcript";

const names: Record<Tab, string> = { files: "Files", changes: "Changes", people: "People", turns: "Turns" };

export function Panel() {
  const shown = tab.value;
  const move = (e: KeyboardEvent) => {
    const at = tabs.indexOf(shown);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const next = tabs[(to + tabs.length) % tabs.length]!;
    showTab(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <aside class="side right" id="panel" aria-label="Files, changes, people and turns" ref={restoreWidth}>
      <Edge />
      <div class="tabs">
        <div role="tablist" aria-label="Right column" onKeyDown={move}>
          {tabs.map((t) => (
            <button
              type="button"
              key={t}
              id={`tab-${t}`}
              role="tab"
              aria-selected={t === shown}
              aria-controls="tab-panel"
              tabIndex={t === shown ? 0 : -1}
              onClick={() => showTab(t)}
            >
              {names[t]}
              {t === "changes" && changed.value.length > 0 && <span class="count">{changed.value.length}</span>}
            </button>
          ))}
        </div>
        <button
          type="button"
          class="button quiet square"
          aria-label="Close"
          onClick={() => {
            paneled.value = false;
          }}
        >
          <Icon sign="cross" />
        </button>
      </div>
      <div
        class={`panel ${shown}`}
        id="tab-panel"
        role="tabpanel"
        aria-labelledby={`tab-${shown}`}
        tabIndex={shown === "changes" ? 0 : undefined}
      >
        {shown === "files" && <Files key={openID.value} />}
        {shown === "changes" && <Changes key={openID.value} />}
        {shown === "people" && (
          <>
            <People />
            {mayShare() && <Shares key={openID.value} />}
          </>
        )}
        {shown === "turns" && <Turns key={openID.value} />}
      </div>
    </aside>
  );
}

const narrowest = 300; // pixels
const conversation = 420; // pixels that the conversation keeps

function widest(): number {
  const { left } = document.querySelector(".main")!.getBoundingClientRect();
  return Math.max(narrowest, Math.floor(innerWidth - left - conversation));
}

const kept = "maestro.panel"; // the width that somebody chose

function setWidth(aside: HTMLElement, width: number): number {
  const fit = Math.round(Math.min(Math.max(width, narrowest), widest()));
  aside.style.setProperty("--chosen", `${fit}px`);
  aside.classList.add("sized");
  tellWidth(aside);
  return fit;
}

function chooseWidth(aside: HTMLElement, width: number): void {
  localStorage.setItem(kept, String(setWidth(aside, width)));
}

/** tellWidth says to screen readers how wide the column is. */
function tellWidth(aside: HTMLElement): void {
  const edge = aside.querySelector(".edge")!;
  edge.ariaValueMin = String(narrowest);
  edge.ariaValueMax = String(widest());
  edge.ariaValueNow = String(aside.clientWidth);
}

/** restoreWidth gives the column the chosen width. A small window does not change the choice. */
function restoreWidth(aside: HTMLElement | null): void {
  const width = Number(localStorage.getItem(kept));
  if (aside && width > 0) setWidth(aside, width);
  else if (aside) tellWidth(aside);
}

/** Edge is the left edge of the column, which somebody can move to change its width. */
function Edge() {
  const move = (e: PointerEvent & { currentTarget: HTMLElement }) => {
    const { currentTarget: edge, pointerId, clientX } = e;
    if (edge.hasPointerCapture(pointerId)) chooseWidth(edge.parentElement!, innerWidth - clientX);
  };
  return (
    <div
      class="edge"
      role="separator"
      aria-orientation="vertical"
      aria-label="Width of the right column"
      aria-controls="panel"
      tabIndex={0}
      onPointerDown={(e) => {
        e.preventDefault();
        e.currentTarget.setPointerCapture(e.pointerId);
      }}
      onPointerMove={move}
      onDblClick={(e) => {
        localStorage.removeItem(kept);
        e.currentTarget.parentElement!.classList.remove("sized");
      }}
      onKeyDown={(e) => {
        const by = { ArrowLeft: 24, ArrowRight: -24 }[e.key];
        const aside = e.currentTarget.parentElement!;
        if (by === undefined) return;
        e.preventDefault();
        chooseWidth(aside, aside.clientWidth + by);
      }}
    />
  );
}

const none: ConnectionState[] = [];

function People() {
  const s = nowState.value;
  const me = session.value?.me?.connectionId;
  const list = s?.connections ?? none;
  const [names, setNames] = useState<ReadonlyMap<string | undefined, Author>>(new Map());
  useEffect(() => {
    if (list.every((c) => names.has(c.connection_id))) return;
    const calm = setTimeout(() => {
      server.connections(openID.peek()!).then(
        (l) => setNames(new Map(l.connections.map(({ author }) => [author.connection_id, author]))),
        () => {}, // the connection is lost: the names stay
      );
    }, 300); // many come at once after a restart of the server
    return () => clearTimeout(calm);
  }, [list]);
  const name = (c: ConnectionState) => {
    const author = names.get(c.connection_id);
    return author ? who(author) : (nameOf(c.connection_id) ?? c.client_info?.name ?? "somebody");
  };
  const hidden = (s?.connection_count ?? 0) - list.length;
  return (
    <section>
      <h2>Here now</h2>
      <ul>
        {list.map((c) => (
          <li class="person" key={c.connection_id}>
            <span class="grow cut">
              {c.connection_id === me ? <b>You</b> : name(c)}
            </span>
            <span class="meta">{roleOf(c)}</span>
          </li>
        ))}
        {hidden > 0 && <li class="meta">and {plural(hidden, "other")}</li>}
      </ul>
      <button
        type="button"
        class="button quiet flush"
        onClick={() => {
          settingsOpen.value = true;
        }}
      >
        <Icon sign="pen" />
        Your name: {ownName() || "none"}
      </button>
    </section>
  );
}

function roleOf(c: ConnectionState): string {
  if (c.connection_id === control.value.holder) return "drives";
  return c.may_answer ? "answers" : c.role === "controller" ? "may drive" : "watches";
}

const outcomes: Record<HistoryTurn["outcome"], Outcome> = {
  completed: { sign: "check", tone: "good", word: "completed" },
  failed: { sign: "alert", tone: "bad", word: "failed" },
  cancelled: { sign: "stop", tone: "", word: "stopped" },
  running: { sign: "run", tone: "spin", word: "running" },
};

function Turns() {
  const [list, setList] = useState<HistoryTurn[]>([]);
  const [before, setBefore] = useState<number | null>(null);
  const running = busy.value;
  const prompts = people.value?.prompts.length ?? 0;
  useEffect(() => {
    let gone = false;
    turns().then(
      (page) => {
        if (gone) return;
        setList(page.turns);
        setBefore(page.before);
      },
      () => {},
    ); // the connection is lost: the list stays as it was
    return () => {
      gone = true;
    };
  }, [running, prompts]);
  const jump = (turn: HistoryTurn, i: number) => {
    closeSheet();
    backToLive();
    if (goTo(turn.cursor)) return;
    const next = list[i - 1];
    void act((s) => (next ? s.transcript.jump(next.cursor) : s.transcript.toEnd()));
  };
  return (
    <section class="turns">
      <h2 class="unseen">Turns</h2>
      {list.length === 0 && <p class="meta">None yet.</p>}
      {list.length > 0 && !moment.value && (
        <button
          type="button"
          class="button back"
          onClick={() => {
            closeSheet();
            void lookAt(head.peek());
          }}
        >
          <Icon sign="clock" />
          Look back
        </button>
      )}
      <ol>
        {list.map((t, i) => {
          const { sign, tone, word } = outcomes[t.outcome];
          const at = Date.parse(t.at);
          return (
            <li key={t.cursor}>
              <button type="button" onClick={() => jump(t, i)}>
                <Icon sign={sign} tone={tone} label={word} />
                <span class="cut">{t.line}</span>
                <span class="meta" title={exact(at)}>
                  {[t.author && who(t.author), ago(at, now.value), t.duration_ms !== null && duration(t.duration_ms)]
                    .filter(Boolean)
                    .join(" · ")}
                </span>
              </button>
            </li>
          );
        })}
      </ol>
      {before !== null && list.length > 0 && (
        <button
          type="button"
          class="button quiet"
          onClick={() =>
            void turns(before).then((page) => {
              setList([...list, ...page.turns]);
              setBefore(page.before);
            })
          }
        >
          Earlier turns
        </button>
      )}
    </section>
  );
}
