// The head of a session: its title, who drives, and the state of the connection in words.
import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { offer } from "./agent";
import { changed } from "./changes";
import { cost, count, plural, who } from "./format";
import { Icon } from "./icons";
import { TitleField } from "./manage";
import { agentName } from "./row";
import { SearchButton } from "./search";
import { paneled, type Tab, tab, toggleTab } from "./side";
import { titleOf } from "./sidebar";
import { TerminalButton } from "./terminal";
import {
  act,
  control,
  link,
  listLink,
  moment,
  now,
  openID,
  otherTab,
  people,
  rename,
  role,
  session,
  sessions,
  state,
  summary,
} from "./store";

export function Head({ list, listing }: { list: () => void; listing: boolean }) {
  const waiting = sessions.value.filter((s) => s.status === "waiting" && s.session_id !== openID.value).length;
  const s = summary.value;
  return (
    <header class="head">
      <button
        type="button"
        class="button quiet square"
        aria-label={waiting > 0 ? `Sessions, ${waiting} need you` : "Sessions"}
        aria-expanded={listing}
        aria-controls="sessions"
        onClick={list}
      >
        {waiting > 0 ? <span class="needs only-narrow">{waiting}</span> : null}
        <span class={waiting > 0 ? "only-wide" : ""}>
          <Icon sign="menu" />
        </span>
      </button>
      <Title key={openID.value} />
      <Drives />
      <span class="facts meta">
        {offer.value.mode && <span class="tag">{offer.value.mode}</span>}
        {agentName() && <span>{agentName()}</span>}
        {s && s.total_tokens > 0 && <span>{count(s.total_tokens)} tokens</span>}
        {s && s.total_cost_usd > 0 && <span>{cost(s.total_cost_usd)}</span>}
      </span>
      {session.value && <SearchButton />}
      {session.value && <TerminalButton />}
      <SideButtons />
    </header>
  );
}

/** SideButtons open the tabs of the right column. */
function SideButtons() {
  const files = changed.value.length;
  const button = (of: Tab, label: string, content: ComponentChildren, more = "square") => (
    <button
      type="button"
      class={`button quiet ${more}`}
      aria-label={label}
      title={label}
      aria-expanded={paneled.value && tab.value === of}
      aria-controls="panel"
      onClick={() => toggleTab(of)}
    >
      {content}
    </button>
  );
  return (
    <>
      {files > 0 &&
        button(
          "changes",
          `Changes, ${plural(files, "file")}`,
          <>
            <Icon sign="diff" />
            {files}
          </>,
          "changed",
        )}
      {button("files", "Files", <Icon sign="file" />, "square only-wide")}
      {button("people", "People and turns", <Icon sign="people" />)}
    </>
  );
}

function Title() {
  const [editing, setEditing] = useState(false);
  const id = openID.value;
  const title = titleOf(summary.value, id);
  if (!id) return <h1 class="grow cut">Maestro</h1>;
  if (!editing) {
    return (
      <h1 class="grow cut">
        {role.value === "controller" && !moment.value ? (
          <button type="button" class="cut title-button" title="Rename" onClick={() => setEditing(true)}>
            {title}
          </button>
        ) : (
          title
        )}
      </h1>
    );
  }
  const done = (next: string) => {
    if (next !== title) void rename(id, next);
    setEditing(false);
  };
  return <TitleField class="field grow" title={title} done={done} />;
}

function Drives() {
  const { mine, holder } = control.value;
  if (moment.value) {
    const then = people.value?.controller;
    return (
      <span class="drives">
        <span class="dot" aria-hidden="true" />
        {then ? `${who(then)} drove` : "Nobody drove"}
      </span>
    );
  }
  if (!session.value?.me || link.value.status === "closed") return null; // before, nobody knows who drives
  if (mine) {
    return (
      <span class="drives">
        <span class={`dot ${link.value.status === "online" ? "good" : ""}`} aria-hidden="true" />
        <span class="words">You drive</span>
        <button type="button" class="button quiet only-wide" onClick={() => void act((s) => s.lease.release())}>
          Release
        </button>
      </span>
    );
  }
  const driver = holder === null ? "Nobody" : who(people.value?.controller);
  return (
    <span class="drives">
      <span class="dot" aria-hidden="true" />
      <span class="words">{otherTab() ? "You drive in another tab" : `${driver} drives`}</span>
    </span>
  );
}

/** ListConnection says that the lists of sessions and questions may be old. */
export function ListConnection() {
  const { status } = listLink.value;
  if (status !== "connecting" && status !== "waiting") return null;
  return (
    <p class="strip warn" role="status">
      <Icon sign="run" tone="spin" />
      Reconnecting… what is shown may be old.
    </p>
  );
}

/** Connection says in words what is wrong with the connection; nothing if it works. */
export function Connection() {
  const l = link.value;
  if (!session.value) return null;
  switch (l.status) {
    case "online":
      return null;
    case "connecting":
      return state.value ? (
        <p class="strip warn" role="status">
          <Icon sign="run" tone="spin" />
          Reconnecting… nothing is lost.
        </p>
      ) : null;
    case "waiting": {
      const seconds = Math.max(1, Math.round((l.retryAt - Math.max(now.value, Date.now())) / 1000));
      return (
        <p class="strip warn" role="status">
          <Icon sign="run" tone="spin" />
          Reconnecting in {seconds} s… nothing is lost.
        </p>
      );
    }
    case "login":
      return (
        <p class="strip fail" role="alert">
          <Icon sign="alert" />
          You are not logged in any more.
        </p>
      );
    case "closed":
      return (
        <p class="strip fail" role="alert">
          <Icon sign="alert" />
          <span class="grow">{closedWords(l.why.code, l.why.message)}</span>
          <button type="button" class="button" onClick={() => session.value?.reconnect()}>
            Connect again
          </button>
        </p>
      );
  }
}

function closedWords(code: string, message: string): string {
  switch (code) {
    case "stale_session":
      if (state.value) return "This session was shut down or deleted.";
      return "There is no such session. It may have been deleted.";
    case "not_found":
      return "There is no such session.";
    case "access_denied":
      return "You may not open this session.";
    case "superseded":
      return "This session was opened in another tab, which has taken over the connection.";
  }
  return `The connection was ended: ${message}`;
}
