import type {
  AgentOffer,
  ConnectionList,
  ContentBlock,
  HistoryPage,
  Inbox,
  InboxAnswer,
  InboxReceipt,
  Overview,
  PushAnswer,
  PushRequest,
  RetryAction,
  SessionStatus,
  SessionSummary,
  SessionUpdate,
  ShareAnswer,
  ShareList,
  ShareRequest,
  Snapshot,
  SuccessAnswer,
  TicketAnswer,
  TicketRequest,
  WhoAmI,
} from "../../contracts/ts/maestro.d.ts";
import { newHttp, parse, type Credential } from "./http.ts";
import { subprotocol, type Socket } from "./link.ts";
import { newLists, type InboxList, type SessionList } from "./lists.ts";
import { frames, surroundings, type Schedule, type Surroundings } from "./notify.ts";
import { Refusal } from "./refusal.ts";
import { newSession, type AttachOptions, type Session } from "./session.ts";

export type * from "../../contracts/ts/maestro.d.ts";
export type { Credential } from "./http.ts";
export type { CommandItem, EndItem, Item, NoteItem, PromptItem, QuestionItem, TextItem, ToolItem } from "./items.ts";
export type { LinkStatus, Socket } from "./link.ts";
export type { InboxList, SessionList } from "./lists.ts";
export type { Schedule, Surroundings } from "./notify.ts";
export type { Past } from "./past.ts";
export { Refusal, type Reason } from "./refusal.ts";
export type {
  Answer,
  AttachOptions,
  Changes,
  Connection,
  Control,
  Happening,
  PageRequest,
  Session,
} from "./session.ts";
export type { Transcript } from "./transcript.ts";
export type { Controls, Running, TerminalNews, Utilities, Watch } from "./utilities.ts";

export interface Options {
  /** a bearer token, or what returns one; absent: the cookie of the browser */
  token?: Credential;
  /**
   * is called when the credential is refused, such as after it expired. When it resolves, the client tries again; when
   * it fails, or is absent, the client gives up
   */
  login?: (why: Refusal) => Promise<void>;
  /** opens a WebSocket; default: that of the platform, with the token as a subprotocol */
  socket?: (url: URL, protocols: string[], token: string | undefined) => Socket;
  fetch?: typeof fetch;
  /**
   * when changes are announced; default: in an animation frame, about 30 times a second while a stream goes on, and
   * outside of a page in a microtask
   */
  schedule?: Schedule;
  /** events of the page; default: those of the page, if there is one */
  around?: Surroundings;
}

/** A Server is a Maestro server. Only `attach` and the lists keep a connection. All calls fail with a Refusal. */
export interface Server {
  readonly url: URL;
  /** whose credential the client has, and what it allows */
  whoAmI(): Promise<WhoAmI>;
  /** a page of the sessions, those that need somebody first */
  overview(query?: {
    status?: SessionStatus[];
    q?: string;
    archived?: boolean;
    limit?: number;
    after?: string;
  }): Promise<Overview>;
  /** follows the list of sessions until it is closed */
  sessions(): SessionList;
  inbox(): Promise<Inbox>;
  /** follows the inbox until it is closed */
  questions(): InboxList;
  /** answers a question of any session, without a connection to it */
  answer(
    question: { session_id: string; request_id: string; digest?: string },
    answer: InboxReply,
  ): Promise<InboxReceipt>;

  /** what a browser needs to subscribe to Web Push, and which do; fails with not_found if the server sends none */
  push(): Promise<PushAnswer>;
  /** registers a browser for Web Push, changes its registration, or tests it */
  subscribe(browser: PushRequest): Promise<void>;
  unsubscribe(endpoint: string): Promise<void>;

  /** what the agent of a session offers to who prompts it */
  offer(id: string): Promise<AgentOffer>;
  /** makes a session and returns its id; a repeat with the same key returns the same session */
  create(key?: string): Promise<string>;
  update(id: string, change: SessionUpdate): Promise<SessionSummary>;
  /** deletes a session; restore undoes it for some minutes */
  remove(id: string): Promise<SessionSummary>;
  restore(id: string): Promise<SessionSummary>;
  history(
    id: string,
    query?: { before?: number; limit?: number; bytes?: number; turns?: number; full?: boolean; pieces?: boolean },
  ): Promise<HistoryPage>;
  /** the state as of a cursor, or the oldest that is stored */
  stateAt(id: string, cursor: number): Promise<Snapshot>;

  /** who is connected to a session, the earliest first */
  connections(id: string): Promise<ConnectionList>;
  share(id: string, request?: ShareRequest): Promise<ShareAnswer & { token: string }>;
  shares(id: string): Promise<ShareList>;
  revoke(id: string, shareId: string): Promise<void>;
  ticket(request?: TicketRequest): Promise<TicketAnswer>;

  /** makes the browser's cookie from a token, such as that of a share, or from a ticket */
  login(credential: { token: string } | { ticket: string }): Promise<void>;
  logout(): Promise<void>;

  attach(id: string, options?: AttachOptions): Session;
  /** closes all lists and sessions */
  close(): void;
}

export type InboxReply =
  | { approved: boolean; note?: string }
  | { retry: RetryAction; note?: string }
  | { content: ContentBlock[]; failed?: boolean };

const api = "/api/headless";

