// The dashboard: what all sessions are doing, to look at and not to touch.
import { effect, signal } from "@preact/signals";
import type { InboxQuestion, SessionSummary } from "../client/index.ts";
import { Exposed } from "./long";
import { ago, cost, exact, plural, who } from "./format";
import { Icon } from "./icons";
import { beginning, Top } from "./inbox";
import { place, questions } from "./lists";
import { groups, signs, titleOf } from "./sidebar";
import { address, listLink, moreSessions, now, sessions } from "./store";

const span = 60_000; // over which events are counted

// Samples are the cursors of a session in the last minute, the oldest first.
const samples = new Map<string, { at: number; cursor: number }[]>();
const rates = signal<ReadonlyMap<string, number>>(new Map());

effect(() => {
  if (place.value !== "dashboard") return samples.clear();
  const at = Math.max(now.value, Date.now());
  const counted = new Map<string, number>();
  for (const s of sessions.value) {
    const old = (samples.get(s.session_id) ?? []).filter((o) => at - o.at < span);
    const last = old.at(-1);
    if (s.cursor > (last?.cursor ?? -1)) old.push({ at, cursor: s.cursor });
    samples.set(s.session_id, old.slice(-120));
    counted.set(s.session_id, old.length > 0 ? s.cursor - old[0]!.cursor : 0);
  }
  for (const id of samples.keys()) if (!counted.has(id)) samples.delete(id);
  rates.value = counted;
});

export function Dashboard({ list }: { list: () => void }) {
  const all = sessions.value;
  const asked = new Map<string, InboxQuestion>();
  for (const q of questions.value) if (!asked.has(q.session_id)) asked.set(q.session_id, q);
  const order = groups.flatMap(({ of }) => all.filter((s) => of.includes(s.status)));
  return (
    <>
      <Top title="Dashboard" list={list}>
        <span class="meta counts">
          {groups.map(({ title, of }) => {
            const n = all.filter((s) => of.includes(s.status)).length;
            const word = title === "Needs you" ? "waiting" : title.toLowerCase();
            return n > 0 && <span key={title}>{`${n} ${word}`}</span>;
          })}
        </span>
      </Top>
      <div class="board" tabIndex={0} role="region" aria-label="Sessions">
        {[order.filter((s) => s.status in signs), order.filter((s) => !(s.status in signs))].map((part, i) => (
          <ul key={i} class={i === 1 ? "calm" : ""}>
            {part.map((s) => (
              <li key={s.session_id}>
                <Tile session={s} question={asked.get(s.session_id)} />
              </li>
            ))}
          </ul>
        ))}
        {all.length === 0 && listLink.value.status === "online" && <p class="rest">No sessions yet.</p>}
        {moreSessions.value && <p class="meta">These are not all sessions. The others can be found by a search.</p>}
      </div>
    </>
  );
}

function Tile({ session: s, question }: { session: SessionSummary; question: InboxQuestion | undefined }) {
  const at = Date.parse(s.updated_at);
  const sign = signs[s.status];
  const rate = rates.value.get(s.session_id) ?? 0;
  const asks = question && beginning(question);
  return (
    <a class={`tile ${s.status}`} href={address(s.session_id)}>
      <span class="title cut">{titleOf(s, s.session_id)}</span>
      <time class="meta" dateTime={s.updated_at} title={exact(at)}>
        {ago(at, now.value)}
      </time>
      <span class="doing">
        {sign && <Icon sign={sign.sign} tone={sign.tone} />}
        <span class={`cut ${!sign || sign.tone === "spin" ? "" : sign.tone}`}>
          {asks ? <Exposed text={asks.asks} /> : (sign?.words ?? (s.status === "at_rest" ? "at rest" : "idle"))}
        </span>
      </span>
      {asks?.code && (
        <code class="cut">
          <Exposed text={asks.code} />
        </code>
      )}
      <span class="facts meta">
        {s.author && <span class="cut">{who(s.author)}</span>}
        {s.pending_request_count > 1 && <span>{plural(s.pending_request_count, "question")}</span>}
        {rate > 0 && <span>{plural(rate, "event")}/min</span>}
        {cost(s.total_cost_usd) && <span>{cost(s.total_cost_usd)}</span>}
      </span>
    </a>
  );
}
