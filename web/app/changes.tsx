// The list of the files that the agent changed, and their changes.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Changes as News, Session } from "../client/index.ts";
import { plain } from "./ansi";
import { Diff, split, SplitButton } from "./diff";
import { mayWrite } from "./draft";
import { type Changed, count, type Edit, type Edits, newEdits } from "./edits";
import { clock, exact, plural } from "./format";
import { compareCommand, type Compared, readComparison } from "./git";
import { Icon } from "./icons";
import { exposed } from "./hidden";
import { Name } from "./long";
import { parts, within } from "./paths";
import { goToCursor } from "./search";
import { closeSheet, openFile } from "./side";
import { inWords, session } from "./store";
import { oneLine } from "./tools";

/** How far back the list reaches. */
type Covered = {
  /** cursor and time from which all changes are listed */
  from: number;
  at: number;
  /** the list reaches the beginning of the session */
  whole: boolean;
  /** earlier changes were dropped from the list */
  full: boolean;
  reading: boolean;
  failed: string;
};

const nothing: Covered = { from: Infinity, at: 0, whole: false, full: false, reading: false, failed: "" };
const pagesAtOnce = 8; // pages of the history that are read before somebody asks for more

const known = signal<{ edits: Edits; version: number }>({ edits: newEdits(), version: 0 });
const covered = signal<Covered>(nothing);
export const changed = computed<Changed[]>(() => known.value.edits.list());

/** The last comparison by git; null before the first one. */
type Comparison = { at: number; running: boolean; failed: string } & Compared;
const comparison = signal<Comparison | null>(null);
const mostOutput = 8 << 20; // characters of git

effect(() => {
  const s = session.value;
  known.value = { edits: newEdits((path) => within(s?.state.cwd, path)), version: 0 };
  covered.value = nothing;
  comparison.value = null;
  if (!s) return;
  let newest = 0; // cursor of the newest event that was seen
  const take = ({ items, list }: Pick<News, "items" | "list">) => {
    const { edits, version } = known.peek();
    let more = false;
    for (const item of items) if (item.kind === "tool" && edits.take(item)) more = true;
    if (more) known.value = { edits, version: version + 1 };
    const { live, loading, more: before, items: all } = s.transcript;
    const [first] = all;
    if (!list || !live || loading || !first) return;
    const { from, reading } = covered.peek();
    const lost = first.cursor > newest && newest > 0; // events between the two windows were not seen
    newest = s.cursor;
    if (first.cursor < from || lost) {
      covered.value = { ...nothing, from: first.cursor, at: first.at, whole: !before, reading };
    }
  };
  take({ items: new Set(s.transcript.items), list: true }); // of a session that stayed attached in the background
  return s.on(take);
});

/** readEarlier looks for changes in the history before those that are known. */
async function readEarlier(s: Session): Promise<void> {
  if (covered.peek().reading) return;
  covered.value = { ...covered.peek(), reading: true, failed: "" };
  const { edits } = known.peek();
  const stays = () => edits === known.peek().edits; // nobody went to another session
  try {
    for (let i = 0; i < pagesAtOnce && !covered.peek().whole && !covered.peek().full; i++) {
      const page = await s.history({ before: covered.peek().from, limit: 1000, bytes: 512 << 10 });
      if (!stays()) return;
      for (const { cursor, at, message } of page.entries ?? []) {
        if (message) edits.event(cursor, Date.parse(at), message);
      }
      const [first] = page.entries ?? [];
      covered.value = {
        ...covered.peek(),
        from: page.before ?? covered.peek().from,
        at: first ? Date.parse(first.at) : covered.peek().at,
        whole: page.before === null,
        full: edits.cut > 0,
      };
      known.value = { edits, version: known.peek().version + 1 };
    }
  } catch (err) {
    if (stays()) covered.value = { ...covered.peek(), failed: inWords(err) };
  } finally {
    if (stays()) covered.value = { ...covered.peek(), reading: false };
  }
}

const mostUntracked = 200; // files that are listed
const widthForTwo = 640; // pixels that two columns need

