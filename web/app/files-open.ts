// Files of the workspace: the files that were opened, the text of the open one, and the file that others read.
import { computed, effect, signal } from "@preact/signals";
import type { UtilityFileReadResult } from "../client/index.ts";
import { renderHighlighted } from "./markdown";
import { highlight } from "./highlight";
import { type FileText, newText } from "./reading";
import { within } from "./paths";
import { opened } from "./side";
import { control, link, session } from "./store";

export type Token = { text: string; kind: string };

/** A file that is open. */
export interface Reader {
  no: number;
  path: string;
  /** the line to show first; absent after it was shown */
  line?: number;
  /** where the reader was when another tab was shown, in pixels */
  top: number;
  text: FileText;
  /** the line as coloured pieces, or the line itself */
  tokens(line: number): Token[] | undefined;
}

export const reader = signal<Reader | null>(null);
/** rises with every change of the open text */
export const drawn = signal(0);
/** the open file was deleted after it was read */
export const gone = signal(false);
/** paths that were opened, the latest first */
export const recent = signal<readonly string[]>([]);
/** the file that the driver read last, for viewers */
export const shared = signal<{ path: string; pages: UtilityFileReadResult[] } | null>(null);

const follows = computed(() => control.value.mine && link.value.status === "online");
const mostRecent = 12;
// Bounds of what is kept of a file that somebody else reads.
const mostPages = 64;
const mostShared = 4 << 20; // characters
let last = 0;
const longest = 96 << 10; // characters of a page that are coloured

effect(() => {
  const s = session.value;
  opened.value = null;
  recent.value = [];
  shared.value = null;
  return s?.onEvent(({ event }) => {
    if (event.type !== "utility_file_read_result" || s.control.mine) return;
    const path = within(s.state.cwd, event.path);
    const earlier = shared.peek()?.path === path ? shared.peek()!.pages : [];
    const pages = [...earlier, event].slice(-mostPages);
    while (pages.length > 1 && pages.reduce((n, p) => n + p.content.length, 0) > mostShared) pages.shift();
    shared.value = { path, pages };
    if (reader.peek()?.path === path) reader.peek()!.text.take(event);
  });
});

effect(() => {
  const file = opened.value;
  const s = session.peek();
  reader.peek()?.text.close();
  gone.value = false;
  if (!file || !s) {
    reader.value = null;
    return;
  }
  const path = within(s.state.cwd, file.path);
  const colours = new Map<number, { of: string; tokens: Token[] }>();
  const changed = () => {
    drawn.value = drawn.peek() + 1;
  };
  const text = newText(
    (offset, limit) => read(path, offset, limit),
    changed,
    ({ content, start_line }) => {
      void highlight(languageOf(path), content, longest).then((html) => {
        if (html === undefined) return;
        const lines = content.split("\n");
        tokensOf(html).forEach((tokens, i) => colours.set(start_line + i, { of: lines[i] ?? "", tokens }));
        changed();
      });
    },
  );
  reader.value = {
    no: ++last,
    path,
    line: file.line,
    top: 0,
    text,
    tokens(line) {
      const found = colours.get(line);
      return found && found.of === text.at(line) ? found.tokens : undefined;
    },
  };
  recent.value = [path, ...recent.peek().filter((p) => p !== path)].slice(0, mostRecent);
  if (shared.peek()?.path === path) for (const page of shared.peek()!.pages) text.take(page);
});

/** read reads lines through the server. If nobody drives, the server gives control to this page. */
async function read(path: string, offset: number, limit: number): Promise<UtilityFileReadResult> {
  const s = session.peek();
  if (!s) throw new Error("No session is open.");
  await s.ready();
  return s.utilities.readFile(path, { offset, limit });
}

// A file is read again when it changes on disk, as long as it is open and this page drives. A watch may have ended with
// the connection, so a new one begins with the next.
let followed: Reader | undefined;
effect(() => {
  const file = reader.value;
  const s = session.peek();
  if (!file || !s || !follows.value || file.path.startsWith("/")) return;
  if (file === followed) file.text.reload(); // it may have changed meanwhile
  followed = file;
  const watch = s.utilities.watchFiles({ include_patterns: [literally(file.path)], debounce_ms: 200 }, (e) => {
    gone.value = e.change_type === "delete";
    if (!gone.value) file.text.reload();
  });
  return () => void watch.stop().catch(() => {}); // it ends with the connection at the latest
});

/** literally is a pattern that only the path itself matches. */
const literally = (path: string) => path.replace(/[\\*?[\]]/g, "\\$&");

const byName: Record<string, string> = { makefile: "makefile", dockerfile: "bash", "go.mod": "go" };

function languageOf(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1).toLowerCase();
  return byName[name] ?? (name.includes(".") ? name.slice(name.lastIndexOf(".") + 1) : "");
}

/** tokensOf splits coloured code into the pieces of each line. */
function tokensOf(html: string): Token[][] {
  const lines: Token[][] = [[]];
  const walk = (node: Node, kind: string) => {
    for (const child of node.childNodes) {
      if (child instanceof Text) {
        child.data.split("\n").forEach((text, i) => {
          if (i > 0) lines.push([]);
          if (text) lines.at(-1)!.push({ text, kind });
        });
      } else if (child instanceof Element) walk(child, child.className || kind);
    }
  };
  walk(renderHighlighted(html), "");
  return lines;
}
