// What differs from the last commit, by git.
import type { Changed } from "./edits";

const quiet = "git -c core.quotePath=false --no-pager";

/** The command writes the files that git does not track, one per line, and then the patch. */
export const compareCommand = [
  `${quiet} ls-files --others --exclude-standard`,
  `${quiet} diff --relative --no-color --no-ext-diff --src-prefix=a/ --dst-prefix=b/ HEAD`,
].join(" && ");

export type Compared = { files: Changed[]; untracked: string[] };

/** readComparison reads what the command wrote. */
export function readComparison(output: string, at: number): Compared {
  const [names = "", ...patches] = output.split(/^(?=diff --git )/m);
  const files = patches.map((patch): Changed => {
    const [head = ""] = patch.split(/^@@ /m, 1);
    const body = patch.slice(head.length);
    const path = pathOf(head);
    return { path, edits: [{ cursor: 0, at, note: noteOf(head), change: { path, patch: body } }] };
  });
  return { files, untracked: names.split("\n").filter(Boolean).map(unquoted) };
}

function pathOf(head: string): string {
  const named = /^(?:\+\+\+ b\/|rename to |copy to )(.*?)\t?$/m.exec(head) ?? /^--- a\/(.*?)\t?$/m.exec(head);
  const quoted = /^(?:\+\+\+|---) ("[ab]\/.*")$/m.exec(head);
  if (quoted) return unquoted(quoted[1]!).slice(2);
  return named?.[1] ?? /^diff --git a\/(.*) b\/\1$/m.exec(head)?.[1] ?? "";
}

function noteOf(head: string): string {
  const from = /^rename from (.*)$/m.exec(head)?.[1];
  if (from) return `Renamed from ${unquoted(from)}`;
  if (/^new file mode/m.test(head)) return "New";
  if (/^deleted file mode/m.test(head)) return "Deleted";
  if (/^Binary files/m.test(head)) return "Changed, not a text";
  return /^old mode/m.test(head) && !/^index /m.test(head) ? "Changed in its mode only" : "Changed";
}

const escapes: Record<string, string> = { n: "\n", t: "\t", r: "\r", a: "\x07", b: "\b", f: "\f", v: "\v" };

/** unquoted reads a path with unusual characters, which git puts in quotation marks. */
function unquoted(path: string): string {
  if (!/^".*"$/.test(path)) return path;
  return path
    .slice(1, -1)
    .replace(/\\(?:([0-7]{3})|(.))/g, (_, octal, c) =>
      octal ? String.fromCharCode(parseInt(octal, 8)) : (escapes[c] ?? c),
    );
}