/** compareWithGit runs git in the workspace, in view of everybody. */
async function compareWithGit(): Promise<void> {
  const s = session.peek();
  if (!s || comparison.peek()?.running) return;
  const nothing = { files: [], untracked: [] };
  const at = Date.now();
  comparison.value = { ...nothing, at, running: true, failed: "" };
  let [output, errors] = ["", ""];
  const end = (more: Partial<Comparison>) => {
    if (s === session.peek()) comparison.value = { ...nothing, at, running: false, failed: "", ...more };
  };
  const job = s.utilities.run(compareCommand, {}, ({ stream, content }) => {
    if (output.length > mostOutput) return;
    if (stream === "stdout") output += content;
    else errors = (errors + content).slice(-2000);
    if (output.length > mostOutput) void job.stop(true).catch(() => {});
  });
  try {
    const { success } = await job.exited;
    if (output.length > mostOutput) end({ failed: "The differences are too long to be shown." });
    else if (success) end(readComparison(output, at));
    else end({ failed: `git could not compare: ${oneLine(plain(errors)) || "it gave no reason."}` });
  } catch (err) {
    end({ failed: inWords(err) });
  }
}

const unfoldAll = 3; // up to so many files are open at first

export function Changes() {
  const [byGit, setByGit] = useState(false);
  const git = byGit ? comparison.value : null;
  const files = byGit ? (git?.files ?? []) : changed.value;
  const [folds, setFolds] = useState<ReadonlyMap<string, boolean>>(new Map()); // what somebody folded or opened
  const s = session.value;
  const { from } = covered.value;
  useEffect(() => {
    if (s && from < Infinity) void readEarlier(s);
  }, [s, from < Infinity]);
  const isOpen = (f: Changed) => folds.get(f.path) ?? files.length <= unfoldAll;
  const all = files.length > 0 && files.every(isOpen);
  const [wide, setWide] = useState(false);
  const view = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const watch = new ResizeObserver(([e]) => setWide(e!.contentRect.width >= widthForTwo));
    watch.observe(view.current!);
    return () => watch.disconnect();
  }, []);
  return (
    <div class="changes" ref={view}>
      {(mayWrite() || byGit) && (
        <div class="sources" role="group" aria-label="Which changes">
          <button type="button" class="button quiet" aria-pressed={!byGit} onClick={() => setByGit(false)}>
            Edits of the agent
          </button>
          <button
            type="button"
            class="button quiet"
            aria-pressed={byGit}
            onClick={() => {
              setByGit(true);
              if (!comparison.peek()) void compareWithGit();
            }}
          >
            Since the last commit
          </button>
        </div>
      )}
      {files.length > 0 && (
        <div class="bar">
          <span class="grow">
            {plural(files.length, "file")} <Counts of={files.flatMap((f) => f.edits)} />
          </span>
          {wide && <SplitButton />}
          <button
            type="button"
            class="button quiet"
            onClick={() => setFolds(new Map(files.map((f) => [f.path, !all])))}
          >
            {all ? "Fold all" : "Unfold all"}
          </button>
        </div>
      )}
      {files.length === 0 && !git?.failed && (
        <div class="rest">
          <Icon sign="diff" />
          <h2>{(byGit ? git?.running : covered.value.reading) ? "Looking for changes" : "No changed files"}</h2>
          <p>
            {byGit
              ? "Files that differ from the last commit appear here."
              : "Files that the agent edits appear here, with all their changes."}
          </p>
        </div>
      )}
      <ul>
        {files.map((f) => (
          <File
            key={f.path}
            file={f}
            open={isOpen(f)}
            beside={wide && split.value}
            toggle={() => setFolds(new Map([...folds, [f.path, !isOpen(f)]]))}
          />
        ))}
      </ul>
      {byGit ? git && <OfGit of={git} /> : <Coverage />}
    </div>
  );
}

