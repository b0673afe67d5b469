import type {
  ActiveCommand,
  Command,
  Event,
  FileMatch,
  Result,
  State,
  UtilityCommandExited,
  UtilityCommandOutput,
  UtilityCommandStart,
  UtilityCommandStarted,
  UtilityFileRead,
  UtilityFileReadResult,
  UtilityFileWatchEvent,
  UtilityFileWatchStart,
} from "../../contracts/ts/maestro.d.ts";
import { call, newListeners } from "./notify.ts";
import { Refusal } from "./refusal.ts";

/** What the owner of a command or terminal may do with it while it has control. */
export interface Controls {
  write(content: string, eof?: boolean): Promise<Result>;
  resize(columns: number, rows: number): Promise<Result>;
  stop(force?: boolean): Promise<Result>;
}

/** A command or terminal that this client started. */
export interface Running extends Controls {
  readonly id: string;
  /** fails if the server refuses the command */
  readonly started: Promise<UtilityCommandStarted>;
  /** fails with `answer_lost` if the server no longer knows how it ended */
  readonly exited: Promise<UtilityCommandExited>;
}

/** What happens on the terminals of a session, whoever started them. */
export type TerminalNews =
  /** a running terminal with its output so far; after events were missed it comes again and replaces what is known */
  | { kind: "running"; id: string; terminal: Readonly<ActiveCommand> }
  | { kind: "output"; id: string; content: string }
  | { kind: "resized"; id: string; columns: number; rows: number }
  /** `exit` is null if the event of the end was missed */
  | { kind: "ended"; id: string; exit: UtilityCommandExited | null };

/** A watch of files that this client started. */
export interface Watch {
  readonly id: string;
  /** ends with the watch; fails if the server refuses it */
  readonly stopped: Promise<void>;
  stop(): Promise<Result>;
}

/** Utilities of the server beside the agent, for the controller. */
export interface Utilities {
  run(
    command: string,
    options?: Omit<UtilityCommandStart, "type" | "command_id" | "command">,
    output?: (piece: UtilityCommandOutput) => void,
  ): Running;
  /** the controls of a command by its id, such as one of an earlier page */
  controls(id: string): Controls;
  /** follows all terminals of the session, beginning with those that run; the result ends it */
  terminals(listen: (news: TerminalNews) => void): () => void;
  findFiles(
    query: string,
    options?: { cwd?: string; limit?: number },
  ): Promise<{ results: FileMatch[]; truncated: boolean }>;
  readFile(path: string, options?: Omit<UtilityFileRead, "type" | "read_id" | "path">): Promise<UtilityFileReadResult>;
  watchFiles(
    options: Omit<UtilityFileWatchStart, "type" | "watch_id">,
    changed: (change: UtilityFileWatchEvent) => void,
  ): Watch;
}

/** A job is a utility that events with its id are for. */
interface Job {
  event(e: Event): boolean; // true: the job is over
  fail(why: Refusal): void;
  /** reports whether the state still knows the job; undefined for those that have only one answer */
  known?(): boolean;
}

interface Hooks {
  send(command: Command): Promise<Result>;
  newID(): string;
  state: State;
}

const maxJobs = 256;

