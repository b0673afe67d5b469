// The list of sessions, by who needs somebody.
import type { SessionStatus, SessionSummary } from "../client/index.ts";
import { ago, cost, exact, initials, who } from "./format";
import icon from "./icon.svg";
import { Icon, type Sign } from "./icons";
import { needed, place } from "./lists";
import { found, More, Notice, Rename, renaming, Search } from "./manage";
import { logOut } from "./notify";
import { settingsOpen } from "./settings";
import { address, createSession, listLink, mayShare, now, openID, role, sessions } from "./store";

export const groups: { title: string; of: SessionStatus[] }[] = [
  { title: "Needs you", of: ["waiting"] },
  { title: "Failed", of: ["failed"] },
  { title: "Running", of: ["running"] },
  { title: "Idle", of: ["idle", "at_rest"] },
];

export const signs: Partial<Record<SessionStatus, { sign: Sign; tone: string; words: string }>> = {
  waiting: { sign: "attention", tone: "wait", words: "waits for an answer" },
  failed: { sign: "alert", tone: "bad", words: "failed" },
  running: { sign: "run", tone: "spin", words: "working" },
};

export function Sidebar({ pick, commands }: { pick: () => void; commands: () => void }) {
  const all = sessions.value;
  const hits = found.value?.map((f) => all.find((s) => s.session_id === f.session_id) ?? f);
  return (
    <nav class="side left" aria-label="Sessions" id="sessions">
      <div class="brand">
        <img src={icon} alt="" width={20} height={20} />
        <strong class="grow">Maestro</strong>
        {mayShare() && (
          <button
            type="button"
            class="button quiet square"
            title="New session"
            aria-label="New session"
            onClick={(e) => {
              if (e.detail > 1) return; // a double click
              pick();
              void createSession();
            }}
          >
            <Icon sign="plus" />
          </button>
        )}
      </div>
      <div class="places">
        <a class="place" href="#inbox" aria-current={place.value === "inbox" ? "page" : undefined} onClick={pick}>
          <Icon sign="tray" />
          <span class="grow">Inbox</span>
          {needed.value > 0 && <span class="needs">{needed.value}</span>}
        </a>
        <a
          class="place"
          href="#dashboard"
          aria-current={place.value === "dashboard" ? "page" : undefined}
          onClick={pick}
        >
          <Icon sign="tiles" />
          <span class="grow">Dashboard</span>
        </a>
      </div>
      <div class="search">
        <Search />
      </div>
      <div class="sessions">
        {hits && (
          <section>
            <h2>{hits.length === 0 ? "Nothing found" : "Found"}</h2>
            <Entries of={hits} pick={pick} />
          </section>
        )}
        {groups.map(({ title, of }) => {
          const part = all.filter((s) => of.includes(s.status));
          if (part.length === 0 || hits) return null;
          return (
            <section key={title}>
              <h2>
                {title}
              </h2>
              <Entries of={part} pick={pick} />
            </section>
          );
        })}
        {all.length === 0 && !hits && listLink.value.status === "online" && (
          <p class="empty">No sessions yet.{mayShare() && " Start one with a prompt."}</p>
        )}
      </div>
      <Notice />
      <div class="foot">
        <span class="grow">
          <ListState />
        </span>
        <button
          type="button"
          class="button quiet square"
          aria-label="Settings"
          title="Settings"
          onClick={() => {
            pick();
            settingsOpen.value = true;
          }}
        >
          <Icon sign="gear" />
        </button>
        <button type="button" class="button quiet" title="Ctrl+K" onClick={commands}>
          Commands
        </button>
        <button
          type="button"
          class="button quiet"
          onClick={() => {
            pick();
            void logOut();
          }}
        >
          Log out
        </button>
      </div>
    </nav>
  );
}

function ListState() {
  const { status } = listLink.value;
  const words =
    status === "online" ? "Connected" : status === "closed" ? "The list is not available" : "Reconnecting…";
  const tone = status === "online" ? "good" : status === "closed" ? "bad" : "wait";
  return <span class={`dot ${tone}`} role="img" aria-label={words} title={words} />;
}

/** A session of which only the id is known has no title: the id comes from a link, which anybody can write. */
export const titleOf = (s: SessionSummary | undefined, id: string | null) =>
  s?.title || (s || !id ? "New session" : "Session");

function Entries({ of, pick }: { of: readonly SessionSummary[]; pick: () => void }) {
  return (
    <ul>
      {of.map((s) => (
        <li key={s.session_id} class={role.value === "controller" ? "managed" : ""}>
          {renaming.value?.id === s.session_id ? <Rename session={s} /> : <Entry session={s} pick={pick} />}
          {role.value === "controller" && renaming.value?.id !== s.session_id && (
            <More session={s} title={titleOf(s, s.session_id)} />
          )}
        </li>
      ))}
    </ul>
  );
}

function Entry({ session: s, pick }: { session: SessionSummary; pick: () => void }) {
  const at = Date.parse(s.updated_at);
  const sign = signs[s.status];
  return (
    <a
      class="session"
      href={address(s.session_id)}
      aria-current={place.value === "session" && s.session_id === openID.value ? "page" : undefined}
      onClick={pick}
    >
      <span class="title cut">{titleOf(s, s.session_id)}</span>
      <time class="meta" dateTime={s.updated_at} title={exact(at)}>
        {ago(at, now.value)}
      </time>
      <span class="what meta">
        {sign ? (
          <>
            <Icon sign={sign.sign} tone={sign.tone} />
            <span class={sign.tone === "spin" ? "" : sign.tone}>{sign.words}</span>
          </>
        ) : (
          [s.archived ? "archived" : s.status === "at_rest" ? "at rest" : "idle", cost(s.total_cost_usd)]
            .filter(Boolean)
            .join(" · ")
        )}
      </span>
      <span class="by meta" title={s.author ? who(s.author) : undefined}>
        {initials(s.author)}
      </span>
    </a>
  );
}
