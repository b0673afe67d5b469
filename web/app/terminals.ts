// The terminals of the open session: the list, their screens, and their input.
import { effect, signal, untracked } from "@preact/signals";
import type { Session, TerminalNews, UtilityCommandExited } from "../client/index.ts";
import type { Key, Screen, Size } from "./terminal-screen";
import { place } from "./lists";
import { control, driving, inWords, link, nameOf, openID, refusal, role, session } from "./store";

const mostOwn = 8; // terminals that a page starts in a session
const mostTabs = 32; // with those of others and those that have ended
const mostInput = 1 << 20; // characters typed or pasted that wait for the server
const mostSent = 4; // writes without an answer; what is typed meanwhile goes into one
const maxWrite = 64 << 10; // characters of one write

export interface Tab {
  readonly id: string;
  readonly name: string;
  readonly command: string;
  readonly owner: string | undefined;
  /** name of the owner when the terminal was first seen */
  readonly by: string | undefined;
  readonly size: Size;
  /** what a program calls its window */
  readonly title: string;
  /** why it ended; null while it runs */
  readonly ended: string | null;
}

export const tabs = signal<readonly Tab[]>([]);
export const activeID = signal<string | null>(null);
export const shown = signal(sessionStorage.getItem("maestro.terminals") === "shown");
/** why the last action on a terminal failed */
export const trouble = signal("");
export const selecting = signal(false);
/** the keys go into the terminal as soon as it is drawn */
export const entering = signal(false);
/** the link under the pointer */
export const pointed = signal<string | null>(null);
/** the Ctrl of the row of keys is down */
export const ctrl = signal(false);
export const aloud = signal(localStorage.getItem("maestro.terminals.aloud") === "yes");

/** ids of terminals that this page ends; their tabs close when they have ended */
const ending = signal<ReadonlySet<string>>(new Set());
/** the code that draws screens is loaded */
export const ready = signal(false);
let drawing: typeof import("./terminal-screen") | undefined;
const screens = new Map<string, Screen>();

effect(() => {
  sessionStorage.setItem("maestro.terminals", shown.value ? "shown" : "");
  if (shown.value && !drawing) void load();
});

async function load(): Promise<void> {
  try {
    const loaded = await import("./terminal-screen");
    if (drawing) return;
    drawing = loaded;
    ready.value = true;
    follow(session.peek());
  } catch (err) {
    trouble.value = `The terminals could not be loaded: ${String(err)}`;
  }
}

let stop = () => {};

effect(() => {
  const s = session.value;
  untracked(() => follow(s));
});

/** follow shows the terminals of a session instead of those before. */
function follow(s: Session | null): void {
  stop();
  ending.value = new Set();
  for (const id of [...screens.keys()]) endScreen(id);
  tabs.value = [];
  trouble.value = "";
  pointed.value = null;
  stop = s?.utilities.terminals((news) => hear(s, news)) ?? (() => {});
}

function hear(s: Session, news: TerminalNews): void {
  switch (news.kind) {
    case "running": {
      const { command, owner_connection_id: owner, columns = 80, rows = 24, output } = news.terminal;
      const known = tabOf(news.id);
      const by = known?.by ?? (owner ? nameOf(owner) : undefined);
      const size = { columns, rows };
      const title = known?.title ?? "";
      put({ id: news.id, name: nameIn(command), command, owner, by, size, title, ended: null });
      if (!drawing) return;
      const screen = screens.get(news.id) ?? drawing.takeScreen();
      screens.set(news.id, screen);
      screen.begin(size, output, {
        typed: (text) => typed(s, news.id, text),
        titled: (title) => change(news.id, { title: shortName(title) }),
        selected: (is) => {
          selecting.value = is;
        },
        linked: (address) => {
          pointed.value = address;
        },
        left: leave,
      });
      screen.reading(aloud.peek());
      // After a reload the beginning may be missing. Another size makes a program draw all again.
      const again = !known && output !== "" && mayType(tabOf(news.id)!);
      if (again) s.utilities.controls(news.id).resize(columns, Math.max(1, rows - 1)).catch(() => {});
      return;
    }
    case "output":
      return screens.get(news.id)?.write(news.content);
    case "resized": {
      const { columns, rows } = news;
      screens.get(news.id)?.resize({ columns, rows });
      return change(news.id, { size: { columns, rows } });
    }
    case "ended":
      inputs.delete(news.id);
      if (drawing && !ending.value.has(news.id)) return change(news.id, { ended: endWords(news.exit) });
      return closeTab(news.id); // it was never shown, or this page ended it
  }
}

