// The right column: who is here, and the turns of the whole session to jump by.
import { useEffect, useState } from "preact/hooks";
import type { ConnectionState, HistoryTurn } from "../client/index.ts";
import { ago, duration, exact, plural, who } from "./format";
import { Icon, type Sign } from "./icons";
import {
  act,
  busy,
  control,
  mayShare,
  nameOf,
  now,
  openID,
  ownName,
  people,
  session,
  state,
  turns,
} from "./store";
import { settingsOpen } from "./settings";
import { Shares } from "./share";
import { goTo } from "./transcript";

export function Panel({ close }: { close: () => void }) {
  return (
    <aside class="side right" id="panel" aria-label="People and turns">
      <div class="brand">
        <strong class="grow">People and turns</strong>
        <button type="button" class="button quiet square" aria-label="Close" onClick={close}>
          <Icon sign="cross" />
        </button>
      </div>
      <div class="panel">
        <People />
        {mayShare() && <Shares key={openID.value} />}
        <Turns key={openID.value} close={close} />
      </div>
    </aside>
  );
}

function People() {
  const s = state.value;
  const me = session.value?.me?.connectionId;
  const list = s?.connections ?? [];
  const hidden = (s?.connection_count ?? 0) - list.length;
  return (
    <section>
      <h2>Here now</h2>
      <ul>
        {list.map((c) => (
          <li class="person" key={c.connection_id}>
            <span class="grow cut">
              {c.connection_id === me ? <b>You</b> : (nameOf(c.connection_id) ?? c.client_info?.name ?? "somebody")}
            </span>
            <span class="meta">{roleOf(c)}</span>
          </li>
        ))}
        {hidden > 0 && <li class="meta">and {plural(hidden, "other")}</li>}
      </ul>
      <button
        type="button"
        class="button quiet"
        onClick={() => {
          settingsOpen.value = true;
        }}
      >
        Your name: {ownName() || "none"}
      </button>
    </section>
  );
}

function roleOf(c: ConnectionState): string {
  if (c.connection_id === control.value.holder) return "drives";
  return c.may_answer ? "answers" : c.role === "controller" ? "may drive" : "watches";
}

const outcomes: Record<HistoryTurn["outcome"], { sign: Sign; tone: string; word: string }> = {
  completed: { sign: "check", tone: "good", word: "completed" },
  failed: { sign: "alert", tone: "bad", word: "failed" },
  cancelled: { sign: "stop", tone: "", word: "stopped" },
  running: { sign: "run", tone: "spin", word: "running" },
};

function Turns({ close }: { close: () => void }) {
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
    if (matchMedia("(max-width: 1099px)").matches) close();
    if (goTo(turn.cursor)) return;
    const next = list[i - 1];
    void act((s) => (next ? s.transcript.jump(next.cursor) : s.transcript.toEnd()));
  };
  return (
    <section class="turns">
      <h2>Turns</h2>
      {list.length === 0 && <p class="meta">None yet.</p>}
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
