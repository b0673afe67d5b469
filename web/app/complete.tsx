// Completion in the composer: @file by the file search of the server, and / at the start by the commands of the agent
// and the actions of the page.
import { useContext, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { offer, readOffer } from "./agent";
import { Name } from "./long";
import { Actions, type Action } from "./palette";
import { announce, session } from "./store";
import { plural } from "./format";

const most = 8; // files in the list
const mostCommands = 50; // in the list; another letter makes it shorter
const pause = 80; // ms without a key before the server is asked

/** A Choice is an entry of the list. */
export interface Choice {
  name: string;
  note: string;
  key?: string;
  /** the text that replaces the word, or an action */
  take: string | (() => void);
}

type Completion = {
  choices: readonly Choice[];
  at: number;
  label: string;
  /** key handles a key of the list. It reports whether the key was one. */
  key(e: KeyboardEvent): boolean;
  pick(i: number): void;
};

const none = { query: "", found: [] as readonly Choice[] };

type Word = { sign: "@" | "/"; from: number; query: string };

/** wanted returns the word at the caret if it begins with @ or /. */
export function wanted(text: string, caret: number): Word | null {
  const before = text.slice(0, caret);
  if (/^\/\S*$/.test(before)) return { sign: "/", from: 0, query: before.slice(1) };
  const found = /(?:^|[\s([{"'])@([^\s@]*)$/.exec(before);
  return found && { sign: "@", from: caret - found[1]!.length - 1, query: found[1]! };
}

/** commandsFor returns what / offers: the commands of the agent first, and those that begin with the query. */
function commandsFor(query: string, of: typeof offer.value, actions: readonly Action[]): Choice[] {
  const q = query.toLowerCase();
  const commands = of.commands.map(
    ({ name, hint, description }): Choice => ({
      name: `/${name}`,
      note: [hint, description].filter(Boolean).join(" · "),
      take: `/${name}`,
    }),
  );
  const own = actions.map((a): Choice => ({ name: a.what, note: "", key: a.key, take: a.run }));
  const rank = (c: Choice) => {
    const name = c.name.toLowerCase().replace(/^\//, "");
    return name.startsWith(q) ? 0 : name.replaceAll(" ", "-").includes(q) ? 1 : 2;
  };
  return [...commands.filter((c) => rank(c) < 2), ...own.filter((c) => rank(c) < 2)]
    .sort((a, b) => rank(a) - rank(b))
    .slice(0, mostCommands);
}

/** useCompletion offers choices for the word at the caret. insert gets the text and the caret after a choice. */
export function useCompletion(
  text: string,
  caret: number,
  insert: (text: string, caret: number) => void,
): Completion | null {
  const [files, setFiles] = useState(none);
  const early = useRef<string | null>(null); // a query that was chosen before its files were there
  const [chosen, setAt] = useState(0);
  const [left, setLeft] = useState<number | null>(null); // the word whose list somebody closed begins here
  const actions = useContext(Actions);
  const word = wanted(text, caret);
  const query = word?.sign === "@" && word.from !== left ? word.query : "";
  const command = word?.sign === "/" && word.from !== left ? word.query : null;
  useLayoutEffect(() => {
    if (!word) setLeft(null);
  }, [word === null]);
  useEffect(() => {
    if (command !== null) readOffer();
  }, [command === null]);
  useLayoutEffect(() => setAt(0), [command]); // before the next key, which may be an arrow
  useEffect(() => {
    if (query === "") {
      setFiles(none);
      return;
    }
    let gone = false;
    const timer = setTimeout(() => {
      session.peek()?.utilities.findFiles(query, { limit: most }).then(
        ({ results }) => {
          if (gone) return;
          setFiles({
            query,
            found: results.map(({ path }) => ({
              name: path.slice(path.lastIndexOf("/") + 1),
              note: path.slice(0, Math.max(0, path.lastIndexOf("/"))),
              take: `@${path}`,
            })),
          });
          setAt(0);
          announce(results.length > 0 ? plural(results.length, "file") : "No file is found");
        },
        () => !gone && setFiles(none), // such as without a connection: the text stays as it is written
      );
    }, pause);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [query]);
  const choices = command !== null ? commandsFor(command, offer.value, actions) : query === "" ? [] : files.found;
  const at = Math.min(chosen, choices.length - 1);
  const pick = (i: number) => {
    const { take } = choices[i]!;
    const before = typeof take === "string" ? `${text.slice(0, word!.from)}${take} ` : "";
    setFiles(none);
    setLeft(null);
    insert(before + text.slice(caret).replace(/^ /, ""), before.length);
    if (typeof take !== "string") take();
  };
  useLayoutEffect(() => {
    if (early.current === query && choices.length > 0) pick(0);
    early.current = null;
  }, [files]);
  if (!word || choices.length === 0) return null;
  return {
    choices,
    at,
    label: word.sign === "@" ? "Files" : "Commands of the agent and the page",
    pick,
    key(e) {
      if (e.isComposing || e.ctrlKey || e.metaKey || e.altKey) return false;
      const move = { ArrowDown: 1, ArrowUp: -1 }[e.key];
      if (move) setAt((at + move + choices.length) % choices.length);
      else if (e.key === "Enter" && choices[at]!.take === text) return false; // it is written whole: Enter sends it
      else if ((e.key === "Enter" && !e.shiftKey) || e.key === "Tab") {
        if (command !== null || files.query === query) pick(at);
        else early.current = query;
      } else if (e.key === "Escape") setLeft(word.from);
      else return false;
      e.preventDefault();
      return true;
    },
  };
}

export function Choices({ of: { choices, at, label, pick } }: { of: Completion }) {
  return (
    <ul class="files-found" id="files-found" role="listbox" aria-label={label}>
      {choices.map(({ name, note, key, take }, i) => (
        <li
          key={typeof take === "string" ? take : name}
          id={`file-${i}`}
          role="option"
          aria-selected={i === at}
          ref={(li) => {
            if (i === at) li?.scrollIntoView({ block: "nearest" });
          }}
          onPointerDown={(e) => {
            e.preventDefault(); // the field keeps the focus
          }}
          onClick={() => pick(i)}
        >
          {typeof take === "string" ? (
            <b>
              <Name text={name} />
            </b>
          ) : (
            <span>{name}</span>
          )}
          <span class="meta cut grow">
            <Name text={note} />
          </span>
          {key && <kbd class="key only-wide">{key}</kbd>}
        </li>
      ))}
    </ul>
  );
}
