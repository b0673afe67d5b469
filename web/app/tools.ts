// What a tool call does, in one line and in detail.
import { exposed } from "./hidden";

export type Option = { id: string; name: string; kind: string };
export type Change = { path: string; before: string; after: string } | { path: string; patch: string };

export type About = {
  verb: string;
  object: string; // one line
  command?: string;
  change?: Change;
  rest: [name: string, value: string][]; // all other arguments
  options: Option[]; // of an approval, that the agent offers
};

const pathKeys = ["path", "file_path", "filePath", "file", "filename", "notebook_path"];
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

export function about(tool: string, args: unknown): About {
  const result: About = { verb: verbs[tool.toLowerCase()] ?? tool, object: "", rest: [], options: [] };
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
    { title?: string; diff?: string; options?: Option[]; locations?: { path: string }[] } | undefined;
  const told = typeof extra === "object" && extra !== null;
  if (told) {
    left.delete("_acp");
    if (Array.isArray(extra.options)) result.options = extra.options.filter((o) => typeof o?.id === "string");
  }
  result.command = take("command");
  const path = pathKeys.map(take).find((p) => p !== undefined) ?? (told ? extra.locations?.[0]?.path : undefined) ?? "";
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
  result.object = oneLine(result.command ?? ([path === "." && short ? "" : path, short].filter(Boolean).join("  ") || title));
  if (short) result.rest.push(["pattern", short]);
  if (title && title !== result.command) result.rest.push(["title", title]);
  if (path && (result.command !== undefined || !result.change)) result.rest.push(["path", path]);
  for (const [name, value] of left) result.rest.push([name, typeof value === "string" ? value : json(value)]);
  if (!result.object && result.rest.length > 0)
    result.object = oneLine(result.rest.map(([k, v]) => `${k}: ${v}`).join(", "));
  return result;
}

export function oneLine(text: string): string {
  const line = text.length > 600 ? text.slice(0, 600) + "…" : text;
  return exposed(line.replace(/\s+/g, " ").trim());
}

export function json(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? "";
}
