import type {
  Attached,
  Author,
  Capabilities,
  ClientFrame,
  ClientInfo,
  Command,
  ContentBlock,
  ControlRequest,
  Event,
  HistoryPage,
  HistoryRequest,
  HistoryTurn,
  LeaseChange,
  Notification,
  PendingRequest,
  PromptTime,
  Result,
  RetryAction,
  Role,
  ServerFrame,
  ShownRecord,
  Snapshot,
  State,
} from "../../contracts/ts/maestro.d.ts";
import { newCalls, refused } from "./calls.ts";
import { newFold } from "./fold.ts";
import type { Item } from "./items.ts";
import { newLink, verdict, type LinkStatus, type Socket } from "./link.ts";
import { newListeners, type Schedule, type Surroundings } from "./notify.ts";
import { newPast, type Past } from "./past.ts";
import { Refusal } from "./refusal.ts";
import { bytes } from "./texts.ts";
import { newTranscript, type Transcript } from "./transcript.ts";
import { newUtilities, type Utilities } from "./utilities.ts";

/** How a session is attached. */
export interface AttachOptions {
  /** default: viewer */
  role?: Role;
  /** name that the user gives themselves; others see it as a claim */
  displayName?: string;
  /** turns of the first page of the transcript, 1 to 100; default: 10 */
  turns?: number;
  /** a page that is loaded again under the same name keeps control; default: { name: "maestro-web" } */
  clientInfo?: ClientInfo;
  /** default: people, and all questions and utilities that the role may use */
  capabilities?: Capabilities;
  optOut?: Notification[];
  /** continues the connection of an earlier page, with its control and its commands, if the server still has it */
  connection?: Connection;
}

/** A Connection is what continues a connection, together with the same credential. Its token is a secret. */
export interface Connection {
  readonly id: string;
  readonly token: string;
}

/** What changed since the last announcement. */
export interface Changes {
  /** fields of `state` that were replaced, or whose texts grew */
  readonly state: ReadonlySet<keyof State>;
  /** items of the transcript that are new or have changed */
  readonly items: ReadonlySet<Item>;
  /** items were added or removed, or another property of the transcript changed */
  readonly list: boolean;
  /** `link` changed */
  readonly link: boolean;
  /** `control` or `me` changed */
  readonly control: boolean;
}

/** Who controls the session, as this connection sees it. */
export interface Control {
  /** this connection holds the lease */
  readonly mine: boolean;
  /** id of the holder's connection */
  readonly holder: string | null;
  /** this connection has asked for the lease and has no answer yet */
  readonly asked: boolean;
  /** others that ask this connection for the lease */
  readonly asking: readonly ControlRequest[];
  /** the last change of the lease that concerned this connection */
  readonly last: LeaseChange | null;
}

/** An answer to a question. */
export type Answer =
  | { approved: boolean; reason?: string }
  | { retry: RetryAction; reason?: string }
  | { content: ContentBlock[]; failed?: boolean };

/** An event of the session with its position. */
export interface Happening {
  readonly cursor: number;
  readonly event: Event;
  /** it is from before this connection was made */
  readonly replayed: boolean;
}

/** A page of the history; see docs/protocol.md. */
export type PageRequest = Omit<HistoryRequest, "type" | "id">;

/**
 * A Session is attached to one session of a server until `close`. It reconnects by itself, gets every event once and
 * in order, and if that is impossible the whole state anew. It never takes control from another connection by itself.
 */
export interface Session {
  readonly id: string;
  readonly link: LinkStatus;
  /** of the latest connection; null before the first */
  readonly me: { readonly connectionId: string; readonly role: Role } | null;
  /** what another page needs to continue this connection; null before the first */
  readonly connection: Connection | null;
  readonly control: Control;
  /** the state of the session; its fields are replaced and not changed */
  readonly state: Readonly<State>;
  readonly transcript: Transcript;
  /** position of the last event applied; 0 before the first snapshot */
  readonly cursor: number;
  readonly epoch: string;
  readonly utilities: Utilities;

