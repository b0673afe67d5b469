// What a tool call does, in one line and in detail.
import { plural } from "./format";
import { exposed } from "./hidden";

type Option = { id: string; name: string; kind: string };
export type Change = { path: string; before: string; after: string } | { path: string; patch: string };

export type About = {
  verb: string;
  object: string; // one line
  command?: string;
  change?: Change;
  path: string; // as the call has it; change and object may leave out the workspace
  rest: [name: string, value: string][]; // all other arguments
  options: Option[]; // of an approval, that the agent offers
};

/** longestPath is how many characters a heading has room for; a longer path is among the arguments. */
export const longestPath = 200;

const pathKeys = ["path", "file_path", "filePath", "filepath", "file", "filename", "notebook_path"];
const changeKeys = [
  ["old_string", "new_string"],
  ["oldString", "newString"],
  ["old_str", "new_str"],
  ["old_text", "new_text"],
  ["oldText", "newText"],
] as const;
const verbs: Record<string, string> = { bash: "run", shell: "run", execute: "run", glob: "find", grep: "search" };
const readers = new Set(["read", "read_file", "view", "glob", "grep", "search", "ls", "list"]);

/** reads reports whether calls of a tool only read, so that several fold into one line. */
export function reads(tool: string): boolean {
  return readers.has(tool.toLowerCase());
}

/** about tells a call. Paths in cwd, the workspace, are told without it. */
export function about(tool: string, args: unknown, cwd?: string | null): About {
  const result: About = { verb: verbs[tool.toLowerCase()] ?? tool, object: "", path: "", rest: [], options: [] };
  if (typeof args !== "object" || args === null || Array.isArray(args)) {
    if (args !== undefined && args !== null) result.rest.push(["args", json(args)]);
    return result;
  }
  const left = new Map<string, unknown>(Object.entries(args));
  const take = (key: string) => {
    const value = left.get(key);
    if (typeof value === "string") left.delete(key);
    return typeof value === "string" ? value : undefined;
  };
  const extra = left.get("_acp") as
    | {
        title?: string;
        diff?: string;
        options?: Option[];
        locations?: { path: string }[];
        omitted_bytes?: number;
        omitted_places?: number;
      }
    | undefined;
  const told = typeof extra === "object" && extra !== null;
  if (told) {
    left.delete("_acp");
    if (Array.isArray(extra.options)) result.options = extra.options.filter((o) => typeof o?.id === "string");
  }
  result.command = take("command");
  const places = told && Array.isArray(extra.locations) ? extra.locations.map((l) => l?.path) : [];
  const named = pathKeys.map((key) => left.get(key)).find((p) => typeof p === "string") ?? places[0] ?? "";
  const whole = String(named);
  for (const key of pathKeys) if (left.get(key) === named) left.delete(key); // another path is told as an argument
  result.path = whole;
  const path = cwd && whole.startsWith(`${cwd}/`) ? whole.slice(cwd.length + 1) : whole;
  for (const [old, now] of changeKeys) {
    const before = left.get(old),
      after = left.get(now);
    if (typeof before === "string" && typeof after === "string") {
      left.delete(old);
      left.delete(now);
      result.change = { path, before, after };
    }
  }
  if (told && typeof extra.diff === "string" && extra.diff) result.change = { path, patch: extra.diff };
  if (!result.change && /write|create/i.test(tool) && path && typeof left.get("content") === "string") {
    result.change = { path, before: "", after: take("content")! };
  }
  const short = take("pattern") ?? take("query") ?? "";
  const title = told && typeof extra.title === "string" ? extra.title : "";
  const subject = [path === "." && short ? "" : path, short].filter(Boolean).join("  ");
  result.object = oneLine(result.command ?? (subject || title));
  if (short) result.rest.push(["pattern", short]);
  const { change } = result;
  if (change) for (const [name, value] of left) if (repeats(value, change, whole)) left.delete(name);
  if (title && title !== result.command && adds(title, [tool, whole, path])) result.rest.push(["title", title]);
  const inHeading = result.command === undefined && result.change && path.length <= longestPath;
  if (path && !inHeading) result.rest.push(["path", path]);
  for (const place of new Set(places)) if (place !== named) result.rest.push(["location", String(place)]);
  if (told && extra.omitted_bytes) result.rest.push(["not shown", `${extra.omitted_bytes} bytes`]);
  if (told && extra.omitted_places) result.rest.push(["not shown", plural(extra.omitted_places, "location")]);
  for (const [name, value] of left) result.rest.push([name, typeof value === "string" ? value : json(value)]);
  if (!result.object && result.rest.length > 0)
    result.object = oneLine(result.rest.map(([k, v]) => `${k}: ${v}`).join(", "));
  return result;
}

