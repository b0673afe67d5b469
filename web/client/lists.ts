import type { Inbox, InboxEnding, InboxEvent, InboxQuestion, Overview, OverviewEvent, SessionStatus, SessionSummary } from "../../contracts/ts/maestro.d.ts";
import { newListeners, type Schedule, type Surroundings } from "./notify.ts";
import type { Refusal } from "./refusal.ts";
import { follow, type FeedStatus, type Source } from "./stream.ts";

const maxSessions = 5_000;
const order: SessionStatus[] = ["waiting", "running", "failed", "idle", "at_rest", "deleted"];

interface ListHooks {
  source: Source;
  final(why: Refusal): boolean;
  schedule: Schedule;
  around: Surroundings;
  closed(): void;
}

/** A SessionList follows the sessions of a server, those that need somebody first. */
export interface SessionList {
  /** without archived and deleted sessions; replaced by each change */
  readonly sessions: readonly SessionSummary[];
  /** there are sessions that were not read yet; ask for them with `more` */
  readonly partial: boolean;
  readonly link: FeedStatus;
  /** reads the next page */
  more(): Promise<void>;
  /** is called after each change, once for all changes of a frame; the result removes the listener */
  on(listen: (list: SessionList) => void): () => void;
  close(): void;
}

export function newSessionList(hooks: ListHooks & { page(after: string): Promise<Overview> }): SessionList {
  const known = new Map<string, SessionSummary>(); // archived and deleted ones too, for their revisions
  let next: string | undefined;
  let generation = 0;

  function take(s: SessionSummary): void {
    const old = known.get(s.session_id);
    if (old && old.revision >= s.revision) return;
    if (!old && known.size >= maxSessions) return;
    known.set(s.session_id, s);
  }

  const list = newList<SessionList>({
    ...hooks,
    event(e: OverviewEvent) {
      if (e.type === "sessions" && e.overview) {
        known.clear();
        generation++;
        e.overview.sessions.forEach(take);
        next = e.overview.next;
      } else if (e.type === "session" && e.session) take(e.session);
      else if (e.type === "removed" && e.session_id) known.delete(e.session_id);
    },
  });

  let sessions: SessionSummary[] | undefined;
  list.stale(() => { sessions = undefined; });

  return list.build({
    get sessions() {
      return (sessions ??= [...known.values()]
        .filter((s) => !s.archived && s.status !== "deleted")
        .sort((a, b) => order.indexOf(a.status) - order.indexOf(b.status) || compare(b.updated_at, a.updated_at) || compare(a.session_id, b.session_id)));
    },
    get partial() { return next !== undefined; },
    async more() {
      if (next === undefined) return;
      const mine = generation;
      const page = await hooks.page(next);
      if (mine !== generation) return;
      page.sessions.forEach(take);
      next = page.next;
      list.changed();
    },
  });
}

/** An InboxList follows the open questions of all sessions, the oldest first. */
export interface InboxList {
  /** replaced by each change */
  readonly questions: readonly InboxQuestion[];
  /** there are more questions than the server lists */
  readonly truncated: boolean;
  /** how questions ended since the last announcement */
  readonly ended: readonly InboxEnding[];
  readonly link: FeedStatus;
  on(listen: (list: InboxList) => void): () => void;
  close(): void;
}

export function newInboxList(hooks: ListHooks): InboxList {
  const known = new Map<string, InboxQuestion>();
  let truncated = false;
  let ended: InboxEnding[] = [];
  let questions: InboxQuestion[] | undefined;
  const key = (q: { session_id: string; request_id: string }) => `${q.session_id} ${q.request_id}`;

  const list = newList<InboxList>({
    ...hooks,
    event(e: InboxEvent) {
      if (e.type === "questions" && e.inbox) set(e.inbox);
      else if (e.type === "question" && e.question) known.set(key(e.question), e.question);
      else if (e.type === "ended" && e.ended) {
        known.delete(key(e.ended));
        ended = [...ended, e.ended].slice(-64);
      }
    },
  });
  list.stale(() => { questions = undefined; });
  list.announced(() => { ended = []; });

  function set(inbox: Inbox): void {
    known.clear();
    for (const q of inbox.questions) known.set(key(q), q);
    truncated = inbox.truncated ?? false;
  }

  return list.build({
    get questions() { return (questions ??= [...known.values()].sort((a, b) => compare(a.asked_at, b.asked_at))); },
    get truncated() { return truncated; },
    get ended() { return ended; },
  });
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** newList is what both lists share: the feed and the announcements. */
function newList<L extends { readonly link: FeedStatus; on(listen: (list: L) => void): () => void; close(): void }>(
  hooks: ListHooks & { event(e: any): void },
) {
  const listeners = newListeners<L>();
  let link: FeedStatus = { status: "connecting" };
  let scheduled = false;
  let built: L;
  let stale = () => {};
  let announced = () => {};

  function changed(): void {
    stale();
    if (scheduled) return;
    scheduled = true;
    hooks.schedule(() => {
      scheduled = false;
      listeners.tell(built);
      announced();
    });
  }

  return {
    changed,
    stale(run: () => void) { stale = run; },
    announced(run: () => void) { announced = run; },
    /** starts the feed; the getters of own stay getters */
    build(own: Omit<L, "link" | "on" | "close">): L {
      const feed = follow({
        source: hooks.source, final: hooks.final, around: hooks.around,
        event(e) { hooks.event(e); changed(); },
        changed(status) { link = status; if (built) changed(); },
      });
      built = Object.defineProperties({}, {
        ...Object.getOwnPropertyDescriptors(own),
        link: { get: () => link },
        on: { value: listeners.add },
        close: { value: () => { feed.stop(); listeners.clear(); hooks.closed(); } },
      }) as L;
      return built;
    },
  };
}
