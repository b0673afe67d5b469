// What the page knows: the server, the list of sessions, and the one session that is open. Components
// read signals and call the functions; nothing else talks to the server.
import { batch, computed, signal } from "@preact/signals";
import {
  connect,
  Refusal,
  type Answer,
  type Author,
  type Changes,
  type Control,
  type HistoryTurn,
  type InboxReply,
  type LinkStatus,
  type PendingRequest,
  type People,
  type Role,
  type Session,
  type SessionSummary,
  type State,
  type Transcript,
  type WhoAmI,
} from "../client/index.ts";
import { who } from "./format";
import { dropForms } from "./kept";
import { keepAlive, keptConnection, rest, revive } from "./rest";
import { newRows, type Row } from "./rows";
import { narrow } from "./screen";

/** The page before it has a session list: it starts, or nobody is logged in. */
export const stage = signal<"starting" | "login" | "open">("starting");
/** why nobody is logged in: the link that was opened, if there was one, and the refusal of the server */
export const lockedBy = signal<{ link: "none" | "login" | "share"; why: Refusal } | null>(null);

export const sessions = signal<readonly SessionSummary[]>([]);
export const moreSessions = signal(false);
/** when the server last sent something about the list */
export let heard = () => 0;
export const listLink = signal<LinkStatus>({ status: "connecting" });

export const openID = signal<string | null>(null);
export const session = signal<Session | null>(null);
export const link = signal<LinkStatus>({ status: "connecting" });
export const control = signal<Control>({ mine: false, holder: null, asked: false, asking: [], last: null });
/** the most that the credential of this page allows */
export const role = signal<Role>("controller");
/** whose credential the page has, and what the server is */
export const whoAmI = signal<WhoAmI | null>(null);
let principal = "";
let only: string | undefined; // the session that the credential is for, if it is for one
const nowRows = signal<readonly Row[]>([]);
const nowOlder = signal({ more: false, gap: false, loading: false, live: true });
/** the state of the live session, also while the page shows the past */
export const nowState = signal<Readonly<State> | null>(null);
/** the session has its state and the first page of its transcript */
export const loaded = signal(false);
/** cursor of the newest event of the session */
export const head = signal(0);

/** A Moment is what the page shows of the past. */
interface Moment {
  cursor: number;
  at: number;
  state: Readonly<State>;
  transcript: Transcript;
  rows: readonly Row[];
  older: (typeof nowOlder)["value"];
}
/** The moment that the page shows in place of the live session; null: it is live. */
export const moment = signal<Moment | null>(null);

export const rows = computed(() => moment.value?.rows ?? nowRows.value);
export const older = computed(() => moment.value?.older ?? nowOlder.value);
/** The state of the session; its fields are replaced when they change. */
export const state = computed(() => moment.value?.state ?? nowState.value);
export const pending = computed<readonly PendingRequest[]>(() =>
  (state.value?.pending_requests ?? []).filter((r) => r.kind !== "client_tool"),
);
export const people = computed<People | undefined>(() => state.value?.people);
/** the agent works: it answers, runs a tool or waits for a question */
export const busy = computed(() => {
  const s = state.value;
  return (
    !!s && (s.is_responding || s.active_tools.length > 0 || s.tracked_tools.length > 0 || s.pending_requests.length > 0)
  );
});
export const summary = computed(() => sessions.value.find((s) => s.session_id === openID.value));

/** what was refused last, in words; shown until the next action */
export const refusal = signal("");
/** said once to screen readers */
export const announcement = signal("");

export const server = connect(location.href, {
  login: (why) => {
    lock(why, only === undefined ? "none" : "share");
    return Promise.reject(why);
  },
});

function lock(why: Refusal, link: "none" | "login" | "share"): void {
  batch(() => {
    lockedBy.value = { link, why };
    stage.value = "login";
  });
}

