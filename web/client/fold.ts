import type {
  ConnectionInfo,
  ConnectionState,
  Event,
  Init,
  People,
  PendingEntry,
  RequestType,
  ServerRequest,
  ServerRequestResolved,
  ShownRecord,
  Snapshot,
  State,
} from "../../contracts/ts/maestro.d.ts";
import { head, tail } from "./texts.ts";

// Limits of the state, as in the Go package session.
const maxTools = 1024;
const maxPending = 256;
const maxActive = 256; // commands, and watches
const maxListed = 64;
const maxPeople = 20;
const maxQueued = 20;
const maxRecord = 4096; // bytes of a prompt or display in people
const maxText = 1 << 20; // bytes of the open response, and of its thinking
const maxOutput = 32768; // code points of an output

const pendingLists = {
  approval: "pending_approvals",
  client_tool: "pending_client_tools",
  mcp_elicitation: "pending_mcp_elicitations",
  user_input: "pending_user_inputs",
  tool_retry: "pending_tool_retries",
} as const satisfies Record<RequestType, keyof State>;

const requestTypes = Object.keys(pendingLists) as RequestType[];

/**
 * A Fold folds the events of a session into its state. The state equals the snapshot that the server would send
 * at the same cursor, except for the fields that describe one connection.
 *
 * The fields of `state` are replaced when they change and never changed in place, except for the growing texts in
 * `current_response`, `active_tools` and `active_utility_commands`, which may be up to twice as long as in a snapshot.
 */
export interface Fold {
  readonly state: State;
  readonly lastInit: Init | null;
  apply(event: Event): void;
  restore(snapshot: Snapshot): void;
  /** the state with its texts cut as in a snapshot of the server; a deep copy */
  snapshot(): State;
}

