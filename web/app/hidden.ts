// Characters that do not show what they are, in texts that somebody decides about.

const hidden = new RegExp(
  `[${[
    "\\p{Cc}\\p{Cf}", // controls, of which newline and tab are left out below, and formats: bidi, zero width, tags
    "\\p{Zl}\\p{Zp}\\p{Co}\\p{Cs}", // separators of lines, private use, lone surrogates
    "\\u00a0\\u2000-\\u200a\\u202f\\u205f\\u2800\\u3000", // blanks that are not the space
    "\\u115f\\u1160\\u17b4\\u17b5\\u3164\\uffa0", // letters without a shape
    "\\u034f\\u180b-\\u180f\\ufe00-\\ufe0f\\u{e0100}-\\u{e01ef}", // joiners and selectors of variants
  ].join("")}]`,
  "gu",
);

export type Piece = { text: string; hidden: boolean };

/** expose cuts a text into visible pieces and names of hidden characters. */
export function expose(text: string): Piece[] {
  const pieces: Piece[] = [];
  let from = 0;
  for (const found of text.matchAll(hidden)) {
    if (found[0] === "\n" || found[0] === "\t") continue;
    if (found.index > from) pieces.push({ text: text.slice(from, found.index), hidden: false });
    const point = found[0].codePointAt(0)!;
    pieces.push({ text: `U+${point.toString(16).toUpperCase().padStart(4, "0")}`, hidden: true });
    from = found.index + found[0].length;
  }
  if (from < text.length) pieces.push({ text: text.slice(from), hidden: false });
  return pieces;
}

/** exposed is expose as one text, for places without markup. */
export function exposed(text: string): string {
  return expose(text)
    .map((p) => (p.hidden ? `<${p.text}>` : p.text))
    .join("");
}