/** start logs in with a share in the address if there is one, and follows the sessions. */
export async function start(): Promise<void> {
  const secret = fragment("share");
  if (secret) {
    const board = fragment("dashboard"); // of a link for a monitor
    // The secret must not stay in the history of the browser.
    history.replaceState(null, "", `${location.pathname}${board === null ? "" : `#dashboard=${board}`}`);
    try {
      await server.login({ token: secret });
    } catch (err) {
      return lock(err as Refusal, "share");
    }
  }
  const expired = fragment("login") !== null; // the server did not accept the link that was opened
  if (expired) history.replaceState(null, "", location.pathname);
  try {
    const me = await server.whoAmI();
    whoAmI.value = me;
    role.value = me.role;
    principal = me.principal;
    only = me.session_id;
  } catch (err) {
    return lock(err as Refusal, expired ? "login" : "none");
  }
  const list = server.sessions();
  heard = () => list.heard;
  let fresh = true;
  list.on(() =>
    batch(() => {
      sessions.value = list.sessions;
      moreSessions.value = list.partial;
      listLink.value = list.link;
      if (stage.value === "starting") stage.value = "open";
      if (fresh && list.link.status === "online") {
        fresh = false; // later, somebody may be writing the first prompt of another one
        if (openID.value === null) openFirst();
      }
    }),
  );
  keepAlive(() => session.peek());
  addEventListener("hashchange", follow);
  follow();
}

/** mayShare reports whether the credential may make shares and sessions. A share may make neither. */
export const mayShare = () => role.value === "controller" && only === undefined;

/** retryLogin looks whether another tab has logged in meanwhile. */
export async function retryLogin(): Promise<void> {
  try {
    await server.whoAmI();
    location.reload();
  } catch {
    // still nobody
  }
}

/** tabs tells the other tabs of this browser, which have the same cookie, that it was logged out. */
const tabs = new BroadcastChannel("maestro.logout");
tabs.onmessage = () => {
  session.value?.close();
  goAway();
};

/** logout ends the login of this browser. It reports whether that was done, and shows why it was not. */
export async function logout(): Promise<boolean> {
  refusal.value = "";
  try {
    await server.logout();
  } catch (err) {
    refusal.value = `You are still logged in. ${inWords(err)}`;
    return false;
  }
  session.value?.close();
  localStorage.removeItem(nameKey);
  localStorage.removeItem(ownConnections.key);
  tabs.postMessage("");
  goAway();
  return true;
}

// goAway forgets the prompts that were being written, because the next person to log in must not see them.
function goAway(): void {
  addEventListener("pagehide", () => sessionStorage.clear()); // until then, prompts that were not sent come back
  location.reload();
}

export function fragment(name: string): string | null {
  return new URLSearchParams(location.hash.slice(1)).get(name);
}

export const address = (id: string) => `#session=${encodeURIComponent(id)}`;

function follow(): void {
  refusal.value = ""; // of the place that was left
  if (fragment("inbox") !== null) return; // the inbox shows one question of the session
  const id = fragment("session");
  if (id && id !== openID.value) open(id);
}

/** openFirst opens the session that needs somebody most, or the only one. Phones show the list first. */
function openFirst(): void {
  if (location.hash.length > 1) return; // the inbox or the dashboard
  const [first] = sessions.value;
  const id = only ?? (sessions.value.length === 1 || !narrow.peek() ? first?.session_id : undefined);
  if (!id) return;
  open(id); // at once, so that nothing else is shown before
  location.replace(address(id));
}

let unfollow = () => {};

function open(id: string): void {
  unfollow();
  const left = session.peek();
  const again = left?.id === id ? left : null; // with another name
  if (again) again.close(true);
  else if (left) rest(left);
  const resting = revive(id);
  const made =
    resting ??
    server.attach(id, {
      role: role.peek(),
      turns: 10,
      displayName: ownName() || undefined,
      clientInfo: { name: "maestro-web" },
      connection: again ? (ownName() && again.connection) || undefined : keptConnection(id),
    });
  const draw = newRows();
  let answering = false;
  let connection = "";
  batch(() => {
    openID.value = id;
    session.value = made;
    control.value = made.control;
    moment.value = null;
    nowState.value = null;
    nowRows.value = [];
    loaded.value = false;
    refusal.value = "";
  });
  const show = (changes: Changes) => {
    if (session.peek() !== made) return;
    batch(() => {
      if (changes.link) link.value = made.link;
      if (changes.control) control.value = made.control;
      if (made.me && made.me.connectionId !== connection) ownConnections.add((connection = made.me.connectionId));
      if (changes.state.size > 0) {
        nowState.value = { ...made.state };
        dropForms(id, made.state.pending_requests);
      }
      head.value = made.cursor;
      const t = made.transcript;
      if (changes.list) nowOlder.value = { more: t.more, gap: t.gap, loading: t.loading, live: t.live };
      if (changes.list || changes.items.size > 0 || changes.state.has("pending_requests")) {
        nowRows.value = draw(t.items, new Set(made.state.pending_requests.map((r) => r.call_id)));
      }
      if (!loaded.value && made.cursor > 0 && !t.loading) loaded.value = true;
      if (answering && !made.state.is_responding) announce(lastText(nowRows.value));
      answering = made.state.is_responding;
    });
  };
  unfollow = made.on(show);
  if (resting) show({ state: new Set(["session_id"]), items: new Set(), list: true, link: true, control: true });
  link.value = made.link;
}

/** leave closes the open session and goes to another one, or to the field for a first prompt if there is none. */
export function leave(next: string | undefined): void {
  session.peek()?.close();
  batch(() => {
    openID.value = null;
    session.value = null;
    moment.value = null;
    nowState.value = null;
    nowRows.value = [];
  });
  location.hash = next === undefined ? "" : address(next);
}

function lastText(all: readonly Row[]): string {
  for (let i = all.length - 1; i >= 0 && all[i]!.kind !== "prompt"; i--) {
    const row = all[i]!;
    if (row.kind === "block") return `Answer finished: ${row.text.slice(0, 300)}`;
  }
  return "Answer finished.";
}

export function announce(text: string): void {
  announcement.value = text;
}

const nameKey = "maestro.name";

export function ownName(): string {
  return localStorage.getItem(nameKey) ?? "";
}

/** setName is what others see from the next attachment on. */
export function setName(name: string): void {
  localStorage.setItem(nameKey, name.trim().slice(0, 60));
  const id = openID.peek();
  if (id) open(id);
}

/** act does something on the session and shows why it was refused. It reports whether it was done. */
export async function act(what: (s: Session) => Promise<unknown>): Promise<boolean> {
  const s = session.peek();
  if (!s) return false;
  refusal.value = "";
  try {
    await what(s);
    return true;
  } catch (err) {
    if (s === session.peek()) refusal.value = inWords(err);
    return false;
  }
}

/**
 * driving does something that needs the lease, as soon as there is a connection. A free lease is taken first; that of
 * somebody else never.
 */
export function driving(what: (s: Session) => Promise<unknown>): Promise<boolean> {
  return act(async (s) => {
    await s.ready();
    if (role.peek() === "controller" && s.control.holder === null) await s.lease.ask();
    await what(s);
  });
}

/** answer answers a question: with control in the session, without control as in an inbox. */
export function answer(id: string, digest: string | undefined, reply: Answer): Promise<boolean> {
  return act(async (s) => {
    await s.ready();
    if (s.control.mine) return s.answer({ request_id: id, digest }, reply);
    const { reason: note, ...rest } = { reason: undefined, ...reply };
    return server.answer({ session_id: s.id, request_id: id, digest }, { ...rest, note } as InboxReply);
  });
}

const words: Partial<Record<string, string>> = {
  request_not_found: "Too late: this is already answered, or nobody asks it any more.",
  runtime_busy: "The agent is still working. The prompt was not sent.",
  digest_mismatch: "The question has changed since it was shown here. Look at it again.",
  already_voted: "You have already approved. Somebody else must approve as well.",
  controller_lease_held: "Somebody else drives. Ask for control first.",
  network: "The server cannot be reached.",
  answer_lost: "The connection was lost before the answer came. Look whether it was done before you repeat it.",
  rate_limited: "Too much at once. Wait a moment and try again.",
};

export function inWords(err: unknown): string {
  if (!(err instanceof Refusal)) return String(err);
  return words[err.code] ?? err.message;
}

let creating: Promise<string> | undefined;

/**
 * createSession makes a session and reports whether that succeeded. It opens the session if the address of the page has
 * not changed since the call, or if `always` is set. Calls that overlap make one session.
 */
export async function createSession(always = false): Promise<boolean> {
  const from = location.hash;
  refusal.value = "";
  try {
    const id = await (creating ??= server.create().finally(() => {
      creating = undefined;
    }));
    if (!always && location.hash !== from) return true;
    if (openID.peek() !== id) open(id);
    location.hash = address(id);
    return true;
  } catch (err) {
    refusal.value = inWords(err);
    return false;
  }
}

export async function rename(id: string, title: string): Promise<void> {
  try {
    await server.update(id, { title });
  } catch (err) {
    refusal.value = inWords(err);
  }
}

/** turns are the prompts of the session, the newest first. */
export async function turns(before?: number): Promise<{ turns: HistoryTurn[]; before: number | null }> {
  const page = await session.peek()!.turns({ before, limit: 50 });
  return { turns: page.turns.toReversed(), before: page.before };
}

/** you reports whether a page of this browser did something. */
export function you(author: Author | null | undefined): boolean {
  return author?.connection_id !== undefined && ownConnections.ids.peek().has(author.connection_id);
}

/** ownConnections are the latest connections of all tabs of this browser. */
const ownConnections = {
  key: "maestro.connections",
  ids: signal<ReadonlySet<string>>(new Set()),
  add(id: string): void {
    this.read(); // what other tabs have added
    localStorage.setItem(this.key, [...this.ids.value, id].slice(-200).join(" "));
    this.read();
  },
  read(): void {
    this.ids.value = new Set((localStorage.getItem(this.key) ?? "").split(" "));
  },
};
ownConnections.read();
addEventListener("storage", () => ownConnections.read());

/** otherTab reports whether another tab of this browser drives. */
export const otherTab = () => {
  const { mine, holder } = control.value;
  return !mine && holder !== null && ownConnections.ids.value.has(holder);
};

/** ownPrompts are what the person of this page wrote, the newest first. */
export const ownPrompts = () =>
  (people.peek()?.prompts ?? [])
    .filter((p) => p.author.principal === principal && !p.truncated)
    .map((p) => p.content)
    .reverse();

/** nameOf says who has a connection, as far as somebody with it has done something. */
export function nameOf(connection: string): string | undefined {
  const p = people.value;
  const authors = [
    p?.controller,
    ...(p?.prompts ?? []).map((r) => r.author),
    ...(p?.answers ?? []).map((r) => r.author),
  ];
  const found = authors.find((a) => a?.connection_id === connection);
  return found ? who(found) : undefined;
}

/** now is the time to which ages are counted. */
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, 20_000);