  /** is called once for all changes since the last call, at most once in a frame; the result removes the listener */
  on(listen: (changes: Changes) => void): () => void;
  /** is called with each event at once, such as for a terminal */
  onEvent(listen: (happening: Happening) => void): () => void;
  /** waits until the session is attached and has its state, or fails with the reason that ended the link */
  ready(): Promise<void>;
  /** waits until a condition holds */
  until(condition: (session: Session) => boolean, signal?: AbortSignal): Promise<void>;

  /** sends a command; a repeated one is executed once. Fails with a Refusal */
  send(command: Command): Promise<Result>;
  prompt(content: string, more?: { attachments?: string[]; when?: PromptTime }): Promise<Result>;
  interrupt(): Promise<Result>;
  /** answers a question with the digest of `question`, or of the state if it is an id */
  answer(question: string | { request_id: string; digest?: string }, answer: Answer): Promise<Result>;
  readonly queue: {
    edit(promptId: string, content: string): Promise<Result>;
    /** moves a prompt before another one, or to the end */
    move(promptId: string, before: string | null): Promise<Result>;
    cancel(promptId: string): Promise<Result>;
    resume(): Promise<Result>;
  };
  readonly lease: {
    ask(reason?: string): Promise<Result>;
    take(): Promise<Result>;
    release(): Promise<Result>;
    grant(connectionId: string): Promise<Result>;
    deny(connectionId: string, reason?: string): Promise<Result>;
  };

  /** an open question; `shown` has the first 4 KiB of the display form if the question is not in the transcript */
  question(requestId: string): (PendingRequest & { shown?: ShownRecord; votes: Author[] }) | undefined;
  history(request?: PageRequest): Promise<HistoryPage>;
  turns(request?: PageRequest): Promise<HistoryPage & { turns: HistoryTurn[] }>;
  search(query: string, request?: PageRequest): Promise<HistoryPage>;
  /** looks at earlier moments of the session; read over HTTP, also without a connection */
  past(): Past;

  /** attaches again after the link was closed, such as after a refusal; not after `close` */
  reconnect(): void;
  /** leaves the session. With keep the server holds the connection and its control for the usual time */
  close(keep?: boolean): void;
}

interface Hooks {
  dial(query: URLSearchParams): Promise<Socket>;
  probe(): Promise<Refusal | undefined>;
  login(why: Refusal): Promise<void>;
  closed(): void;
  /** read over HTTP */
  history(request: PageRequest): Promise<HistoryPage>;
  stateAt(cursor: number): Promise<Snapshot>;
  schedule: Schedule;
  around: Surroundings;
}

const defaultCapabilities: Record<Role, Capabilities> = {
  viewer: { people: true },
  approver: { people: true, server_requests: ["approval", "user_input"] },
  controller: {
    people: true,
    server_requests: ["approval", "user_input", "mcp_elicitation", "tool_retry"],
    utility_operations: ["command_exec", "file_search", "file_read", "file_watch"],
  },
};

