import type { Event, HistoryPage, HistoryRequest, State } from "../../contracts/ts/maestro.d.ts";
import { isOpen, isText, newWindow, type Item, type QuestionItem } from "./items.ts";

/**
 * A Transcript is a window of the conversation: the newest items, and the older ones that were asked for. `items` is
 * changed in place; the session announces the changes.
 */
export interface Transcript {
  readonly items: readonly Item[];
  /** the window reaches to the newest event */
  readonly live: boolean;
  /** there is something before the window */
  readonly more: boolean;
  /** events before the window are missing: removed or lost */
  readonly gap: boolean;
  readonly loading: boolean;
  /** reads one more page at the beginning; if the window is full, it then ends earlier and is not live */
  older(): Promise<void>;
  /** shows the window that ends before a cursor, such as that of the turn after the one to show */
  jump(before: number): Promise<void>;
  /** shows the newest events again */
  toEnd(): Promise<void>;
}

interface Hooks {
  fetch(request: Omit<HistoryRequest, "type" | "id">): Promise<HistoryPage>;
  /** the content of an item changed */
  touched(item: Item): void;
  /** items were added or removed */
  listed(): void;
  /** the cursor of the newest event that was applied */
  cursor(): number;
  state: State;
  /** turns of the first page */
  turns: number;
}

/** What a session needs of its transcript. */
export interface OwnTranscript extends Transcript {
  /** the newest page could not be read */
  readonly unread: boolean;
  /** at and omitted are those of an event of the history */
  apply(cursor: number, event: Event, at?: number, omitted?: number): void;
  /** forgets everything; the server sends the newest page by itself if it is expected */
  reset(expected: boolean): void;
  /** reads the newest page, unless the window was reset again meanwhile */
  load(): Promise<void>;
  /** takes the page that the server sends to an attaching client */
  opening(page: HistoryPage): void;
  /** ends the items that the state shows as ended */
  settle(): void;
  /** the latest question with the id, if it is in the window */
  question(id: string): QuestionItem | undefined;
}

export function newTranscript(hooks: Hooks): OwnTranscript {
  let win = newWindow(hooks.touched);
  let live = true;
  let before: number | null = null; // of the next older page
  let gap = false;
  let loading = false;
  let generation = 0; // rises when the window gets another beginning; pages for an earlier one are dropped

  function reset(expected = false): void {
    win = newWindow(hooks.touched);
    live = true;
    before = null;
    gap = false;
    loading = expected;
    generation++;
    hooks.listed();
  }

  function take(page: HistoryPage): void {
    const older = newWindow(hooks.touched);
    for (const e of page.entries ?? []) {
      if (e.message) older.add(e.cursor, Date.parse(e.at), e.message, e.omitted);
    }
    older.join(win);
    win = older;
    before = page.before;
    gap = page.gap ?? false;
    settle();
    hooks.listed();
  }

  /** read takes a page at the beginning of the window. */
  async function read(request: Parameters<Hooks["fetch"]>[0]): Promise<void> {
    const mine = generation;
    loading = true;
    hooks.listed();
    try {
      const page = await hooks.fetch(request);
      if (mine === generation) take(page);
    } finally {
      if (mine === generation) {
        loading = false;
        hooks.listed();
      }
    }
  }

  function settle(): void {
    const { state } = hooks;
    const tools = new Set([...state.tracked_tools, ...state.active_tools].map((t) => t.call_id));
    const questions = new Set(state.pending_requests.map((r) => r.id));
    const commands = new Set(state.active_utility_commands.map((c) => c.command_id));
    const running = { tool: tools, question: questions, command: commands };
    win.settle((i) =>
      isOpen(i)
        ? running[i.kind].has(i.id)
        : !isText(i) || state.current_response?.response_id === i.response,
      live ? "stopped" : "endedLater",
    );
  }

  return {
    get items() {
      return win.items;
    },
    get live() {
      return live;
    },
    get more() {
      return before !== null;
    },
    get gap() {
      return gap;
    },
    get loading() {
      return loading;
    },
    get unread() {
      return live && !loading && before !== null && win.items.length === 0;
    },
    reset,
    settle,
    opening(page) {
      loading = false;
      take(page);
    },
    question: (id) => win.question(id),
    load() {
      before = hooks.cursor() + 1; // if it fails, older() reads the page
      return read({ before, turns: hooks.turns, limit: 1000 });
    },
    apply(cursor, event, at = timeOf(event), omitted) {
      if (!live) {
        if (endings.has(event.type)) settle(); // the items of the window do not get the event
        return;
      }
      const length = win.items.length;
      win.add(cursor, at, event, omitted);
      const cut = win.trimStart();
      if (cut !== undefined) {
        before = cut;
        generation++; // a page that is being read would not fit any more
        loading = false;
      }
      if (cut !== undefined || win.items.length !== length) hooks.listed();
    },
    async older() {
      if (before === null || loading) return;
      const mine = generation;
      const { length } = win.items;
      // A page may have nothing to show, although there is one before it.
      do await read({ before, limit: 200 });
      while (mine === generation && before !== null && !loading && win.items.length === length);
      if (!win.trimEnd()) return;
      live = false;
      hooks.listed();
    },
    async jump(at) {
      reset();
      live = false;
      await read({ before: at, turns: 1, limit: 1000 });
    },
    async toEnd() {
      if (live) return;
      reset();
      await this.load();
    },
  };
}

const endings = new Set(["tool_end", "utility_command_exited", "server_request_resolved", "response_end"]);

/** timeOf returns when a live event happened. */
function timeOf(event: Event): number {
  const at = "timestamp" in event && typeof event.timestamp === "string" ? Date.parse(event.timestamp) : NaN;
  return Number.isNaN(at) ? Date.now() : at;
}