/** newFold makes a fold; touched is called with each field that changed, maybe more than once. */
export function newFold(touched: (field: keyof State) => void = () => {}): Fold {
  const state = emptyState();
  let lastInit: Init | null = null;
  let unified: unknown[] = []; // what pending_requests was made of
  let records: ShownRecord[] = []; // the requests of people, with those that are not pending

  function set<K extends keyof State>(key: K, value: State[K]): void {
    if (value === undefined) delete state[key];
    else state[key] = value;
    touched(key);
  }

  /** put replaces the entry with the same key and drops the oldest over the limit. */
  function put<K extends ListKey>(key: K, entry: Entry<K>, limit: number): void {
    const rest = without(state[key] as Entry<K>[], (e) => id(e) === id(entry));
    set(key, [...rest.slice(Math.max(0, rest.length + 1 - limit)), entry] as State[K]);
  }

  function drop<K extends ListKey>(key: K, which: (e: Entry<K>) => boolean): void {
    const list = state[key] as Entry<K>[];
    const rest = without(list, which);
    if (rest.length < list.length) set(key, rest as State[K]);
  }

  /** grow appends to the output of an entry. */
  function grow(key: "active_tools" | "active_utility_commands", entryID: string, text: string): void {
    const entry = (state[key] as { output: string }[]).find((e) => id(e as Entry<typeof key>) === entryID);
    if (!entry) return;
    entry.output = bounded(entry.output + text, maxOutput, 4 * maxOutput);
    touched(key);
  }

  const track = (e: PendingEntry) => put("tracked_tools", e, maxTools);
  const untrack = (call: string) => drop("tracked_tools", (e) => e.call_id === call);

  function addPending(kind: RequestType, e: PendingEntry): void {
    put(pendingLists[kind], e, maxPending);
    unify();
  }

  /** unify makes the list of all pending requests from the five lists, if one of them has changed. */
  function unify(): void {
    const now = [state.session_id, ...requestTypes.map((kind) => state[pendingLists[kind]])];
    if (now.every((part, i) => part === unified[i])) return;
    unified = now;
    set(
      "pending_requests",
      requestTypes.flatMap((kind) =>
        state[pendingLists[kind]].map((e) => ({
          id: requestID(e),
          kind,
          status: "pending" as const,
          visibility: "user" as const,
          ...(state.session_id === undefined ? {} : { session_id: state.session_id }),
          tool_call_id: e.call_id,
          call_id: e.call_id,
          ...optional("request_id", e.request_id),
          tool_name: e.tool,
          tool: e.tool,
          ...optional("display_name", e.display_name),
          ...optional("summary_label", e.summary_label),
          ...optional("action_description", e.action_description),
          args: e.args,
          source: "local" as const,
        })),
      ),
    );
    const shown = pendingRecords();
    const before = state.people?.requests ?? [];
    if (shown.length !== before.length || shown.some((r, i) => r !== before[i])) setPeople({ requests: shown });
  }

  const isPending = (request: string) =>
    requestTypes.some((k) => state[pendingLists[k]].some((e) => requestID(e) === request));

  function setSession(session: string | null): void {
    set("session_id", session);
    unify();
  }

  function setClient(
    e: Pick<ConnectionInfo, "client_protocol_version" | "client_info" | "capabilities" | "opt_out_notifications">,
  ): void {
    set("client_protocol_version", e.client_protocol_version);
    set("client_info", e.client_info);
    set("capabilities", e.capabilities);
    const outs = [...new Set(e.opt_out_notifications)];
    set("opt_out_notifications", outs.length > 0 ? outs : undefined);
  }

  function connectionInfo(e: ConnectionInfo): void {
    setClient(e);
    set("connection_role", e.role);
    set("controller_connection_id", e.controller_connection_id);
    set("connection_count", e.connection_count ?? e.connections?.length ?? 0);
    if (e.connections) set("connections", e.connections.slice(0, maxListed));
    else if (e.connection_id) set("connections", changed(state.connections, e));
  }

  function serverRequest(e: ServerRequest): void {
    if (!(e.request_type in pendingLists)) return; // of unknown type; its end could not be recognized
    if (e.request_type !== "tool_retry" || !state.tracked_tools.some((t) => t.call_id === e.call_id)) {
      track({ call_id: e.call_id, tool: e.tool, args: e.args });
    }
    const labels =
      e.request_type !== "approval"
        ? {}
        : {
            ...optional("display_name", e.display_name),
            ...optional("summary_label", e.summary_label),
            ...optional("action_description", e.action_description),
          };
    addPending(
      e.request_type,
      normal({ call_id: e.call_id, request_id: e.request_id, tool: e.tool, ...labels, args: e.args }),
    );
  }

  function resolved(e: ServerRequestResolved): void {
    if (e.author) {
      const { request_id, call_id, resolution, author, timestamp = "" } = e;
      const answer = { request_id, call_id, resolution, author, timestamp };
      setPeople({ answers: [...(state.people?.answers ?? []), answer].slice(-maxPeople) });
    }
    const list = pendingLists[e.request_type];
    if (!list) return;
    drop(list, (p) => requestID(p) === e.request_id);
    // The call has ended, and no tool_end will come.
    const over =
      e.request_type === "approval"
        ? e.resolution !== "approved"
        : e.request_type === "client_tool"
          ? e.resolution === "cancelled"
          : e.request_type === "tool_retry"
            ? false
            : e.resolution !== "answered";
    if (over) untrack(e.call_id);
    unify();
  }

  function toolName(call: string): string {
    for (const list of [state.tracked_tools, ...requestTypes.map((k) => state[pendingLists[k]])]) {
      const found = list.find((e) => e.call_id === call);
      if (found) return found.tool;
    }
    return "unknown";
  }

  function setPeople(change: Partial<People>): void {
    set("people", { ...(state.people ?? { prompts: [], answers: [], requests: [], controller: null }), ...change });
  }

  const pendingRecords = () => records.filter((r) => isPending(r.request_id));

  function addShown(r: ShownRecord): void {
    records = [...pendingRecords().filter((o) => o.request_id !== r.request_id), cut(r, "display")];
    setPeople({ requests: pendingRecords() });
  }

  function setQueue(prompts: People["queue"], held: boolean | undefined): void {
    const queue = (prompts ?? []).slice(0, maxQueued).map((p) => cut(p, "content"));
    setPeople({ queue: queue.length > 0 ? queue : undefined, queue_held: held || undefined });
  }

  /** startRun does what an accepted prompt does to the state of the server. */
  function startRun(): void {
    for (const key of ["current_response", "last_error", "last_error_type", "last_status"] as const)
      set(key, undefined);
    set("is_responding", true);
  }

  function apply(event: Event): void {
    switch (event.type) {
      case "hello_ok":
        set("protocol_version", event.protocol_version);
        setClient(event);
        set("connection_role", event.role);
        set("controller_connection_id", event.controller_connection_id);
        break;
      case "ready":
        set("protocol_version", event.protocol_version);
        set("model", event.model || undefined);
        set("provider", event.provider || undefined);
        setSession(event.session_id);
        set("is_ready", true);
        break;
      case "session_info":
        setSession(event.session_id);
        set("cwd", event.cwd || undefined);
        set("git_branch", event.git_branch);
        break;
      case "connection_info":
        connectionInfo(event);
        break;
      case "response_start":
        set("current_response", { response_id: event.response_id, text: "", thinking: "" });
        set("is_responding", true);
        break;
      case "response_chunk": {
        const open = state.current_response;
        if (open?.response_id !== event.response_id) break;
        const part = event.is_thinking ? "thinking" : "text";
        open[part] = bounded(open[part] + event.content, maxText, maxText);
        touched("current_response");
        break;
      }
      case "response_end":
        set("last_response_duration_ms", event.duration_ms);
        set("last_ttft_ms", event.ttft_ms);
        set("current_response", undefined);
        set("is_responding", false);
        break;
      case "tool_call": {
        const call = { call_id: event.call_id, tool: event.tool, args: event.args };
        track(call);
        if (event.requires_approval) addPending("approval", call);
        break;
      }
      case "tool_start":
        put("active_tools", { call_id: event.call_id, tool: toolName(event.call_id), output: "" }, maxTools);
        break;
      case "tool_output":
        grow("active_tools", event.call_id, event.content);
        break;
      case "tool_end":
        drop("active_tools", (t) => t.call_id === event.call_id);
        untrack(event.call_id);
        for (const kind of requestTypes) drop(pendingLists[kind], (e) => e.call_id === event.call_id);
        unify();
        break;
      case "client_tool_request": {
        const call = { call_id: event.call_id, tool: event.tool, args: event.args };
        track(call);
        addPending(event.tool === "ask_user" ? "user_input" : "client_tool", call);
        break;
      }
      case "server_request":
        serverRequest(event);
        break;
      case "server_request_resolved":
        resolved(event);
        break;
      case "utility_command_started": {
        const { type: _, ...command } = event;
        put("active_utility_commands", { ...command, output: "" }, maxActive);
        break;
      }
      case "utility_command_resized":
        set(
          "active_utility_commands",
          state.active_utility_commands.map((c) =>
            c.command_id === event.command_id ? { ...c, columns: event.columns, rows: event.rows } : c,
          ),
        );
        break;
      case "utility_command_output":
        grow("active_utility_commands", event.command_id, event.content);
        break;
      case "utility_command_exited":
        drop("active_utility_commands", (c) => c.command_id === event.command_id);
        break;
      case "utility_file_watch_started": {
        const { type: _, ...watch } = event;
        put("active_file_watches", watch, maxActive);
        break;
      }
      case "utility_file_watch_stopped":
        drop("active_file_watches", (w) => w.watch_id === event.watch_id);
        break;
      case "error":
        set("last_error", event.message);
        set("last_error_type", event.error_type);
        break;
      case "status":
        set("last_status", event.message);
        break;
      case "prompt_accepted": {
        const { type: _, ...prompt } = event;
        if (!state.is_responding) startRun(); // otherwise the prompt steers the run
        setPeople({ prompts: [...(state.people?.prompts ?? []), cut(prompt, "content")].slice(-maxPeople) });
        break;
      }
      case "queue_changed":
        setQueue(event.prompts, event.held);
        break;
      case "request_shown": {
        const { type: _, ...shown } = event;
        addShown(shown);
        break;
      }
      case "request_voted":
        if (event.approved) {
          records = records.map((r) =>
            r.request_id === event.request_id ? { ...r, votes: [...(r.votes ?? []), event.author] } : r,
          );
        }
        setPeople({ requests: pendingRecords() });
        break;
      case "control_changed":
        setPeople({ controller: event.to });
        break;
    }
  }

  /** A snapshot without people does not change the people that are known. */
  function restore(snapshot: Snapshot): void {
    const { people, ...rest } = structuredClone(snapshot.state);
    const kept = state.people;
    for (const key of Object.keys(state) as (keyof State)[]) {
      if (key === "people") continue;
      delete state[key];
      touched(key);
    }
    Object.assign(state, emptyState(), rest);
    if (kept) state.people = kept;
    for (const key of Object.keys(state) as (keyof State)[]) touched(key);
    lastInit = snapshot.last_init;
    if (state.opt_out_notifications?.length === 0) delete state.opt_out_notifications;
    for (const kind of requestTypes) {
      const key = pendingLists[kind];
      state[key] = latest(state[key].map(normal), maxPending);
    }
    state.connections = state.connections.slice(0, maxListed);
    state.tracked_tools = latest(state.tracked_tools.map(normal), maxTools);
    state.active_tools = latest(state.active_tools, maxTools);
    state.active_utility_commands = latest(state.active_utility_commands, maxActive);
    state.active_file_watches = latest(state.active_file_watches, maxActive);
    if (people) {
      records = [];
      set("people", {
        ...people,
        prompts: people.prompts.slice(-maxPeople).map((p) => cut(p, "content")),
        requests: [],
        answers: people.answers.slice(-maxPeople),
      });
      setQueue(people.queue, people.queue_held);
      for (const r of people.requests) addShown(r);
    }
    unify();
  }

  function snapshot(): State {
    const copy = structuredClone(state);
    const open = copy.current_response;
    if (open) {
      open.text = tail(open.text, maxText, maxText);
      open.thinking = tail(open.thinking, maxText, maxText);
    }
    for (const e of [...copy.active_tools, ...copy.active_utility_commands])
      e.output = tail(e.output, maxOutput, 4 * maxOutput);
    return copy;
  }

  return {
    state,
    get lastInit() {
      return lastInit;
    },
    apply,
    restore,
    snapshot,
  };
}