export function newUtilities(hooks: Hooks) {
  const jobs = new Map<string, Job>();
  const terminals = newListeners<TerminalNews>();
  let shown = new Set<string>(); // ids of the terminals that listeners know
  let doubted = new Set<string>(); // ids of jobs whose events may be missing when a fresh state comes

  const running = () => hooks.state.active_utility_commands.filter((c) => c.terminal_mode === "pty");
  const news = (terminal: ActiveCommand) => ({ kind: "running", id: terminal.command_id, terminal }) as const;

  /** tellTerminals tells what an event changes, which the state already has. */
  function tellTerminals(e: Event): void {
    if (e.type === "utility_command_started" && e.terminal_mode === "pty") {
      const started = running().find((c) => c.command_id === e.command_id);
      shown.add(e.command_id);
      if (started) terminals.tell(news(started));
    }
    if (!("command_id" in e) || !shown.has(e.command_id)) return;
    const id = e.command_id;
    if (e.type === "utility_command_output") terminals.tell({ kind: "output", id, content: e.content });
    if (e.type === "utility_command_resized")
      terminals.tell({ kind: "resized", id, columns: e.columns, rows: e.rows });
    if (e.type !== "utility_command_exited") return;
    shown.delete(id);
    terminals.tell({ kind: "ended", id, exit: e });
  }

  /** start sends a command and keeps the job until it is over. */
  function start(id: string, command: Command, job: Job): void {
    if (jobs.size >= maxJobs) return job.fail(new Refusal("overloaded", "Too many utilities are in use"));
    jobs.set(id, job);
    hooks.send(command).catch((why: Refusal) => {
      if (jobs.delete(id)) job.fail(why);
    });
  }

  /** once waits for one event. */
  function once<T extends Event["type"]>(id: string, command: Command, type: T): Promise<Extract<Event, { type: T }>> {
    return new Promise((resolve, reject) => {
      start(id, command, {
        event(e) {
          if (e.type === type) resolve(e as Extract<Event, { type: T }>);
          return e.type === type;
        },
        fail: reject,
      });
    });
  }

  const controls = (command_id: string): Controls => ({
    write: (content, eof) => hooks.send({ type: "utility_command_stdin", command_id, content, eof }),
    resize: (columns, rows) => hooks.send({ type: "utility_command_resize", command_id, columns, rows }),
    stop: (force) => hooks.send({ type: "utility_command_terminate", command_id, force }),
  });

  const utilities: Utilities = {
    run(command, options = {}, output = () => {}) {
      const id = hooks.newID();
      const started = promise<UtilityCommandStarted>();
      const exited = promise<UtilityCommandExited>();
      start(
        id,
        { type: "utility_command_start", command_id: id, command, ...options },
        {
          event(e) {
            if (e.type === "utility_command_started") started.resolve(e);
            if (e.type === "utility_command_output") call(output, e);
            if (e.type === "utility_command_exited") exited.resolve(e);
            return e.type === "utility_command_exited";
          },
          fail(why) {
            started.reject(why);
            exited.reject(why);
          },
          known() {
            const found = hooks.state.active_utility_commands.find((c) => c.command_id === id);
            if (found) started.resolve({ type: "utility_command_started", ...found });
            return !!found;
          },
        },
      );
      return {
        id,
        started: started.promise,
        exited: exited.promise,
        ...controls(id),
      };
    },
    controls,
    terminals(listen) {
      for (const terminal of running()) listen(news(terminal));
      return terminals.add(listen);
    },
    findFiles(query, options = {}) {
      const id = hooks.newID();
      return once(id, { type: "utility_file_search", search_id: id, query, ...options }, "utility_file_search_results");
    },
    readFile(path, options = {}) {
      const id = hooks.newID();
      return once(id, { type: "utility_file_read", read_id: id, path, ...options }, "utility_file_read_result");
    },
    watchFiles(options, changed) {
      const id = hooks.newID();
      const stopped = promise<void>();
      start(
        id,
        { type: "utility_file_watch_start", watch_id: id, ...options },
        {
          event(e) {
            if (e.type === "utility_file_watch_event") call(changed, e);
            if (e.type === "utility_file_watch_stopped") stopped.resolve();
            return e.type === "utility_file_watch_stopped";
          },
          fail: stopped.reject,
          known: () => hooks.state.active_file_watches.some((w) => w.watch_id === id),
        },
      );
      return {
        id,
        stopped: stopped.promise,
        stop: () => hooks.send({ type: "utility_file_watch_stop", watch_id: id }),
      };
    },
  };

  return Object.assign(utilities, {
    apply(e: Event): void {
      tellTerminals(e);
      const id =
        "command_id" in e
          ? e.command_id
          : "watch_id" in e
            ? e.watch_id
            : "search_id" in e
              ? e.search_id
              : "read_id" in e
                ? e.read_id
                : e.type === "error"
                  ? e.request_id
                  : undefined;
      const job = id === undefined ? undefined : jobs.get(id);
      if (!job) return;
      // A watch and a command may report an error and go on.
      const over = e.type === "error" ? !job.known?.() : job.event(e);
      if (!over) return;
      jobs.delete(id!);
      if (e.type === "error") job.fail(new Refusal("bad_request", e.message));
    },

    /** The connection was lost, or the server leaves events out: those of the jobs until now may be missing. */
    doubt(): void {
      doubted = new Set(jobs.keys());
    },

    /** The state was replaced. If it is fresh, events before it may be missing. */
    restored(fresh: boolean): void {
      const known = shown;
      shown = new Set(running().map((c) => c.command_id));
      for (const id of known) if (!shown.has(id)) terminals.tell({ kind: "ended", id, exit: null });
      for (const c of running()) if (fresh || !known.has(c.command_id)) terminals.tell(news(c));
      if (!fresh) return;
      const why = new Refusal("answer_lost", "The server no longer knows how it ended");
      for (const [id, job] of jobs) {
        if (job.known?.() || !doubted.has(id)) continue;
        jobs.delete(id);
        job.fail(why);
      }
    },

    end(why: Refusal): void {
      for (const job of jobs.values()) job.fail(why);
      jobs.clear();
    },
  });
}

/** promise makes a promise whose failure need not be handled. */
function promise<T>() {
  let resolve!: (value: T) => void;
  let reject!: (why: Refusal) => void;
  const made = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  made.catch(() => {});
  return { promise: made, resolve, reject };
}
