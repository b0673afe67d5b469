// The screens of terminals, drawn by xterm. The page loads this file when somebody opens the first terminal.
import { Terminal, type ITheme } from "@xterm/xterm";

const piece = 8 << 10; // characters that xterm parses without a pause, a few milliseconds
const ahead = 8 * piece; // characters that xterm has and has not parsed
const most = 1 << 20; // characters that wait; when there are more, the screen skips to the last `kept`
const kept = 64 << 10;
const mostMarks = 16; // combining characters in a row; more would make one cell huge
const cutAt = 32768; // characters of an output of the past that the server may have cut
const fonts = { largest: 13, smallest: 9 }; // in pixels

/** What a screen tells about the terminal that it shows. */
export interface Watcher {
  typed(text: string): void;
  titled(title: string): void;
  selected(is: boolean): void;
  linked(address: string | null): void;
  /** the keys that leave the terminal were pressed */
  left(): void;
}

export interface Size {
  columns: number;
  rows: number;
}

export interface Screen {
  readonly element: HTMLElement;
  /** shows a terminal with its output so far. Questions in this output get no answers */
  begin(size: Size, output: string, watcher: Watcher): void;
  write(text: string): void;
  resize(size: Size): void;
  /** draws the screen in its element, which must be in the page */
  open(): void;
  /** chooses the largest font in which all columns and rows fit, but none below 9 pixels */
  fit(width: number, height: number): void;
  /** columns and rows that fit with the largest font */
  room(width: number, height: number): Size;
  typing(allowed: boolean): void;
  reading(aloud: boolean): void;
  key(name: Key): void;
  paste(text: string): void;
  copy(): void;
  focus(): void;
  /** frees the screen for another terminal */
  end(): void;
}

export type Key = "Escape" | "Tab" | "Up" | "Down" | "Left" | "Right";

// xterm 6.0.0 does not free a terminal that was disposed, so screens are used again.
const free: Screen[] = [];
const open = new Set<Terminal>();

export function takeScreen(): Screen {
  return free.pop() ?? newScreen();
}

/** follows the colours of the page, which change with its theme */
new MutationObserver(() => {
  const now = theme();
  for (const t of open) t.options.theme = now;
}).observe(document.documentElement, { attributeFilter: ["class"] });

const names = "black red green yellow blue magenta cyan white".split(" ");

function theme(): ITheme {
  const style = getComputedStyle(document.documentElement);
  const token = (name: string) => style.getPropertyValue(name).trim();
  const colours: Record<string, string> = {
    background: token("--n0"),
    foreground: token("--n8"),
    cursor: token("--accent"),
    cursorAccent: token("--n0"),
    selectionBackground: token("--term-selection"),
    scrollbarSliderBackground: token("--n4"),
    scrollbarSliderHoverBackground: token("--n5"),
    scrollbarSliderActiveBackground: token("--n5"),
  };
  for (const name of names) {
    colours[name] = token(`--term-${name}`);
    colours[`bright${name[0]!.toUpperCase()}${name.slice(1)}`] = token(`--term-bright-${name}`);
  }
  return colours;
}

let cell: { ratio: number; width: number; height: number } | undefined; // of the largest font

const still = matchMedia("(prefers-reduced-motion: reduce)");