type ListKey =
  | "tracked_tools"
  | "active_tools"
  | "active_utility_commands"
  | "active_file_watches"
  | (typeof pendingLists)[RequestType];
type Entry<K extends ListKey> = State[K][number];

/** id returns the key of an entry in its list. */
function id(e: { call_id: string } | { command_id: string } | { watch_id: string }): string {
  return "call_id" in e ? e.call_id : "command_id" in e ? e.command_id : e.watch_id;
}

const requestID = (e: PendingEntry) => e.request_id || e.call_id;

function without<T>(list: T[], which: (e: T) => boolean): T[] {
  return list.filter((e) => !which(e));
}

/** latest keeps the last entry of each key, and so many of them. */
function latest<T extends Parameters<typeof id>[0]>(list: T[], limit: number): T[] {
  const byID = new Map<string, T>();
  for (const e of list) {
    byID.delete(id(e));
    byID.set(id(e), e);
  }
  return [...byID.values()].slice(-limit);
}

/** normal leaves out a request id that equals the call id. */
function normal(e: PendingEntry): PendingEntry {
  const { request_id, ...rest } = e;
  return request_id && request_id !== e.call_id ? e : rest;
}

function optional<K extends string>(key: K, value: string | undefined): { [P in K]?: string } {
  return (value ? { [key]: value } : {}) as { [P in K]?: string };
}