/** connect returns a server; it makes no connection yet. */
export function connect(url: string | URL, options: Options = {}): Server {
  const base = new URL("/", url);
  const http = newHttp(base, options.token, options.fetch ?? ((...args) => fetch(...args)), options.login);
  const schedule = () => options.schedule ?? frames();
  const around = options.around ?? surroundings();
  const attached = new Set<Session>();
  const path = (id: string, rest = "") => `${api}/sessions/${encodeURIComponent(id)}${rest}`;

  async function dial(route: string, query = new URLSearchParams()): Promise<Socket> {
    const target = new URL(route, base);
    target.protocol = base.protocol === "https:" ? "wss:" : "ws:";
    target.search = query.toString();
    const token = await http.token();
    if (options.socket) return options.socket(target, [subprotocol], token);
    return new WebSocket(target, token ? [subprotocol, `maestro-headless-bearer.${base64url(token)}`] : [subprotocol]);
  }

  /** probe asks over HTTP why a WebSocket was refused. */
  async function probe(route: string): Promise<Refusal | undefined> {
    try {
      await http.raw("GET", route, { once: true });
    } catch (err) {
      return err as Refusal;
    }
    return undefined;
  }

  /** credential is what connections need to renew the credential that they were made with. */
  function credential() {
    let since = 0;
    return {
      use() {
        since = http.renewals;
      },
      login: (why: Refusal) => http.login(why, since),
    };
  }

  const listCredential = credential();
  const lists = newLists({
    schedule: schedule(),
    around,
    login: listCredential.login,
    probe: () => probe(`${api}/overview?limit=1`),
    page: (after) => server.overview({ after }),
    dial() {
      listCredential.use();
      return dial(`${api}/lists/ws`);
    },
  });

  const server: Server = {
    url: base,
    whoAmI: () => http.json("GET", `${api}/whoami`),
    overview: (query = {}) => http.json("GET", withQuery(`${api}/overview`, query)),
    sessions: lists.sessions,
    inbox: () => http.json("GET", `${api}/inbox`),
    questions: lists.questions,
    answer(question, reply) {
      const { session_id, request_id, digest } = question;
      const body: InboxAnswer = {
        digest,
        ...("retry" in reply
          ? { decisionAction: reply.retry, note: reply.note }
          : "approved" in reply
            ? reply
            : { content: reply.content, isError: reply.failed }),
      };
      return http.json("POST", `${api}/inbox/${encodeURIComponent(session_id)}/${encodeURIComponent(request_id)}`, {
        body,
      });
    },

    push: () => http.json("GET", `${api}/inbox/push`),
    async subscribe(body) {
      await http.json<SuccessAnswer>("POST", `${api}/inbox/push`, { body });
    },
    async unsubscribe(endpoint) {
      await http.json<SuccessAnswer>("DELETE", `${api}/inbox/push`, { body: { endpoint } });
    },

    offer: (id) => http.json("GET", path(id, "/offer")),
    async create(key = crypto.getRandomValues(new Uint32Array(4)).join("-")) {
      const { headers, text } = await http.raw("POST", `${api}/sessions`, {
        body: { role: "viewer" },
        headers: { "Idempotency-Key": key },
      });
      const made = parse<Snapshot>(text);
      // The request made a connection, which nobody needs. It would also end by itself.
      const token = headers.get("X-Maestro-Headless-Connection-Token");
      const connectionId = made.state.connections[0]?.connection_id;
      if (token && connectionId) {
        await http
          .raw("POST", path(made.session_id, "/disconnect"), {
            body: { connectionId },
            headers: { "X-Maestro-Headless-Connection-Token": token },
          })
          .catch(() => {});
      }
      return made.session_id;
    },
    update: (id, body) => http.json("PATCH", path(id), { body }),
    remove: (id) => http.json("DELETE", path(id)),
    restore: (id) => http.json("POST", path(id, "/restore"), { body: {} }),
    history: (id, query = {}) =>
      http.json(
        "GET",
        withQuery(path(id, "/history"), { ...query, full: flag(query.full), pieces: flag(query.pieces) }),
      ),
    stateAt: (id, at) => http.json("GET", withQuery(path(id, "/state"), { at })),

    connections: (id) => http.json("GET", path(id, "/connections")),
    share: (id, body = {}) => http.json("POST", path(id, "/shares"), { body }),
    shares: (id) => http.json("GET", path(id, "/shares")),
    async revoke(id, shareId) {
      await http.json<SuccessAnswer>("DELETE", path(id, `/shares/${encodeURIComponent(shareId)}`));
    },
    ticket: (body = {}) => http.json("POST", `${api}/ws-tickets`, { body }),

    async login(credential) {
      const ticket =
        "ticket" in credential
          ? credential.ticket
          : (
              await http.json<TicketAnswer>("POST", `${api}/ws-tickets`, {
                body: {},
                once: true,
                headers: { Authorization: `Bearer ${credential.token}` },
              })
            ).ticket;
      await http.raw("GET", withQuery("/login", { ticket, next: "/" }), { redirect: "manual", once: true });
    },
    async logout() {
      await http.raw("POST", "/logout", { body: {}, once: true });
    },

    attach(id, attachOptions = {}) {
      const { use, login } = credential();
      const session = newSession(id, attachOptions, {
        schedule: schedule(),
        around,
        login,
        probe: () => probe(path(id, "/turns?limit=1")),
        closed: () => attached.delete(session),
        history: (request) => server.history(id, request),
        stateAt: (cursor) => server.stateAt(id, cursor),
        dial(query) {
          use();
          return dial(path(id, "/ws"), query);
        },
      });
      attached.add(session);
      return session;
    },
    close() {
      lists.close();
      for (const session of attached) session.close();
    },
  };
  return server;
}

const flag = (set: boolean | undefined) => (set ? 1 : undefined);

function withQuery(path: string, query: object): string {
  const q = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== undefined) q.set(key, String(value));
  return q.size > 0 ? `${path}?${q}` : path;
}

function base64url(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replace(/=+$/, "");
}
