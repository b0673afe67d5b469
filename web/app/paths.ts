// Paths of files, and lines in them, as texts.

/** within returns a path relative to a folder if it is inside. */
export function within(folder: string | undefined, path: string): string {
  const clean = path.replace(/^(\.\/)+/, "");
  return folder && clean.startsWith(`${folder.replace(/\/$/, "")}/`)
    ? clean.slice(folder.replace(/\/$/, "").length + 1)
    : clean;
}

/** parts splits a path into its folder, with the last slash, and its name. */
export function parts(path: string): { folder: string; name: string } {
  const at = path.lastIndexOf("/") + 1;
  return { folder: path.slice(0, at), name: path.slice(at) };
}

/** wanted reads a query such as "login.go:42". */
export function wanted(query: string): { name: string; line?: number } {
  const [, name = "", line] = /^(.*?)(?::(\d{1,7}))?$/.exec(query.trim()) ?? [];
  return { name, line: line ? Number(line) : undefined };
}

/** place names lines. */
export const place = (from: number, to: number) => (from === to ? `line ${from}` : `lines ${from}-${to}`);

/** quote is the beginning of a prompt about lines of a file. */
export function quote(path: string, where: string, lines: readonly string[]): string {
  return `${path}, ${where}:\n${lines.map((l) => `> ${l}\n`).join("")}\n`;
}
