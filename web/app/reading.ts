// A file that is read in pages. Only the pages that the reader looks at are read.
import type { UtilityFileReadResult } from "../client/index.ts";

export const pageLines = 400;

type Page = Pick<UtilityFileReadResult, "content" | "start_line" | "end_line" | "total_lines">;

export type FileText = ReturnType<typeof newText>;

/**
 * newText reads a file in pages with read. It calls taken for each page, and changed after each change.
 */
export function newText(
  read: (offset: number, limit: number) => Promise<Page>,
  changed: () => void,
  taken: (page: Page) => void = () => {},
) {
  let lines: string[] = []; // line n is at n - 1; unread lines are absent
  let total: number | undefined;
  let failure: unknown;
  let wanted = { from: 1, to: 1 };
  let stale = false; // the lines are those of an earlier content
  let reading = false;
  let closed = false;

  /** missing returns the first line to read, or 0. */
  function missing(): number {
    if (stale || total === undefined) return wanted.from;
    for (let n = wanted.from; n <= Math.min(wanted.to, total); n++) if (lines[n - 1] === undefined) return n;
    return 0;
  }

  function take(page: Page): void {
    if (stale || page.total_lines !== total) lines = [];
    stale = false;
    total = page.total_lines;
    failure = undefined;
    if (page.end_line >= page.start_line && page.start_line > 0) {
      page.content.split("\n").forEach((text, i) => {
        lines[page.start_line - 1 + i] = text;
      });
    }
    taken(page);
  }

  async function pump(): Promise<void> {
    if (reading) return;
    reading = true;
    try {
      for (let from = missing(); from > 0 && !closed; from = missing()) {
        try {
          const page = await read(from, pageLines);
          if (closed) return;
          if (page.total_lines >= from && page.end_line < from) throw new Error("The server sent no lines");
          take(page);
        } catch (err) {
          if (from === 1 || !/beyond end of file/.test(String(err))) throw err;
          wanted = { from: 1, to: 1 }; // the file has become shorter
          stale = true;
        }
        changed();
      }
    } catch (err) {
      failure = err;
    } finally {
      reading = false;
      if (!closed) changed();
    }
  }

  return {
    /** undefined until the first page is there */
    get total() {
      return total;
    },
    /** why the last page could not be read */
    get failure() {
      return failure;
    },
    at: (line: number): string | undefined => lines[line - 1],
    /** says which lines somebody looks at */
    need(from: number, to: number): void {
      wanted = { from: Math.max(1, from), to: Math.max(1, to) };
      if (failure === undefined && missing() > 0) void pump();
    },
    /** reads the lines that somebody looks at again. The old ones stay until the new ones are there. */
    reload(): void {
      stale = true;
      failure = undefined;
      void pump();
    },
    /** takes a page that somebody else read */
    take(page: Page): void {
      take(page);
      changed();
    },
    close(): void {
      closed = true;
    },
  };
}
