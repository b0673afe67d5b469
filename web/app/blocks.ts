// Texts in blocks. A text that still grows is cut into blocks of markdown; finished blocks never change
// again, so only the last one is parsed while the text arrives.
import { Lexer } from "marked";

// A block longer than this is ended, so that parsing the last block stays cheap.
const maxOpen = 16 << 10;

const fenceStart = /^( {0,3})(`{3,}|~{3,})([^\n`]*)(?:\n|$)/;

export type Code = { language: string; text: string };

/** split returns the blocks of a text that cannot change when more text follows, and the rest. */
export function split(text: string): { done: string[]; rest: string } {
  const done: string[] = [];
  let rest = text;
  for (;;) {
    const fence = fenceStart.exec(rest);
    if (fence) {
      const end = fenceEnd(rest, fence, "\\n"); // without the line end more may follow
      if (end < 0) return cutFence(done, rest, fence);
      done.push(rest.slice(0, end));
      rest = rest.slice(end).replace(/^\n+/, "");
      continue;
    }
    const tokens = new Lexer({ gfm: true })
      .blockTokens(rest, [])
      .filter((t) => t.type !== "space" || t.raw.trim() !== "");
    const before = done.length;
    // All blocks of one pass are taken: a pass for each block would take quadratic time.
    for (const { raw } of tokens.slice(0, -1)) {
      const at = rest.indexOf(raw) + raw.length;
      if (raw === "" || at < raw.length || (done.length > before && fenceStart.test(rest))) break;
      done.push(rest.slice(0, at).replace(/^\n+|\n+$/g, ""));
      rest = rest.slice(at).replace(/^\n+/, "");
    }
    if (done.length === before) break;
  }
  if (rest.length > maxOpen) {
    const at = cutPoint(rest);
    done.push(rest.slice(0, at));
    rest = rest.slice(at);
  }
  return { done, rest };
}

function fenceEnd(text: string, fence: RegExpExecArray, after: string): number {
  const mark = fence[2]!;
  const close = new RegExp(`\\n {0,3}${mark[0]}{${mark.length},}[ \\t]*(?:${after})`, "g");
  close.lastIndex = Math.max(0, fence[0].length - 1);
  const found = close.exec(text);
  return found ? close.lastIndex : -1;
}

// cutFence ends a long block of code that is still open, and opens another one of the same language.
function cutFence(done: string[], rest: string, fence: RegExpExecArray) {
  if (rest.length > maxOpen) {
    const at = cutPoint(rest);
    done.push(rest.slice(0, at));
    rest = fence[0].trimEnd() + "\n" + rest.slice(at);
  }
  return { done, rest };
}

function cutPoint(text: string): number {
  const line = text.lastIndexOf("\n", maxOpen);
  return line > maxOpen / 2 ? line + 1 : maxOpen;
}

/** code returns the content of a block that is one block of code. */
export function code(block: string): Code | null {
  const fence = fenceStart.exec(block);
  if (!fence) return null;
  const end = fenceEnd(block, fence, "\\n|$");
  const body = block.slice(fence[0].length, end < 0 ? undefined : end);
  const lines = body.split("\n");
  if (end >= 0) {
    while (lines.length > 0 && lines.at(-1) === "") lines.pop();
    lines.pop(); // the closing fence
  }
  return { language: (fence[3] ?? "").trim().split(/\s+/)[0] ?? "", text: lines.join("\n").replace(/\n$/, "") };
}
