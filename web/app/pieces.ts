// Long texts in pieces that are drawn one by one.
import type { Token } from "./hidden";

// Bounds of a piece.
const size = 2 << 10; // characters
const lines = 50;
const names = 40; // of hidden characters
const nameLength = 8; // characters

/** A Piece is a part of a text that ends at the end of a line, unless the line is long. */
export type Piece = { tokens: Token[]; rows: number };

/** pieces cuts a text; perRow is how many characters are beside each other on the screen. */
export function pieces(tokens: Token[], perRow = 80): Piece[] {
  const all: Piece[] = [];
  let piece: Piece = { tokens: [], rows: 0 };
  let [length, feeds, named] = [0, 0, 0];
  const end = () => {
    if (piece.tokens.length > 0) all.push(piece);
    piece = { tokens: [], rows: 0 };
    length = feeds = named = 0;
  };
  for (const token of tokens) {
    if (token.hidden) {
      if (named === names) end();
      piece.tokens.push(token);
      piece.rows = Math.max(1, piece.rows + nameLength / perRow);
      named++;
      continue;
    }
    const { text } = token;
    let from = 0; // of the part of the text that the open piece takes
    const take = (to: number) => {
      if (to > from) piece.tokens.push({ text: text.slice(from, to), hidden: false });
      from = to;
    };
    let lineEnd = 0;
    for (let at = 0; at < text.length;) {
      if (at >= lineEnd) lineEnd = text.indexOf("\n", at) + 1 || text.length;
      const next = Math.min(lineEnd, at + size);
      if (length + next - at > size || feeds === lines) {
        take(at);
        end();
      }
      length += next - at;
      piece.rows += Math.max(1, Math.ceil((next - at) / perRow));
      if (next === lineEnd) feeds++;
      at = next === lineEnd ? next : cutAt(text, at, next);
    }
    take(text.length);
  }
  end();
  return all;
}

// cutAt returns where to cut a long line: after the last blank, or else not inside a character.
function cutAt(text: string, from: number, to: number): number {
  const gap = text.slice(from, to).lastIndexOf(" ") + 1;
  if (gap > (to - from) / 2) return from + gap;
  return /[\ud800-\udbff]/.test(text[to - 1]!) ? to - 1 : to;
}