/** adds reports whether a text says more than its parts: a tool and paths, whole or without their folders. */
export function adds(text: string, parts: string[]): boolean {
  const known = new Set(parts.flatMap((p) => [p, p.replace(/^.*\//, "")]).map((p) => p.toLowerCase()));
  return text
    .toLowerCase()
    .split(/\s+/)
    .some((word) => word !== "" && !known.has(word));
}

// bodyOf returns the changed lines of a patch, and what stands before them.
function bodyOf(patch: string): { head: string[]; body: string } {
  const lines = patch
    .replace(/\n+$/, "")
    .split("\n")
    .filter((l) => !l.startsWith("\\ No newline"));
  const at = lines.findIndex((l) => l.startsWith("@@ "));
  return { head: lines.slice(0, at < 0 ? lines.length : at), body: at < 0 ? "" : lines.slice(at).join("\n") };
}

/** repeats reports whether a value is a patch of a file that says no more than a change that is shown. */
function repeats(value: unknown, change: Change, path: string): boolean {
  if (typeof value !== "string" || !("patch" in change)) return false;
  const { head, body } = bodyOf(value);
  return body !== "" && body === bodyOf(change.patch).body && head.every((line) => namesOnly(line, path));
}

// namesOnly reports whether a line before a patch names a file and nothing else.
const namesOnly = (line: string, path: string) =>
  /^=*$/.test(line) ||
  ["Index: ", "--- ", "+++ ", "--- a", "+++ b", "--- a/", "+++ b/"].some((start) => line.trimEnd() === start + path);

/** withoutChange leaves out of an output the patches that say no more than a change that is shown. */
export function withoutChange(output: string, change: Change, path: string): string {
  const lines = output.split("\n");
  const kept: string[] = [];
  for (let i = 0; i < lines.length; ) {
    let end = i + 1;
    const patch = lines[i]!.startsWith("--- ") && lines[end]?.startsWith("+++ ");
    if (patch) while (/^[-+ @\\]/.test(lines[end] ?? "")) end++;
    const part = lines.slice(i, end).join("\n");
    if (!patch || !repeats(part, change, path)) kept.push(part);
    i = end;
  }
  return kept.join("\n").trim() === "" ? "" : kept.join("\n").replace(/^\n+/, "");
}

export function oneLine(text: string): string {
  const line = text.length > 600 ? text.slice(0, 600) + "…" : text;
  return exposed(line.replace(/\s+/g, " ").trim());
}

const deepest = 16; // levels of a value that is indented

/** json is a value as JSON. Deep ones are not indented, because the blanks would be most of the text. */
export function json(value: unknown): string {
  const text = JSON.stringify(value) ?? "";
  return depth(text) > deepest ? text : (JSON.stringify(value, null, 2) ?? "");
}

function depth(text: string): number {
  let [now, most] = [0, 0];
  for (const [m] of text.matchAll(/"(?:[^"\\]+|\\.)*"|[[{]|[\]}]/g)) {
    if (m === "[" || m === "{") most = Math.max(most, ++now);
    else if (m === "]" || m === "}") now--;
  }
  return most;
}
