// Completion of @file in the composer, by the file search of the server.
import { useEffect, useState } from "preact/hooks";
import type { FileMatch } from "../client/index.ts";
import { announce, session } from "./store";
import { plural } from "./format";

const most = 8; // files in the list
const pause = 80; // ms without a key before the server is asked

export type Completion = {
  files: readonly FileMatch[];
  at: number;
  /** key handles a key of the list. It reports whether the key was one. */
  key(e: KeyboardEvent): boolean;
  pick(i: number): void;
};

/** wanted returns the word at the caret if it begins with @: where it begins, and what follows the @. */
export function wanted(text: string, caret: number): { from: number; query: string } | null {
  const found = /(?:^|[\s([{"'])@([^\s@]*)$/.exec(text.slice(0, caret));
  return found && { from: caret - found[1]!.length - 1, query: found[1]! };
}

/** useCompletion offers files for the word at the caret. insert gets the text and the caret after a choice. */
export function useCompletion(
  text: string,
  caret: number,
  insert: (text: string, caret: number) => void,
): Completion | null {
  const [files, setFiles] = useState<readonly FileMatch[]>([]);
  const [at, setAt] = useState(0);
  const [left, setLeft] = useState<number | null>(null); // the word whose list somebody closed begins here
  const word = wanted(text, caret);
  const query = word && word.from !== left ? word.query : "";
  useEffect(() => {
    if (query === "") {
      setFiles([]);
      if (!word) setLeft(null);
      return;
    }
    let gone = false;
    const timer = setTimeout(() => {
      session.peek()?.utilities.findFiles(query, { limit: most }).then(
        ({ results }) => {
          if (gone) return;
          setFiles(results);
          setAt(0);
          announce(results.length > 0 ? plural(results.length, "file") : "No file is found");
        },
        () => !gone && setFiles([]), // such as without a connection: the text stays as it is written
      );
    }, pause);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [query, word === null]);
  if (!word || query === "" || files.length === 0) return null;
  const pick = (i: number) => {
    const before = `${text.slice(0, word.from)}@${files[i]!.path} `;
    setFiles([]);
    setLeft(null);
    insert(before + text.slice(caret).replace(/^ /, ""), before.length);
  };
  return {
    files,
    at,
    pick,
    key(e) {
      if (e.isComposing || e.ctrlKey || e.metaKey || e.altKey) return false;
      const move = { ArrowDown: 1, ArrowUp: -1 }[e.key];
      if (move) setAt((at + move + files.length) % files.length);
      else if ((e.key === "Enter" && !e.shiftKey) || e.key === "Tab") pick(at);
      else if (e.key === "Escape") setLeft(word.from);
      else return false;
      e.preventDefault();
      return true;
    },
  };
}

export function Files({ of: { files, at, pick } }: { of: Completion }) {
  return (
    <ul class="files-found" id="files-found" role="listbox" aria-label="Files">
      {files.map(({ path }, i) => (
        <li
          key={path}
          id={`file-${i}`}
          role="option"
          aria-selected={i === at}
          onPointerDown={(e) => {
            e.preventDefault(); // the field keeps the focus
            pick(i);
          }}
        >
          <b>{path.slice(path.lastIndexOf("/") + 1)}</b>
          <span class="meta cut">{path.slice(0, Math.max(0, path.lastIndexOf("/")))}</span>
        </li>
      ))}
    </ul>
  );
}
