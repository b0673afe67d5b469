import type {
  InboxEnding,
  InboxEvent,
  InboxQuestion,
  ListName,
  Overview,
  OverviewEvent,
  ServerFrame,
  SessionStatus,
  SessionSummary,
} from "../../contracts/ts/maestro.d.ts";
import { refused } from "./calls.ts";
import { newLink, verdict, type Link, type LinkStatus, type Socket } from "./link.ts";
import { newListeners, type Schedule, type Surroundings } from "./notify.ts";
import { Refusal } from "./refusal.ts";

const maxSessions = 5_000;
const maxEnded = 64;
const heartbeat = 15_000; // of a socket of lists
const order: SessionStatus[] = ["waiting", "running", "failed", "idle", "at_rest", "deleted"];

interface List<L> {
  readonly link: LinkStatus;
  /** when the server was heard of last, in milliseconds since 1970; it is silent for 15 s at most */
  readonly heard: number;
  /** is called after changes, at most once in a frame; the result removes the listener */
  on(listen: (list: L) => void): () => void;
  /** ends the list for all who use it; the server object then makes a new one */
  close(): void;
}

/** A SessionList follows the sessions of a server, those that need somebody first. */
export interface SessionList extends List<SessionList> {
  /** without archived and deleted sessions; replaced by each change */
  readonly sessions: readonly SessionSummary[];
  /** there are sessions that were not read yet; ask for them with `more` */
  readonly partial: boolean;
  /** reads the next page */
  more(): Promise<void>;
}

/** An InboxList follows the open questions of all sessions, the oldest first. */
export interface InboxList extends List<InboxList> {
  /** replaced by each change */
  readonly questions: readonly InboxQuestion[];
  /** there are more questions than the server lists */
  readonly truncated: boolean;
  /** how questions ended since the last announcement */
  readonly ended: readonly InboxEnding[];
}

interface Hooks {
  dial(): Promise<Socket>;
  probe(): Promise<Refusal | undefined>;
  login(why: Refusal): Promise<void>;
  page(after: string): Promise<Overview>;
  schedule: Schedule;
  around: Surroundings;
}

/** A Feed is a list that is followed. */
interface Feed<L, E> {
  list: L;
  take(event: E): void;
  /** the changes were announced */
  told?(): void;
}

/** What all lists have. */
interface Shared<L> extends List<L> {
  changed(): void;
}

/** newLists follows both lists of a server on one socket, as long as anybody wants them. */
export function newLists(hooks: Hooks) {
  const open = new Map<ListName, { list: List<any>; take(e: any): void; status(s: LinkStatus): void }>();
  let link: Link | undefined;
  let connected = false;
  let requests = 0; // for the ids of ws.follow
  let heard = 0;

  /** follow tells the server which lists the socket carries. */
  function follow(): void {
    if (connected) link?.send(JSON.stringify({ type: "ws.follow", id: String(++requests), lists: [...open.keys()] }));
  }

  function handle(f: ServerFrame): void {
    heard = Date.now();
    if (f.type === "list") {
      if (f.sessions) open.get("sessions")?.take(f.sessions);
      if (f.inbox) open.get("inbox")?.take(f.inbox);
    } else if (f.type === "ws.result") {
      if (link?.status.status === "connecting") link.online(heartbeat);
    } else if (f.type === "ws.error" && f.id === String(requests)) {
      // Some may see the sessions, but not the questions.
      const name: ListName = open.has("inbox") ? "inbox" : "sessions";
      open.get(name)?.status({ status: "closed", why: refused(f) });
      remove(name);
    }
  }

  // The browser kills an open socket of a page that it keeps to come back to.
  hooks.around.window?.addEventListener("pagehide", () => link?.rest());

  function connect(): Link {
    const made = newLink({
      around: hooks.around,
      dial: hooks.dial,
      probe: hooks.probe,
      login: hooks.login,
      judge: verdict,
      lost() {},
      opened() {
        connected = true;
        follow();
      },
      frame: (text) => handle(JSON.parse(text) as ServerFrame),
      changed(status) {
        if (status.status !== "online") connected = false;
        for (const list of open.values()) list.status(status);
      },
    });
    made.connect();
    return made;
  }

  function remove(name: ListName): void {
    open.delete(name);
    if (open.size > 0) return follow();
    link?.end(new Refusal("closed", "The list was closed"));
    link = undefined;
  }

  function get<L extends List<L>, E>(name: ListName, make: (shared: Shared<L>) => Feed<L, E>): L {
    const existing = open.get(name);
    if (existing) return existing.list as unknown as L;
    const listeners = newListeners<L>();
    let status: LinkStatus = link?.status ?? { status: "connecting" };
    let filled = false; // the list came on this connection; before, it is not online
    let scheduled = false;
    function changed(): void {
      if (scheduled) return;
      scheduled = true;
      hooks.schedule(() => {
        scheduled = false;
        listeners.tell(feed.list);
        feed.told?.();
      });
    }
    const feed = make({
      get link(): LinkStatus {
        return status.status === "online" && !filled ? { status: "connecting" } : status;
      },
      get heard() {
        return heard;
      },
      on: listeners.add,
      close() {
        listeners.clear();
        if (open.get(name)?.list === feed.list) remove(name);
      },
      changed,
    });
    open.set(name, {
      list: feed.list,
      take(e) {
        filled = true;
        feed.take(e);
        changed();
      },
      status(next) {
        status = next;
        if (next.status !== "online") filled = false;
        changed();
      },
    });
    // A list that the server refused for good starts again with the next one.
    if (link && link.status.status !== "closed") follow();
    else {
      link?.end(new Refusal("closed", "A new list connects again"));
      link = connect();
    }
    return feed.list;
  }

  return {
    sessions: () => get("sessions", (shared: Shared<SessionList>) => sessionFeed(shared, hooks.page)),
    questions: () => get("inbox", inboxFeed),
    close() {
      for (const { list } of open.values()) list.close();
    },
  };
}

