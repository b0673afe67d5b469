// Times, numbers and names as people read them.
import type { Author } from "../../contracts/ts/maestro";

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;

// Formats are made once: making one takes about as long as drawing a row.
const dayMonth = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const hourMinute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const toSecond = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function written(at: number, format: Intl.DateTimeFormat): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? "" : format.format(date); // which refuses a time that is none
}

/** ago is relative up to a day, then a date. */
export function ago(at: number, now: number): string {
  const past = now - at;
  if (past < minute) return "now";
  if (past < hour) return `${Math.floor(past / minute)} min`;
  if (past < day) return `${Math.floor(past / hour)} h`;
  return written(at, dayMonth);
}

export function clock(at: number): string {
  return written(at, hourMinute);
}

/** second is the time of day to the second. */
export function second(at: number): string {
  return written(at, toSecond);
}

export function exact(at: number): string {
  return written(at, whole);
}

export function duration(ms: number): string {
  if (ms < 1000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < minute) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < hour) return `${Math.floor(ms / minute)} min ${Math.floor((ms % minute) / 1000)} s`;
  return `${Math.floor(ms / hour)} h ${Math.floor((ms % hour) / minute)} min`;
}

export function count(n: number): string {
  if (n < 1000) return String(n);
  if (n < 1_000_000) return `${(n / 1000).toFixed(n < 10_000 ? 1 : 0)}k`;
  return `${(n / 1_000_000).toFixed(1)}M`;
}

export function cost(usd: number): string {
  return usd === 0 ? "" : usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
}

/** who names an author: what they call themselves, and in brackets what the server knows. */
export function who(author: Author | null | undefined): string {
  if (!author) return "somebody";
  const { claimed_name: claim, name } = author;
  return claim && claim !== name ? `${claim} (${name})` : name;
}

/** initials has at most two letters. */
export function initials(author: Author | null | undefined): string {
  if (!author) return "";
  const words = (author.claimed_name || author.name).split(/[\s._@-]+/).filter(Boolean);
  return words
    .slice(0, 2)
    .map((w) => [...w][0]!.toUpperCase())
    .join("");
}

export function bytes(n: number): string {
  return n < 1024 ? `${n} B` : n < 1 << 20 ? `${Math.round(n / 1024)} KB` : `${(n / (1 << 20)).toFixed(1)} MB`;
}

export function plural(n: number, one: string, many = one + "s"): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}