export const tabOf = (id: string | null) => tabs.value.find((t) => t.id === id);
export const screenOf = (id: string) => screens.get(id);
export const isMine = (t: Tab) => t.owner !== undefined && t.owner === session.value?.me?.connectionId;
/** mayType reports whether keys reach a terminal. */
export const mayType = (t: Tab) => t.ended === null && isMine(t) && control.value.mine;

function put(tab: Tab): void {
  const others = tabs.value.filter((t) => t.id !== tab.id);
  const full = others.length >= mostTabs ? (others.find((t) => t.ended !== null) ?? others[0]) : undefined;
  if (full) endScreen(full.id);
  const at = tabs.value.findIndex((t) => t.id === tab.id);
  const list = others.filter((t) => t !== full);
  tabs.value = at < 0 ? [...list, tab] : [...list.slice(0, at), tab, ...list.slice(at)];
  if (!tabOf(activeID.peek())) activeID.value = tab.id;
}

function change(id: string, what: Partial<Tab>): void {
  tabs.value = tabs.value.map((t) => (t.id === id ? { ...t, ...what } : t));
}

function endScreen(id: string): void {
  screens.get(id)?.end();
  screens.delete(id);
  inputs.delete(id);
}

/** The name of a terminal is a comment in its command, so that everybody sees the same one. */
const named = /^exec "\$\{SHELL:-sh\}" # (Terminal \d+)$/;
const commandOf = (name: string) => `exec "\${SHELL:-sh}" # ${name}`;
const nameIn = (command: string) => named.exec(command)?.[1] ?? shortName(command);

/** shortName cuts a text of a program and drops characters that change how other text looks. */
function shortName(text: string): string {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "").slice(0, 60);
}

/** startTerminal starts a shell in the workspace. */
export async function startTerminal(size: Size): Promise<void> {
  trouble.value = "";
  const own = tabs.value.filter((t) => t.ended === null && isMine(t));
  if (own.length >= mostOwn) {
    trouble.value = `You have ${mostOwn} terminals here. End one first.`;
    return;
  }
  let n = 1;
  while (tabs.value.some((t) => t.name === `Terminal ${n}`)) n++;
  const s = session.peek();
  const done = await driving(async (s) => {
    const started = s.utilities.run(commandOf(`Terminal ${n}`), {
      ...size,
      terminal_mode: "pty",
      allow_stdin: true,
      env: { COLORTERM: "truecolor" },
    });
    await started.started;
    if (s !== session.peek()) return; // somebody went to another session meanwhile
    activeID.value = started.id;
    entering.value = true;
  });
  if (done || s !== session.peek()) return;
  trouble.value = refusal.peek(); // and not beside the prompt
  refusal.value = "";
}

/** tell says in the pane of a session what failed there. */
function tell(s: Session, why: string): void {
  if (s === session.peek()) trouble.value = why;
}

/** endTerminal ends a terminal with all that runs in it, or closes the tab of one that has ended. */
export async function endTerminal(tab: Tab): Promise<void> {
  if (tab.ended !== null) return closeTab(tab.id);
  ending.value = new Set([...ending.value, tab.id]);
  const s = session.peek()!;
  try {
    await s.utilities.controls(tab.id).stop();
  } catch (err) {
    ending.value = new Set([...ending.value].filter((id) => id !== tab.id));
    tell(s, inWords(err));
  }
}

function closeTab(id: string): void {
  const at = tabs.value.findIndex((t) => t.id === id);
  endScreen(id);
  tabs.value = tabs.value.filter((t) => t.id !== id);
  if (activeID.peek() === id) activeID.value = (tabs.value[at] ?? tabs.value.at(-1))?.id ?? null;
}

const inputs = new Map<string, (text: string) => void>();

function typed(s: Session, id: string, text: string): void {
  const tab = tabOf(id);
  if (!tab || !mayType(tab)) return;
  if (ctrl.peek() && text.length === 1) {
    ctrl.value = false;
    text = String.fromCharCode(text.toUpperCase().charCodeAt(0) & 31);
  }
  if (!inputs.has(id)) inputs.set(id, newInput(s.utilities.controls(id).write, (why) => tell(s, why)));
  inputs.get(id)!(text);
}