function newScreen(): Screen {
  let watcher: Watcher | null = null;
  const terminal = new Terminal({
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
    fontSize: fonts.largest,
    lineHeight: 1.2,
    theme: theme(),
    minimumContrastRatio: 4.5,
    cursorBlink: !still.matches,
    scrollback: 4000,
    linkHandler: {
      // xterm passes only http and https on
      activate: (_, address) => void window.open(address, "_blank", "noopener,noreferrer"),
      hover: (_, address) => watcher?.linked(address),
      leave: () => watcher?.linked(null),
    },
  });
  const element = document.createElement("div");
  element.className = "screen";
  let opened = false;
  let past = 0; // replays of the past that are not parsed yet; what xterm answers to their questions goes nowhere

  terminal.onData((text) => {
    if (past === 0) watcher?.typed(text);
  });
  terminal.onTitleChange((title) => watcher?.titled(title));
  terminal.onSelectionChange(() => watcher?.selected(terminal.hasSelection()));
  terminal.attachCustomKeyEventHandler((e) => {
    const command = e.ctrlKey || e.metaKey;
    if (command && e.code === "Backquote") {
      if (e.type === "keydown") watcher?.left();
      e.preventDefault();
      return false;
    }
    if (e.type === "keydown" && e.ctrlKey && e.shiftKey && e.code === "KeyC") {
      e.preventDefault(); // else the browser opens its tools
      screen.copy();
      return false;
    }
    if (e.ctrlKey && e.shiftKey && e.code === "KeyV") return false; // the browser pastes
    const scrolls = e.shiftKey && e.key.startsWith("Page");
    return scrolls || !terminal.options.disableStdin; // a screen that takes no keys leaves them to the page
  });
  element.addEventListener(
    "paste",
    (e) => {
      e.preventDefault();
      e.stopPropagation();
      screen.paste(e.clipboardData?.getData("text/plain") ?? "");
    },
    { capture: true },
  );

  // Texts and sizes wait here in their order, and not in xterm, so that they can be skipped.
  let queue: (string | Size)[] = [];
  let queued = 0; // characters
  let inside = 0; // characters that xterm has and has not parsed
  let starting = 0; // calls of begin that wait for what xterm parses

  function give(text: string): void {
    inside += text.length;
    terminal.write(text, () => {
      inside -= text.length;
      pump();
    });
  }

  function pump(): void {
    while (starting === 0 && inside < ahead) {
      const next = queue.shift();
      if (next === undefined) return;
      if (typeof next === "string") {
        queued -= next.length;
        give(next);
      } else terminal.write("", () => terminal.resize(next.columns, next.rows));
    }
  }

  function push(text: string): void {
    const mild = text.replace(tooManyMarks, "$1");
    for (let at = 0; at < mild.length; at += piece) queue.push(mild.slice(at, at + piece));
    queued += mild.length;
    if (queued > most) skip();
    pump();
  }

  function skip(): void {
    const sizes = queue.filter((q) => typeof q !== "string").slice(-1);
    const texts = queue.filter((q) => typeof q === "string");
    // CAN ends a sequence that began before the gap.
    const gap = "\x18\x1b[0m\r\n[output was skipped, because it came too fast]\r\n";
    const rest = gap + wholeLines(texts.join("").slice(-kept));
    queue = [...sizes, rest];
    queued = rest.length;
  }

  /** measure returns the size of a character in the largest font. It is measured once, because xterm rounds. */
  function measure(): { width: number; height: number } {
    if (cell?.ratio === devicePixelRatio) return cell;
    const box = element.querySelector(".xterm-screen")!.getBoundingClientRect();
    const scale = fonts.largest / terminal.options.fontSize!;
    cell = {
      ratio: devicePixelRatio,
      width: (box.width / terminal.cols) * scale,
      height: (box.height / terminal.rows) * scale,
    };
    return cell;
  }

  const screen: Screen = {
    element,
    begin(size, output, by) {
      watcher = by;
      queue = [];
      queued = 0;
      past++;
      starting++;
      terminal.write("", () => {
        starting--;
        if (starting > 0) return void past--; // another call follows
        terminal.reset();
        const whole = output.length < cutAt ? output : wholeLines(output);
        terminal.resize(size.columns, size.rows);
        for (let at = 0; at < whole.length; at += piece) give(whole.slice(at, at + piece));
        terminal.write("", () => past--);
        pump();
      });
    },
    write: push,
    resize(size) {
      queue.push(size);
      pump();
    },
    open() {
      if (!opened) terminal.open(element);
      opened = true;
      open.add(terminal);
    },
    fit(width, height) {
      const { width: w, height: h } = measure();
      const fits = Math.min(width / (w * terminal.cols), height / (h * terminal.rows), 1);
      const size = Math.max(fonts.smallest, Math.floor(fonts.largest * fits));
      if (terminal.options.fontSize !== size) terminal.options.fontSize = size;
    },
    room(width, height) {
      if (terminal.options.fontSize !== fonts.largest) terminal.options.fontSize = fonts.largest;
      const { width: w, height: h } = measure();
      const between = (n: number, least: number, most: number) => Math.max(least, Math.min(most, Math.floor(n)));
      return { columns: between(width / w, 20, 400), rows: between(height / h, 4, 200) };
    },
    typing(allowed) {
      terminal.options.disableStdin = !allowed;
    },
    reading(aloud) {
      terminal.options.screenReaderMode = aloud;
    },
    key(name) {
      const arrows = terminal.modes.applicationCursorKeysMode ? "\x1bO" : "\x1b[";
      const codes: Record<Key, string> = {
        Escape: "\x1b",
        Tab: "\t",
        Up: `${arrows}A`,
        Down: `${arrows}B`,
        Right: `${arrows}C`,
        Left: `${arrows}D`,
      };
      terminal.input(codes[name]);
    },
    paste(text) {
      // A pasted text must not end the bracket around it, nor press other keys.
      if (!terminal.options.disableStdin) terminal.paste(text.replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g, ""));
    },
    copy() {
      if (!terminal.hasSelection()) return;
      terminal.focus();
      document.execCommand("copy"); // navigator.clipboard is missing on plain http
    },
    focus: () => terminal.focus(),
    end() {
      watcher = null;
      queue = [];
      queued = 0;
      element.remove();
      open.delete(terminal);
      terminal.write("", () => {
        terminal.reset();
        terminal.options.theme = theme(); // output may have changed colours
        free.push(screen);
      });
    },
  };
  return screen;
}

const tooManyMarks = new RegExp(`(\\p{M}{${mostMarks}})\\p{M}+`, "gu");

/** wholeLines drops the line at the beginning that may have been cut, if it is not all. */
function wholeLines(text: string): string {
  const end = text.indexOf("\n");
  return end < 0 ? text : text.slice(end + 1);
}
