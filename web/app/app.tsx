// The page as a whole: its columns, the keys that work everywhere, and the title of the tab.
import { computed, effect, useSignalEffect } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Composer, ControlRequests, Refused, Unsent } from "./composer";
import { Dashboard } from "./dashboard";
import { RunCommand } from "./command";
import { Dialog, DialogHead } from "./dialog";
import { compose } from "./draft";
import { Connection, Head } from "./head";
import icon from "./icon.svg";
import { nameTab } from "./badge";
import { Inbox } from "./inbox";
import { backToLive } from "./look";
import { place, wall } from "./lists";
import { type Action, Actions, Palette } from "./palette";
import { Panel } from "./panel";
import { PlanLine } from "./plan";
import { forPage, ifAlone } from "./keys";
import { Questions } from "./question";
import { Queue } from "./queue";
import { Begin } from "./begin";
import { logOut } from "./notify";
import { narrow } from "./screen";
import { openSearch, Search } from "./search";
import { chooseTheme, Settings, settingsOpen } from "./settings";
import { findFile, paneled, running, toggleTab } from "./side";
import { Sidebar } from "./sidebar";
import {
  act,
  announcement,
  busy,
  control,
  createSession,
  link,
  listLink,
  loaded,
  lockedBy,
  mayShare,
  moment,
  openID,
  retryLogin,
  session,
  sessions,
  stage,
} from "./store";
import { Terminals, useTerminalKey } from "./terminal";
import { showTerminals } from "./terminals";
import { focusLine, PastEnd, PastStrip, SideLine } from "./time";
import { step, toEnd, Transcript, useVisible } from "./transcript";

export function App() {
  useVisible();
  return stage.value === "login" ? <Login /> : <Page />;
}