/** newInput sends what is typed in its order. While answers are due, it gathers. */
function newInput(write: (text: string) => Promise<unknown>, tell: (why: string) => void): (text: string) => void {
  let waiting = "";
  let sent = 0;
  const fail = (why: string) => {
    waiting = "";
    tell(why);
  };
  const flush = () => {
    while (waiting && sent < mostSent) {
      const split = /[\uD800-\uDBFF]/.test(waiting[maxWrite - 1] ?? ""); // a character of two halves
      const next = waiting.slice(0, maxWrite - Number(split));
      waiting = waiting.slice(next.length);
      sent++;
      write(next)
        .catch((err) => fail(inWords(err)))
        .finally(() => {
          sent--;
          flush();
        });
    }
  };
  return (text) => {
    if (waiting.length + text.length > mostInput) return fail("The terminal does not read so much at once.");
    waiting += text;
    flush();
  };
}

let resizing: { id: string; size: Size } | undefined;
let busy = false;

/** sizeTerminal tells the server the size that fits. While an answer is due, only the last size is kept. */
export function sizeTerminal(tab: Tab, size: Size): void {
  resizing = { id: tab.id, size };
  if (busy) return;
  busy = true;
  void (async () => {
    while (resizing) {
      const { id, size } = resizing;
      const s = session.peek()!;
      resizing = undefined;
      const now = tabOf(id);
      if (!now || !mayType(now) || (now.size.columns === size.columns && now.size.rows === size.rows)) continue;
      try {
        await s.utilities.controls(id).resize(size.columns, size.rows);
      } catch (err) {
        tell(s, inWords(err));
      }
    }
    busy = false;
  })();
}

export function press(key: Key): void {
  const id = activeID.peek();
  if (id) screens.get(id)?.key(key);
}

export function readAloud(is: boolean): void {
  aloud.value = is;
  localStorage.setItem("maestro.terminals.aloud", is ? "yes" : "");
  for (const screen of screens.values()) screen.reading(is);
}

/** showTerminals opens the pane and goes into the terminal, or closes the pane. */
export function showTerminals(is = !shown.value): void {
  if (openID.peek() === null || place.peek() !== "session") return;
  const inside = document.querySelector(".terminals")?.contains(document.activeElement);
  shown.value = is;
  entering.value = is;
  if (!is && inside) document.querySelector<HTMLElement>(".terminal-button")?.focus();
}

/** leave goes from the terminal to its tab. */
function leave(): void {
  document.querySelector<HTMLElement>('.terminals [role="tab"][aria-selected="true"]')?.focus();
}

const reasons: [RegExp, string][] = [
  [/^Server restarted/, "The server was restarted, which ended this terminal."],
  [/^Owning connection closed/, "Its owner left, which ended this terminal."],
  [/^(Interrupted|Cancelled) while/, "The agent was stopped, which ends all terminals."],
  [/^Headless runtime shutdown/, "The session was shut down, which ended this terminal."],
  [/^(Force t|T)erminated by controller/, "Its owner ended this terminal."],
];

function endWords(exit: UtilityCommandExited | null): string {
  if (!exit) return "This terminal ended while the page was not connected.";
  const known = reasons.find(([pattern]) => pattern.test(exit.reason ?? ""))?.[1];
  if (known) return known;
  if (exit.reason) return `This terminal ended: ${exit.reason}`;
  if (exit.signal) return `This terminal was ended by the signal ${exit.signal}.`;
  return exit.exit_code ? `This terminal ended with the exit code ${exit.exit_code}.` : "This terminal ended.";
}

/** describe says whose terminal it is, and why keys do not reach it. */
export function describe(tab: Tab): string {
  if (tab.ended !== null) return tab.ended;
  if (ending.value.has(tab.id)) return "Ending…";
  const size = `${tab.size.columns} × ${tab.size.rows}`;
  if (!isMine(tab)) {
    const owner = (tab.owner && nameOf(tab.owner)) ?? tab.by;
    const why = control.value.mine ? ", because only its owner can type in it" : "";
    return `${owner ? `${owner}'s` : "Somebody's"} terminal, ${size}; you watch${why}.`;
  }
  if (link.value.status !== "online") return `Your terminal, ${size}. Keys are sent when the connection is back.`;
  if (!control.value.mine) return `Your terminal, ${size}. You can type again when you drive.`;
  return `Your terminal, ${size}`;
}

export const mayStart = () => role.value === "controller" && (control.value.mine || control.value.holder === null);
