// The page as a whole: its columns, the keys that work everywhere, and the title of the tab.
import { useSignalEffect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { Composer, ControlRequests, Refused } from "./composer";
import { Dashboard } from "./dashboard";
import { Connection, Head } from "./head";
import icon from "./icon.svg";
import { nameTab } from "./badge";
import { Inbox } from "./inbox";
import { place } from "./lists";
import { Panel } from "./panel";
import { ifAlone, typing } from "./keys";
import { Questions } from "./question";
import { Queue } from "./queue";
import { openSearch, Search } from "./search";
import { Sidebar } from "./sidebar";
import {
  announcement,
  createSession,
  listLink,
  lockedBy,
  openID,
  retryLogin,
  session,
  sessions,
  stage,
} from "./store";
import { step, toEnd, Transcript, useVisible } from "./transcript";

export function App() {
  useVisible();
  switch (stage.value) {
    case "starting":
      return null;
    case "login":
      return <Login />;
    case "open":
      return <Page />;
  }
}

function Login() {
  useEffect(() => {
    const look = () => {
      if (document.visibilityState === "visible") void retryLogin();
    };
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, []);
  return (
    <div class="alone">
      <main>
        <img src={icon} alt="" width={40} height={40} />
        <h1>Log in</h1>
        <p>
          Open the link that <code>maestro serve</code> printed when it started, or that <code>maestro login</code>{" "}
          prints. It works once, and this browser then stays logged in.
        </p>
        <p class="meta">The server said: {lockedBy.value}</p>
        <p>
          <button type="button" class="button" onClick={() => location.reload()}>
            Try again
          </button>
        </p>
      </main>
    </div>
  );
}

const narrow = () => matchMedia("(max-width: 759px)").matches;

function Page() {
  const [listing, setListing] = useState(!narrow() || (place.value === "session" && openID.value === null));
  const [paneled, setPaneled] = useState(matchMedia("(min-width: 1400px)").matches);
  const help = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const keys = (e: KeyboardEvent) => {
      if (e.key === "Escape" && narrow()) {
        setListing(false);
        setPaneled(false);
      }
      if (e.ctrlKey || e.metaKey || e.altKey || typing(e.target) || help.current?.open) return;
      const run: Record<string, () => void> = {
        j: () => step(1),
        k: () => step(-1),
        G: toEnd,
        i: compose,
        "/": compose,
        "?": () => help.current?.showModal(),
        s: () => ifAlone(() => setListing((l) => !l)),
        p: () => ifAlone(() => setPaneled((l) => !l)),
        n: () => ifAlone(() => void createSession()),
        b: () => ifAlone(() => (location.hash = "#inbox")),
        f: () => ifAlone(openSearch),
        t: () => ifAlone(() => (location.hash = "#dashboard")),
      };
      if (!run[e.key]) return;
      e.preventDefault();
      run[e.key]!();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  useSignalEffect(nameTab);
  useSignalEffect(() => {
    if ((openID.value !== null || place.value !== "session") && narrow()) setListing(false);
  });
  const close = () => {
    setListing(false);
    setPaneled(false);
  };
  const pick = () => {
    if (narrow()) setListing(false);
  };
  return (
    <div class={`app ${listing ? "listing" : "folded"} ${paneled ? "paneled" : ""}`}>
      <Sidebar pick={pick} help={() => help.current?.showModal()} />
      <main class="main">
        {place.value === "session" && (
          <>
            <Head
              list={() => setListing(!listing)}
              panel={() => setPaneled(!paneled)}
              paneled={paneled}
              listing={listing}
            />
            <Connection />
            {session.value && <Search />}
            {session.value ? <Conversation /> : <Choose />}
          </>
        )}
        {place.value === "dashboard" && <Dashboard list={() => setListing(!listing)} />}
        {place.value === "inbox" && <Inbox list={() => setListing(!listing)} />}
      </main>
      {paneled && place.value === "session" && session.value && <Panel close={() => setPaneled(false)} />}
      <div class="scrim" onClick={close} />
      <p class="unseen" role="status" aria-live="polite">
        {announcement.value}
      </p>
      <Help place={help} />
    </div>
  );
}

function Conversation() {
  return (
    <>
      <Transcript key={openID.value} />
      <div class="dock">
        <Refused />
        <Questions />
        <ControlRequests />
        <Queue />
        <Composer />
      </div>
    </>
  );
}

function Choose() {
  const none = sessions.value.length === 0 && listLink.value.status === "online";
  return (
    <div class="nothing">
      <h2>{none ? "No sessions yet" : "Choose a session"}</h2>
      <p>{none ? "Start one with a prompt." : "Those that need you come first."}</p>
      <button type="button" class="button primary" onClick={() => void createSession()}>
        New session
      </button>
      <Refused />
    </div>
  );
}

function compose(): void {
  document.querySelector<HTMLTextAreaElement>(".composer textarea")?.focus();
}

const keyHelp: [string, string][] = [
  ["J, K", "next and previous turn"],
  ["G", "end of the conversation"],
  ["A, D", "allow and deny the open question"],
  ["F", "search the conversation"],
  ["I or /", "write a prompt"],
  ["Esc", "leave the field"],
  ["Up, Down", "your earlier prompts, in an empty field"],
  ["@", "complete the path of a file in the prompt"],
  ["Enter", "send, or queue while the agent works"],
  ["Ctrl+Enter", "steer the agent while it works"],
  ["S", "sessions"],
  ["P", "people and turns"],
  ["B, T", "inbox and dashboard"],
  ["N", "new session"],
  ["?", "these keys"],
];

function Help({ place }: { place: preact.RefObject<HTMLDialogElement | null> }) {
  return (
    <dialog
      ref={place}
      aria-label="Keys"
      onClick={(e) => {
        if (e.target === e.currentTarget) e.currentTarget.close();
      }}
    >
      <h2>Keys</h2>
      <dl>
        {keyHelp.map(([key, what]) => (
          <>
            <dt>
              <kbd class="key">{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </>
        ))}
      </dl>
    </dialog>
  );
}