function sessionFeed(
  shared: Shared<SessionList>,
  page: (after: string) => Promise<Overview>,
): Feed<SessionList, OverviewEvent> {
  const known = new Map<string, SessionSummary>(); // archived and deleted ones too, for their revisions
  let next: string | undefined;
  let generation = 0; // of the list; pages of an earlier one are dropped
  let shown: SessionSummary[] | undefined;

  function put(s: SessionSummary): void {
    const old = known.get(s.session_id);
    if (old ? old.revision < s.revision : known.size < maxSessions) known.set(s.session_id, s);
  }

  return {
    list: {
      get link() {
        return shared.link;
      },
      get heard() {
        return shared.heard;
      },
      on: shared.on,
      close: shared.close,
      get sessions() {
        return (shown ??= [...known.values()]
          .filter((s) => !s.archived && s.status !== "deleted")
          .sort(
            (a, b) =>
              order.indexOf(a.status) - order.indexOf(b.status) ||
              compare(b.updated_at, a.updated_at) ||
              compare(a.session_id, b.session_id),
          ));
      },
      get partial() {
        return next !== undefined;
      },
      async more() {
        if (next === undefined) return;
        const mine = generation;
        const answer = await page(next);
        if (mine !== generation) return;
        answer.sessions.forEach(put);
        next = answer.next;
        shown = undefined;
        shared.changed();
      },
    },
    take(e) {
      shown = undefined;
      if (e.type === "sessions" && e.overview) {
        known.clear();
        generation++;
        e.overview.sessions.forEach(put);
        next = e.overview.next;
      } else if (e.type === "session" && e.session) put(e.session);
      else if (e.type === "removed" && e.session_id) known.delete(e.session_id);
    },
  };
}

function inboxFeed(shared: Shared<InboxList>): Feed<InboxList, InboxEvent> {
  // The server has at most 1,024 open questions of one scope, and sends the end of each.
  const known = new Map<string, InboxQuestion>();
  let truncated = false;
  let ended: InboxEnding[] = [];
  let shown: InboxQuestion[] | undefined;
  const key = (q: { session_id: string; request_id: string }) => `${q.session_id} ${q.request_id}`;

  return {
    list: {
      get link() {
        return shared.link;
      },
      get heard() {
        return shared.heard;
      },
      on: shared.on,
      close: shared.close,
      get questions() {
        return (shown ??= [...known.values()].sort((a, b) => compare(a.asked_at, b.asked_at)));
      },
      get truncated() {
        return truncated;
      },
      get ended() {
        return ended;
      },
    },
    told() {
      ended = [];
    },
    take(e) {
      shown = undefined;
      if (e.type === "questions" && e.inbox) {
        known.clear();
        for (const q of e.inbox.questions) known.set(key(q), q);
        truncated = e.inbox.truncated ?? false;
      } else if (e.type === "question" && e.question) known.set(key(e.question), e.question);
      else if (e.type === "ended" && e.ended) {
        known.delete(key(e.ended));
        ended = [...ended, e.ended].slice(-maxEnded);
      }
    },
  };
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