export function newSession(id: string, options: AttachOptions, hooks: Hooks): Session {
  const role = options.role ?? "viewer";
  const turns = options.turns ?? 10;
  const idPrefix = Math.random().toString(36).slice(2, 10) + Date.now().toString(36);
  let lastID = 0;
  const newID = () => `${idPrefix}-${(++lastID).toString(36)}`;

  let attached: Attached | null = null;
  let connection = options.connection ?? null; // that the next link continues
  let position = { epoch: "", cursor: 0, known: false };
  let replaying = false; // until hello_ok, which the server sends after the missed events
  let awaitsPage = false; // the server sends the first page of the transcript by itself
  let control: Control = { mine: false, holder: null, asked: false, asking: [], last: null };

  // Announcements.
  const listeners = newListeners<Changes>();
  const happenings = newListeners<Happening>();
  let pending = noChanges();
  let scheduled = false;

  function announce(): void {
    if (scheduled) return;
    scheduled = true;
    hooks.schedule(() => {
      scheduled = false;
      const changes = pending;
      pending = noChanges();
      listeners.tell(changes);
    });
  }

  const mark = (kind: "list" | "link" | "control") => {
    pending[kind] = true;
    announce();
  };

  const fold = newFold((field) => {
    pending.state.add(field);
    announce();
  });
  const transcript = newTranscript({
    state: fold.state,
    turns,
    cursor: () => position.cursor,
    fetch: (request) => page(request),
    touched(item) {
      pending.items.add(item);
      announce();
    },
    listed: () => mark("list"),
  });
  const calls = newCalls((text) => link.send(text));
  const utilities = newUtilities({ send, newID, state: fold.state });

  const link = newLink({
    around: hooks.around,
    probe: hooks.probe,
    login: hooks.login,
    dial: () => hooks.dial(query()),
    opened() {
      if (connection) link.send(JSON.stringify({ type: "ws.resume", connection_token: connection.token }));
      link.send(
        JSON.stringify({
          type: "hello",
          protocol_version: "2026-04-02",
          role,
          client_info: options.clientInfo ?? { name: "maestro-web" },
          capabilities: options.capabilities ?? defaultCapabilities[role],
          display_name: options.displayName,
          opt_out_notifications: options.optOut,
        }),
      );
    },
    frame: (text) => handle(JSON.parse(text) as ServerFrame),
    lost() {
      calls.unlink();
      utilities.doubt();
    },
    judge,
    changed(status) {
      if (status.status === "closed") {
        calls.end(status.why);
        utilities.end(status.why);
      }
      mark("link");
    },
  });

  /** query is how the next connection attaches. */
  function query(): URLSearchParams {
    const q = new URLSearchParams({ role, turns: String(turns) });
    if (role === "controller") q.set("takeControl", "later");
    if (connection) q.set("connectionId", connection.id);
    if (position.known) {
      q.set("epoch", position.epoch);
      q.set("cursor", String(position.cursor));
    }
    return q;
  }

  /** judge says whether another attempt would end the same way. */
  function judge(why: Refusal): "retry" | "login" | "end" {
    if (why.code !== "stale_connection" && why.code !== "stale_subscription") return verdict(why);
    attached = connection = null; // the server may still have the events
    return "retry";
  }

  function handle(f: ServerFrame): void {
    switch (f.type) {
      case "message":
        return message(f.cursor, f.message);
      case "snapshot":
        return snapshot(f.snapshot, false);
      case "reset":
        return snapshot(f.snapshot, true);
      case "history":
        if (f.id !== undefined) return calls.answer(f.id, f.page);
        awaitsPage = false;
        return transcript.opening(f.page);
      case "ws.attached":
        return welcome(f);
      case "ws.result":
        return calls.answer(f.id, f);
      case "ws.error":
        if (link.status.status !== "online") return link.refused(refused(f)); // the server closes next
        return calls.answer(f.id, f);
      case "ws.lease":
        return leaseChange(f);
      case "ws.control_request":
        control = {
          ...control,
          asking: [...control.asking.filter((a) => a.connection_id !== f.connection_id), f].slice(-64),
        };
        return mark("control");
      case "ws.goodbye":
        return link.goodbye(f.retry_after_ms ?? 0);
    }
  }

  function welcome(a: Attached): void {
    const same = a.connection_id === attached?.connection_id;
    const replay = a.resume === "replay";
    attached = a;
    connection = { id: a.connection_id, token: a.connection_token };
    position = { epoch: a.epoch, cursor: position.cursor, known: position.known && replay };
    replaying = replay;
    const owed = replay && (awaitsPage || transcript.unread); // the last connection was lost before the page came
    awaitsPage = !replay;
    control = {
      ...control,
      mine: a.controller_lease_granted,
      holder: a.controller_connection_id,
      asked: false,
      asking: [],
    };
    mark("control");
    link.online(a.heartbeat_interval_ms);
    calls.link(same);
    if (owed) loadPage();
  }

  function loadPage(): void {
    transcript.load().catch(() => {}); // older() reads it then, and so does the next reset
  }

  function message(cursor: number, event: Event): void {
    if (position.known && cursor <= position.cursor) return;
    position = { ...position, cursor, known: true };
    if (event.type === "hello_ok") {
      replaying = false;
      setHolder(event.controller_connection_id ?? null);
    } else if (event.type === "connection_info") {
      setHolder(event.controller_connection_id ?? null);
      if (event.connection_id && !event.role) forget(event.connection_id); // the connection has gone
    }
    fold.apply(event);
    transcript.apply(cursor, event);
    utilities.apply(event);
    happenings.tell({ cursor, event, replayed: replaying });
  }

  function snapshot(s: Snapshot, reset: boolean): void {
    if (!reset && position.known && s.cursor <= position.cursor) return;
    const fresh = reset || !position.known;
    if (position.known && reset) utilities.doubt();
    position = { ...position, cursor: s.cursor, known: true };
    fold.restore(s);
    setHolder(s.state.controller_connection_id ?? null);
    utilities.restored(fresh);
    if (!fresh) return transcript.settle();
    transcript.reset(awaitsPage);
    if (!awaitsPage) loadPage();
  }

  function setHolder(holder: string | null): void {
    const mine = holder !== null && holder === attached?.connection_id;
    if (holder === control.holder && mine === control.mine) return;
    control = { ...control, holder, mine, asking: mine ? control.asking : [] };
    mark("control");
  }

  function leaseChange(f: LeaseChange): void {
    const mine = f.granted && f.controller_connection_id === attached?.connection_id;
    control = { mine, holder: f.controller_connection_id, asked: false, asking: mine ? control.asking : [], last: f };
    mark("control");
  }

  /** transmit sends a frame and waits for its answer. A frame that is too long would end the connection. */
  function transmit(frame: ClientFrame & { id?: string }, repeat: Parameters<typeof calls.send>[2]): Promise<unknown> {
    const text = JSON.stringify(frame);
    const most = attached?.limits.max_frame_bytes ?? 1 << 20;
    if (text.length * 3 > most && bytes(text) > most) {
      return Promise.reject(new Refusal("payload_too_large", `A message of more than ${most} bytes cannot be sent`));
    }
    return calls.send(frame.id!, text, repeat);
  }

  function send(command: Command): Promise<Result> {
    return transmit({ type: "ws.send", id: newID(), message: command }, "same") as Promise<Result>;
  }

  function page(request: PageRequest): Promise<HistoryPage> {
    return transmit({ ...request, type: "ws.history", id: newID() }, "always") as Promise<HistoryPage>;
  }

  // Frames about the lease are never sent twice, because the holder may have changed meanwhile.
  type LeaseFrame = Extract<ClientFrame, { type: `ws.${string}_control` }>;
  const leaseFrame = (frame: LeaseFrame) => transmit({ ...frame, id: newID() }, "never") as Promise<Result>;

  /** forget drops the request for control of a connection. */
  function forget(connection: string): void {
    const asking = control.asking.filter((a) => a.connection_id !== connection);
    if (asking.length === control.asking.length) return;
    control = { ...control, asking };
    mark("control");
  }

  /** answered forgets a connection that asked, if the server accepts the answer or knows no such request. */
  async function answered(connection: string, answer: Promise<Result>): Promise<Result> {
    try {
      const result = await answer;
      forget(connection);
      return result;
    } catch (err) {
      if (err instanceof Refusal && err.code === "request_not_found") forget(connection);
      throw err;
    }
  }

  function shown(requestId: string): ShownRecord | undefined {
    return fold.state.people?.requests.find((r) => r.request_id === requestId);
  }

  // A page that goes away says so, and the server holds its control for the page that is loaded next.
  const leave = () => {
    link.send(JSON.stringify({ type: "ws.bye", keep: true }));
    link.rest();
  };
  hooks.around.window?.addEventListener("pagehide", leave);

  const session: Session = {
    id,
    get link() {
      return link.status;
    },
    get me() {
      return attached && { connectionId: attached.connection_id, role: attached.role };
    },
    get connection() {
      return connection;
    },
    get control() {
      return control;
    },
    state: fold.state,
    transcript,
    get cursor() {
      return position.cursor;
    },
    get epoch() {
      return position.epoch;
    },
    utilities,
    on: listeners.add,
    onEvent: happenings.add,
    ready: () => session.until(() => link.status.status === "online" && position.known && !transcript.loading),
    until(condition, signal) {
      return new Promise((resolve, reject) => {
        const check = () => {
          try {
            if (!condition(session)) {
              if (link.status.status === "closed") throw link.status.why;
              if (signal?.aborted) throw new Refusal("closed", "The wait was ended");
              return;
            }
            resolve();
          } catch (err) {
            reject(err as Error);
          }
          remove();
          signal?.removeEventListener("abort", check);
        };
        const remove = listeners.add(check);
        signal?.addEventListener("abort", check);
        check();
      });
    },
    send,
    prompt: (content, more = {}) => send({ type: "prompt", content, ...more }),
    interrupt: () => send({ type: "interrupt" }),
    answer(question, answer) {
      const request_id = typeof question === "string" ? question : question.request_id;
      const pendingRequest = fold.state.pending_requests.find((r) => r.id === request_id);
      if (!pendingRequest) return Promise.reject(new Refusal("request_not_found", "The question is not open any more"));
      const digest = (typeof question === "string" ? undefined : question.digest) ?? shown(request_id)?.digest;
      return send({
        type: "server_request_response",
        request_id,
        request_type: pendingRequest.kind,
        digest,
        ...response(answer),
      });
    },
    queue: {
      edit: (prompt_id, content) => send({ type: "queue_edit", prompt_id, content }),
      move: (prompt_id, before) => send({ type: "queue_move", prompt_id, before }),
      cancel: (prompt_id) => send({ type: "queue_cancel", prompt_id }),
      resume: () => send({ type: "queue_resume" }),
    },
    lease: {
      async ask(reason) {
        const result = await leaseFrame({ type: "ws.ask_control", reason });
        control = { ...control, asked: !control.mine };
        mark("control");
        return result;
      },
      take: () => leaseFrame({ type: "ws.take_control" }),
      release: () => leaseFrame({ type: "ws.release_control" }),
      grant: (connection_id) => answered(connection_id, leaseFrame({ type: "ws.grant_control", connection_id })),
      deny: (connection_id, reason) =>
        answered(connection_id, leaseFrame({ type: "ws.deny_control", connection_id, reason })),
    },
    question(requestId) {
      const found = fold.state.pending_requests.find((r) => r.id === requestId);
      const record = shown(requestId);
      return found && { ...found, shown: transcript.question(requestId)?.shown ?? record, votes: record?.votes ?? [] };
    },
    history: (request = {}) => page(request),
    turns: (request = {}) => page({ ...request, kind: "turns" }) as Promise<HistoryPage & { turns: HistoryTurn[] }>,
    search: (query, request = {}) => page({ ...request, kind: "search", query }),
    past: () => newPast(hooks),
    reconnect() {
      if (link.status.status !== "closed" || link.ended) return;
      calls.reopen();
      link.connect();
    },
    close(keep = false) {
      link.send(JSON.stringify({ type: "ws.bye", keep }));
      hooks.around.window?.removeEventListener("pagehide", leave);
      link.end(new Refusal("closed", "The session was closed"));
      hooks.closed();
    },
  };
  link.connect();
  return session;
}

function noChanges() {
  return { state: new Set<keyof State>(), items: new Set<Item>(), list: false, link: false, control: false };
}

function response(answer: Answer) {
  if ("approved" in answer) {
    const { approved, reason } = answer;
    const result =
      reason === undefined
        ? undefined
        : approved
          ? { success: true, output: reason }
          : { success: false, output: "", error: reason };
    return { approved, result };
  }
  if ("retry" in answer) return { decision_action: answer.retry, reason: answer.reason };
  return { content: answer.content, is_error: answer.failed };
}