/** bounded cuts a growing text only when it is twice as long as allowed, so that appending stays cheap. */
function bounded(text: string, points: number, limit: number): string {
  return text.length > 2 * limit ? tail(text, points, limit) : text;
}

/** cut cuts the text of a record for people. */
function cut<K extends string, T extends { [P in K]: string } & { truncated?: boolean }>(record: T, key: K): T {
  const text = head(record[key], maxRecord);
  return text.length < record[key].length ? { ...record, [key]: text, truncated: true } : record;
}

/** changed applies the change of one connection to the list. Without a role the connection has gone. */
function changed(list: ConnectionState[], e: ConnectionInfo): ConnectionState[] {
  const known = list.find((c) => c.connection_id === e.connection_id);
  const rest = list.filter((c) => c !== known);
  if (e.role && rest.length < maxListed) {
    const one: ConnectionState = {
      ...(known ?? { subscription_count: 1, attached_subscription_count: 1 }),
      connection_id: e.connection_id!,
      role: e.role,
      may_answer: e.may_answer,
      client_protocol_version: e.client_protocol_version,
      client_info: e.client_info,
      capabilities: e.capabilities,
      opt_out_notifications: e.opt_out_notifications,
      controller_lease_granted: false,
    };
    for (const key of Object.keys(one) as (keyof ConnectionState)[]) if (one[key] === undefined) delete one[key];
    rest.push(one);
  }
  const rank = (c: ConnectionState) => (c.controller_lease_granted ? 0 : c.role === "controller" ? 1 : 2);
  return rest
    .map((c) => ({ ...c, controller_lease_granted: c.connection_id === e.controller_connection_id }))
    .sort(
      (a, b) =>
        rank(a) - rank(b) || (a.connection_id < b.connection_id ? -1 : a.connection_id > b.connection_id ? 1 : 0),
    );
}

function emptyState(): State {
  return {
    connection_count: 0,
    subscriber_count: 0,
    connections: [],
    pending_requests: [],
    pending_approvals: [],
    pending_client_tools: [],
    pending_mcp_elicitations: [],
    pending_user_inputs: [],
    pending_tool_retries: [],
    active_tools: [],
    active_utility_commands: [],
    active_file_watches: [],
    tracked_tools: [],
    is_ready: false,
    is_responding: false,
  };
}
