// Quiet hours, such as 22:00-07:00.

/** parseQuiet returns the beginning and the end of quiet hours, or undefined if the text has none. */
export function parseQuiet(text: string): [string, string] | undefined {
  const found = /^((?:[01]\d|2[0-3]):[0-5]\d)-((?:[01]\d|2[0-3]):[0-5]\d)$/.exec(text);
  return found ? [found[1]!, found[2]!] : undefined;
}

/** isQuiet reports whether a time, such as 23:15, is in quiet hours. */
export function isQuiet(quietHours: string, time: string): boolean {
  const [from, to] = parseQuiet(quietHours) ?? ["", ""];
  return from < to ? time >= from && time < to : from > to && (time >= from || time < to);
}