function Login() {
  useEffect(() => {
    const look = () => {
      if (document.visibilityState === "visible") void retryLogin();
    };
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, []);
  const { link, why } = lockedBy.value!;
  const title = link === "none" ? "Log in" : "This link does not work";
  useEffect(() => {
    document.title = `${title} · Maestro`;
  }, [title]);
  return (
    <div class="alone">
      <main>
        <img src={icon} alt="" width={40} height={40} />
        <h1>{title}</h1>
        {link === "share" && (
          <p>It has expired, was revoked or is not complete. Ask the person who sent it for a new one.</p>
        )}
        {link === "login" && (
          <p>
            A link logs in once, within ten minutes. Run <code>maestro login</code> where the server runs to get a new
            one.
          </p>
        )}
        {link === "none" && (
          <p>
            Open the link that <code>maestro serve</code> printed when it started, one that <code>maestro login</code>{" "}
            prints, or one that somebody shared with you. This browser then stays logged in. If a shared link worked
            before, it has expired or was revoked: ask the person who sent it for a new one.
          </p>
        )}
        {why.code !== "unauthenticated" && <p class="meta">The server said: {why.message}</p>}
        <p>
          <button type="button" class="button" onClick={() => location.reload()}>
            Try again
          </button>
        </p>
      </main>
    </div>
  );
}

const sideActions: Action[] = [
  { what: "Open a file", key: "O", alone: true, run: findFile },
  { what: "Changes", key: "C", alone: true, run: () => toggleTab("changes") },
  { what: "People", key: "P", alone: true, run: () => toggleTab("people") },
  { what: "Turns", run: () => toggleTab("turns") },
  {
    what: "Run a command",
    key: "R",
    alone: true,
    run: () => {
      running.value = true;
    },
  },
];

function Page() {
  const [listing, setListing] = useState(!narrow.peek() || (place.value === "session" && openID.value === null));
  const [helping, setHelping] = useState(false);
  const [commanding, setCommanding] = useState(false);
  // The first conversation is drawn when it is there, so that nothing moves.
  const shown = useRef(false);
  shown.current ||= loaded.value || !["connecting", "online"].includes(link.value.status);
  const here = session.value !== null && place.value === "session";
  const drives = session.value !== null && control.value.mine && moment.value === null;
  const alone = wall.value && place.value === "dashboard";
  const go = (name: string) => () => {
    location.hash = name;
  };
  const actions: Action[] = [
    { what: "Write a prompt", key: "I", run: compose },
    { what: "Next turn", key: "J", run: () => step(1) },
    { what: "Previous turn", key: "K", run: () => step(-1) },
    { what: "End of the conversation", key: "G", run: () => (moment.value ? backToLive() : toEnd()) },
    ...(here
      ? [
          { what: "Time line", key: "L", alone: true, run: focusLine },
          { what: "Search the conversation", key: "F", alone: true, run: openSearch },
        ]
      : []),
    ...(mayShare() ? [{ what: "New session", key: "N", alone: true, run: () => void createSession() }] : []),
    { what: "Inbox", key: "B", alone: true, run: go("#inbox") },
    { what: "Dashboard", key: "T", alone: true, run: go("#dashboard") },
    { what: "All sessions on the whole screen", run: go("#dashboard=wall") },
    ...(here ? [{ what: "Terminals", key: "`", run: () => showTerminals() }, ...sideActions] : []),
    { what: "Sessions", key: "S", alone: true, run: () => setListing((l) => !l) },
    ...(drives && busy.value ? [{ what: "Stop the agent", run: () => void act((s) => s.interrupt()) }] : []),
    ...(drives ? [{ what: "Release control", run: () => void act((s) => s.lease.release()) }] : []),
    { what: "Light or dark", run: () => chooseTheme() },
    { what: "Keys", key: "?", run: () => setHelping(true) },
    {
      what: "Settings",
      key: ",",
      run: () => {
        settingsOpen.value = true;
      },
    },
    { what: "Log out", run: () => void logOut() },
  ];
  const known = useRef(actions);
  known.current = actions;
  // A layout effect, as for all keys and focus: a key that follows the drawing at once must not be lost.
  useLayoutEffect(() => {
    const keys = (e: KeyboardEvent) => {
      if (e.key === "Escape" && narrow.peek()) {
        setListing(false);
        paneled.value = false;
      }
      if ((e.ctrlKey || e.metaKey) && !e.altKey && !e.shiftKey && e.key === "k") {
        e.preventDefault(); // else the browser goes to its search
        setCommanding((c) => !c);
        return;
      }
      if (!forPage(e)) return;
      const key = e.key === "/" ? "I" : e.key.toUpperCase();
      const action = known.current.find((a) => a.key === key);
      if (!action) return;
      e.preventDefault();
      if (action.alone) ifAlone(action.run);
      else action.run();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  useTerminalKey();
  useSignalEffect(nameTab);
  // It begins with the drawing too: a tap on Sessions that follows at once must not be undone.
  useLayoutEffect(() => {
    const empty = computed(() => sessions.value.length === 0 && listLink.value.status === "online");
    return effect(() => {
      if ((openID.value !== null || place.value !== "session" || empty.value) && narrow.peek()) setListing(false);
    });
  }, []);
  const columns = alone ? "folded alone-board" : listing ? "listing" : "folded";
  const close = () => {
    setListing(false);
    paneled.value = false;
  };
  const pick = () => {
    if (narrow.peek()) setListing(false);
  };
  return (
    <div class={`app ${columns} ${paneled.value ? "paneled" : ""}`}>
      {!alone && <Sidebar pick={pick} commands={() => setCommanding(true)} />}
      <main class="main">
        {place.value === "session" && (
          <>
            <Head list={() => setListing(!listing)} listing={listing} />
            <Connection />
            {session.value && <Search />}
            <Actions.Provider value={actions}>
              {!session.value ? <Begin /> : shown.current && <Conversation />}
            </Actions.Provider>
            <Terminals />
          </>
        )}
        {place.value === "dashboard" && <Dashboard list={() => setListing(!listing)} />}
        {place.value === "inbox" && <Inbox list={() => setListing(!listing)} />}
        {place.value !== "session" && <Refused />}
      </main>
      {paneled.value && place.value === "session" && session.value && <Panel />}
      <div class="scrim" onClick={close} />
      <p class="unseen" role="status" aria-live="polite">
        {announcement.value}
      </p>
      {commanding && <Palette actions={actions} close={() => setCommanding(false)} />}
      {settingsOpen.value && <Settings />}
      {session.value && <RunCommand />}
      {helping && <Help actions={actions} close={() => setHelping(false)} />}
    </div>
  );
}

function Conversation() {
  const past = moment.value !== null;
  return (
    <>
      <PastStrip />
      <div class="stage">
        <Transcript key={`${openID.value} ${past}`} />
        <SideLine />
      </div>
      <div class="dock">
        <Refused />
        {!past && <ControlRequests />}
        <Questions key={`${openID.value} ${past}`} />
        {!past && <PlanLine />}
        <Queue />
        <Unsent />
        {past ? <PastEnd /> : <Composer />}
      </div>
    </>
  );
}

const moreKeys: [string, string][] = [
  ["Ctrl+`", "Into the terminal, and out of it"],
  ["Ctrl+K", "All commands and sessions"],
  ["A, D", "Allow and deny the open question"],
  ["Esc", "Leave the field"],
  ["Up, Down", "Your earlier prompts, in an empty field"],
  ["@", "Complete the path of a file in the prompt"],
  ["/", "At the start: commands of the agent and of the page"],
  ["Enter", "Send, or queue while the agent works"],
  ["Ctrl+Enter", "Steer the agent while it works"],
];

function Help({ actions, close }: { actions: readonly Action[]; close: () => void }) {
  const all = [...moreKeys, ...actions.flatMap((a): [string, string][] => (a.key ? [[a.key, a.what]] : []))];
  const half = Math.ceil(all.length / 2);
  return (
    <Dialog class="settings keys" label="Keys" close={close}>
      <DialogHead title="Keys" close={close} />
      <div class="lists">
        {[all.slice(0, half), all.slice(half)].map((part) => (
          <dl>
            {part.map(([key, what]) => (
              <>
                <dt>
                  <kbd class="key">{key}</kbd>
                </dt>
                <dd>{what}</dd>
              </>
            ))}
          </dl>
        ))}
      </div>
    </Dialog>
  );
}
