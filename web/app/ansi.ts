// Plain text from the output of programs that write for a terminal.

const escapes = new RegExp(
  [
    "\\x1b\\][^\\x07\\x1b\\n]*(?:\\x07|\\x1b\\\\)?", // titles, links
    "\\x1b[PX^_][^\\x1b\\n]*(?:\\x1b\\\\)?", // strings for the terminal
    "(?:\\x1b\\[|\\x9b)[0-?]*[ -/]*[@-~]?", // colours and movements
    "\\x1b[ -/]*[0-~]?", // all other sequences
  ].join("|"),
  "g",
);

/** plain removes colours and other control sequences. Of an overwritten line, the last version stays. */
export function plain(text: string): string {
  if (!/[\x00-\x08\x0b-\x1f\x7f-\x9f]/.test(text)) return text;
  return text
    .replace(escapes, "")
    .split("\n")
    .map(lastWritten)
    .join("\n")
    .replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, "");
}

/** lastWritten returns the last version of a line that carriage returns overwrote. */
function lastWritten(line: string): string {
  let end = line.length;
  while (line[end - 1] === "\r") end--;
  return line.slice(line.lastIndexOf("\r", end - 1) + 1, end);
}
