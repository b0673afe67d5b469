// Characters that do not show what they are, in texts that somebody decides about.

const hidden = `[${[
  "\\p{Cc}\\p{Cf}", // controls, of which newline and tab are left out below, and formats: bidi, zero width, tags
  "\\p{Zl}\\p{Zp}\\p{Co}\\p{Cs}", // separators of lines, private use, lone surrogates
  "\\u00a0\\u2000-\\u200a\\u202f\\u205f\\u2800\\u3000", // blanks that are not the space
  "\\u115f\\u1160\\u17b4\\u17b5\\u3164\\uffa0", // letters without a shape
  "\\u034f\\u180b-\\u180f\\ufe00-\\ufe0f\\u{e0100}-\\u{e01ef}", // joiners and selectors of variants
].join("")}]`;

// One hidden character, or a run of the same. Long runs of blanks are found too: they move text out of sight.
const notable = new RegExp(`\\n(?:[ \\t]*\\n){11,}|\\t{20,}| {80,}|((?![\\n\\t])${hidden})\\1*`, "gu");

/** A Token is a visible text, or the name of hidden characters; blank ones can be unfolded. */
export type Token = { text: string; hidden: boolean; blanks?: boolean };

/**
 * expose cuts a text into visible parts and names of hidden characters. A run of the same character has one name and a
 * count; unfolded, runs of blanks stay as they are.
 */
export function expose(text: string, unfolded = false): Token[] {
  const tokens: Token[] = [];
  let from = 0;
  const visible = (text: string) => text && tokens.push({ text, hidden: false });
  for (const found of text.matchAll(notable)) {
    const [run, one] = found;
    if (one === undefined && unfolded) continue;
    visible(text.slice(from, found.index));
    if (one !== undefined) tokens.push({ text: nameOf(one, run.length / one.length), hidden: true });
    else if (run[0] === "\n") {
      visible("\n");
      tokens.push({ text: `${number(run.split("\n").length - 2)} empty lines`, hidden: true, blanks: true });
      visible("\n");
    } else {
      const blanks = run[0] === "\t" ? "tabs" : "spaces";
      tokens.push({ text: `${number(run.length)} ${blanks}`, hidden: true, blanks: true });
    }
    from = found.index + run.length;
  }
  visible(text.slice(from));
  return tokens;
}

const number = (n: number) => n.toLocaleString("en");

function nameOf(character: string, times: number): string {
  const name = `U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`;
  return times === 1 ? name : `${name} × ${number(times)}`;
}

/** exposeName is expose for a name, in which line ends and tabs are hidden characters too. */
export function exposeName(name: string): Token[] {
  return name
    .split(/([\n\t])/)
    .flatMap((part) => (/^[\n\t]$/.test(part) ? [{ text: nameOf(part, 1), hidden: true }] : expose(part)));
}

/** exposed is expose as one text, for places without markup. */
export function exposed(text: string): string {
  return expose(text)
    .map((t) => (t.hidden ? `<${t.text}>` : t.text))
    .join("");
}