function OfGit({ of: { at, running, failed, untracked } }: { of: Comparison }) {
  return (
    <>
      {untracked.length > 0 && (
        <section class="untracked">
          <h2>Not tracked by git</h2>
          <PathList paths={untracked.slice(0, mostUntracked)} />
          {untracked.length > mostUntracked && (
            <p class="meta">and {plural(untracked.length - mostUntracked, "other file")}</p>
          )}
        </section>
      )}
      {failed && <p class="notice-line bad">{failed}</p>}
      <p class="meta covers">
        {!running && `What git said at ${clock(at)}. `}Everyone who watches sees the command.{" "}
        <button type="button" class="button quiet" disabled={running} onClick={() => void compareWithGit()}>
          {running ? "Comparing…" : "Compare again"}
        </button>
      </p>
    </>
  );
}

/** PathList opens files. */
export function PathList({ paths }: { paths: readonly string[] }) {
  return (
    <ul class="paths">
      {paths.map((path) => (
        <li key={path}>
          <button type="button" onClick={() => openFile(path)}>
            <PathName path={path} />
          </button>
        </li>
      ))}
    </ul>
  );
}

function Counts({ of }: { of: readonly Edit[] }) {
  const { added, removed } = count(of);
  return (
    <span class="counted">
      <span class="added">+{added}</span> <span class="removed">−{removed}</span>
    </span>
  );
}

/** PathName shows the name of a file before its folder. */
export function PathName({ path }: { path: string }) {
  const { folder, name } = parts(path);
  return (
    <span class="path cut grow" title={exposed(path)}>
      <b>
        <Name text={name || "change"} />
      </b>{" "}
      <span class="meta">
        <Name text={folder.replace(/\/$/, "")} />
      </span>
    </span>
  );
}

function File({
  file,
  open,
  beside,
  toggle,
}: {
  file: Changed;
  open: boolean;
  beside: boolean;
  toggle: () => void;
}) {
  const { path, edits } = file;
  return (
    <li class={open ? "open" : ""}>
      <h3>
        <button type="button" class="fold grow" aria-expanded={open} onClick={toggle}>
          <Icon sign={open ? "down" : "right"} />
          <PathName path={path} />
          <Counts of={edits} />
        </button>
        {path && edits.at(-1)!.note !== "Deleted" && (
          <button
            type="button"
            class="button quiet square"
            aria-label={`Open ${path}`}
            title="Open the file"
            onClick={() => openFile(path)}
          >
            <Icon sign="file" />
          </button>
        )}
      </h3>
      {open &&
        edits.map((e, i) => (
          <One
            key={`${e.cursor}.${i}.${e.at}`}
            edit={e}
            path={path}
            beside={beside}
            title={edits.length > 1 ? `Edit ${i + 1} of ${edits.length}, ${clock(e.at)}` : `Edited ${clock(e.at)}`}
          />
        ))}
    </li>
  );
}

function One({
  edit: { change, cursor, at, note },
  path,
  beside,
  title,
}: {
  edit: Edit;
  path: string;
  beside: boolean;
  title: string;
}) {
  const [own] = useState(() => ({ ...change, path })); // a comment names the path as the list does
  return (
    <Diff
      change={own}
      beside={beside}
      caption={
        note ? (
          <span class="when">{note}</span>
        ) : (
          <button
            type="button"
            class="button quiet when"
            title={`${exact(at)}: show it in the conversation`}
            onClick={() => {
              closeSheet();
              void goToCursor(cursor);
            }}
          >
            {title}
          </button>
        )
      }
    />
  );
}

function Coverage() {
  const { from, at, whole, full, reading, failed } = covered.value;
  if (from === Infinity) return null;
  return (
    <p class="meta covers">
      {whole ? "Edits of the whole session" : `Edits since ${exact(at)}`} by the tools of the agent. Files that commands
      write are not in the list.{" "}
      {full && "The list is full: earlier edits are left out. "}
      {failed && <span class="bad">{failed} </span>}
      {!whole && !full && (
        <button
          type="button"
          class="button quiet"
          disabled={reading}
          onClick={() => void (session.value && readEarlier(session.value))}
        >
          {reading ? "Looking further back…" : "Look further back"}
        </button>
      )}
    </p>
  );
}

