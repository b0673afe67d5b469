// Files of the workspace in the right column: find one by its name.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { FileMatch } from "../client/index.ts";
import { changed, PathList, PathName } from "./changes";
import { mayWrite } from "./draft";
import { reader, recent, shared } from "./files-open";
import { plural, who } from "./format";
import { Icon } from "./icons";
import { NeedsControl } from "./needs";
import { wanted } from "./paths";
import { Reader } from "./reader";
import { opened, openFile, running } from "./side";
import { announce, inWords, people, session } from "./store";

const most = 40; // files that are offered
const pause = 80; // ms without a key before the server is asked
const listed = 8; // files of a list before anything is typed

export function Files() {
  return opened.value && reader.value ? <Reader key={reader.value.no} of={reader.value} /> : <Find />;
}

function Find() {
  const [query, setQuery] = useState("");
  const [found, setFound] = useState<{ of: string; files: readonly FileMatch[]; truncated: boolean; said: string }>();
  const [at, setAt] = useState(0);
  const { name, line } = wanted(query);
  const entered = useRef(false); // Enter came before the files of this name
  useLayoutEffect(() => {
    entered.current = false;
    if (name === "") return setFound(undefined);
    let gone = false;
    const timer = setTimeout(() => {
      const s = session.peek();
      s?.ready()
        .then(() => s.utilities.findFiles(name, { limit: most }))
        .then(
          ({ results: files, truncated }) => {
            const some = plural(files.length, "file") + (truncated ? " and more" : "");
            const said = files.length > 0 ? some : "No file is found";
            if (!gone) setFound({ of: name, files, truncated, said });
          },
          (err) => !gone && setFound({ of: name, files: [], truncated: false, said: inWords(err) }),
        );
    }, pause);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [name]);
  useEffect(() => (found ? announce(found.said) : undefined), [found]);
  const files = found?.files ?? [];
  const open = (i: number) => {
    const file = files[i];
    if (file) openFile(file.path, line);
  };
  useLayoutEffect(() => {
    setAt(0);
    if (entered.current) open(0);
  }, [found]);
  if (!mayWrite()) return <Watched />;
  return (
    <div class="find">
      <div class="ask">
        <input
          id="find-file"
          class="field"
          role="combobox"
          aria-label="Name of a file"
          aria-expanded={files.length > 0}
          aria-controls="files-list"
          aria-activedescendant={files.length > 0 ? `found-${at}` : undefined}
          placeholder="Find a file, or file:line"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          maxLength={400}
          value={query}
          onInput={(e) => setQuery(e.currentTarget.value)}
          onKeyDown={(e) => {
            const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
            if (e.isComposing) return;
            if (step && files.length > 0) setAt((at + step + files.length) % files.length);
            else if (e.key === "Enter" && found?.of !== name) entered.current = true;
            else if (e.key === "Enter") open(at);
            else if (e.key === "Escape" && query) setQuery("");
            else if (e.key === "Escape") e.currentTarget.blur();
            else return;
            e.preventDefault();
            e.stopPropagation();
          }}
        />
        <button
          type="button"
          class="button quiet square"
          aria-label="Run a command"
          title="Run a command (R)"
          onClick={() => {
            running.value = true;
          }}
        >
          <Icon sign="terminal" />
        </button>
      </div>
      {found && <p class={`meta said ${files.length > 0 ? "unseen" : ""}`}>{found.said}</p>}
      <ul id="files-list" role="listbox" aria-label="Files found" hidden={files.length === 0}>
        {files.map(({ path }, i) => (
          <li
            key={path}
            id={`found-${i}`}
            role="option"
            aria-selected={i === at}
            ref={(li) => {
              if (i === at) li?.scrollIntoView({ block: "nearest" });
            }}
            onMouseMove={() => setAt(i)}
            onClick={() => open(i)}
          >
            <PathName path={path} />
          </li>
        ))}
      </ul>
      {found?.truncated && <p class="meta said">More files fit. Write another letter.</p>}
      {name === "" && <Known />}
    </div>
  );
}

/** Known lists files to choose from before anything is typed. */
function Known() {
  const lists: [string, string[]][] = [
    ["Opened before", recent.value.slice(0, listed)],
    ["Changed by the agent", changed.value.map((f) => f.path).filter(Boolean).slice(0, listed)],
  ];
  const some = lists.filter(([, paths]) => paths.length > 0);
  if (some.length === 0) {
    return (
      <p class="meta said">
        A few letters of a path are enough. Everyone who watches this session sees which files you open.
      </p>
    );
  }
  return (
    <>
      {some.map(([title, paths]) => (
        <section key={title}>
          <h2>{title}</h2>
          <PathList paths={paths} />
        </section>
      ))}
    </>
  );
}

/** Watched shows viewers the file that the driver reads. */
function Watched() {
  const last = shared.value;
  return (
    <div class="find">
      <NeedsControl what="find and open files" />
      {last ? (
        <section>
          <h2>Open where {who(people.value?.controller)} drives</h2>
          <PathList paths={[last.path]} />
        </section>
      ) : (
        <p class="meta said">Files that {who(people.value?.controller)} opens appear here.</p>
      )}
    </div>
  );
}
