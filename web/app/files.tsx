// Files of the workspace in the right column: find one by its name, and read it.
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { FileMatch } from "../client/index.ts";
import { changed, PathName } from "./changes";
import { Exposed } from "./diff";
import { mayWrite, quoted } from "./draft";
import { drawn, gone, reader, recent, shared, type Reader as Source } from "./files-open";
import { plural, who } from "./format";
import { Icon } from "./icons";
import { parts, place, quote, wanted } from "./paths";
import { closeSheet, opened, openFile, running, showTab } from "./side";
import { act, announce, control, inWords, people, role, session } from "./store";

const most = 40; // files that are offered
const pause = 80; // ms without a key before the server is asked
const listed = 8; // files of a list before anything is typed

export function Files() {
  return opened.value && reader.value ? <Reader key={reader.value.no} of={reader.value} /> : <Find />;
}

/** findFile goes to the field that finds a file. */
export function findFile(): void {
  opened.value = null;
  showTab("files");
  requestAnimationFrame(() => document.getElementById("find-file")?.focus());
}

/** NeedsControl says why files and commands are not offered, and what to do. */
export function NeedsControl({ what }: { what: string }) {
  const { mine, holder, asked } = control.value;
  if (role.value !== "controller") {
    return <p class="needs-control">Your link lets you watch. Only who drives can {what}.</p>;
  }
  if (mine || holder === null) return null;
  const name = who(people.value?.controller);
  return (
    <p class="needs-control" role="status">
      <span class="grow">
        {name} drives, and only who drives can {what}.{asked && ` You have asked ${name} for control.`}
      </span>
      {!asked && (
        <button type="button" class="button" onClick={() => void act((s) => s.lease.ask())}>
          Ask for control
        </button>
      )}
    </p>
  );
}

function Find() {
  const [query, setQuery] = useState("");
  const [found, setFound] = useState<{ files: readonly FileMatch[]; truncated: boolean; said: string }>();
  const [at, setAt] = useState(0);
  const { name, line } = wanted(query);
  useEffect(() => {
    setAt(0);
    if (name === "") return setFound(undefined);
    let gone = false;
    const timer = setTimeout(() => {
      const s = session.peek();
      s?.ready()
        .then(() => s.utilities.findFiles(name, { limit: most }))
        .then(
          ({ results: files, truncated }) => {
            const said = files.length > 0 ? plural(files.length, "file") + (truncated ? " and more" : "") : "No file is found";
            if (!gone) setFound({ files, truncated, said });
          },
          (err) => !gone && setFound({ files: [], truncated: false, said: inWords(err) }),
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

/** Known lists files that somebody may want before anything is typed. */
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

function PathList({ paths }: { paths: readonly string[] }) {
  return (
    <ul>
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

/** Watched is for those who do not drive: what who drives reads. */
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
        <p class="meta said">A file that is opened there appears here.</p>
      )}
    </div>
  );
}

const chunkLines = 100; // lines that are drawn together
const lineHeight = 20; // pixels
const mostChosen = 500; // lines of one comment
const longestLine = 2000; // characters of a line that are drawn

type List = Virtualizer<HTMLDivElement, HTMLDivElement>;

function Reader({ of: file }: { of: Source }) {
  const scroller = useRef<HTMLDivElement>(null);
  const [, draw] = useState(0);
  const [chosen, setChosen] = useState<{ from: number; to: number } | null>(null);
  const target = useRef(file.line); // the line to scroll to once it is read
  const [marked, setMarked] = useState(file.line);
  const mine = mayWrite();
  void drawn.value;
  const { total, failure } = file.text;
  const count = Math.ceil((total ?? 0) / chunkLines);
  const options = {
    count,
    getScrollElement: () => scroller.current,
    estimateSize: (i: number) => Math.min(chunkLines, (total ?? 0) - i * chunkLines) * lineHeight,
    overscan: 1,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    initialOffset: file.top,
    onChange: () => draw((n) => n + 1),
  };
  const [list] = useState<List>(() => new Virtualizer(options));
  list.setOptions(options);
  useLayoutEffect(() => list._didMount(), [list]);
  useLayoutEffect(() => list._willUpdate());
  useLayoutEffect(() => {
    scroller.current!.scrollTop = file.top; // as it was before another tab was shown
    return () => {
      file.top = list.scrollOffset ?? 0;
      file.line = undefined;
    };
  }, []);
  const chunks = list.getVirtualItems();
  const [first, last] = chosen ? [Math.min(chosen.from, chosen.to), Math.max(chosen.from, chosen.to)] : [0, -1];
  const unread = () => {
    for (let n = first; n <= last; n++) if (file.text.at(n) === undefined) return true;
    return false;
  };
  useEffect(() => {
    if (!mine) return;
    const line = target.current;
    if (first > 0 && unread()) return file.text.need(first, last);
    if (line !== undefined) return file.text.need(line - 50, line + 100);
    const [top, end] = [chunks[0], chunks.at(-1)];
    if (top && end) file.text.need(top.index * chunkLines + 1, (end.index + 1) * chunkLines);
    else file.text.need(1, chunkLines);
  });
  useLayoutEffect(() => {
    const line = target.current === undefined || total === undefined ? undefined : Math.min(target.current, total);
    if (line === undefined) return;
    if (line < 1) return;
    const place = scroller.current?.querySelector(`[data-line="${line}"]`);
    if (!place) {
      list.scrollToIndex(Math.floor((line - 1) / chunkLines), { align: "start" });
      return;
    }
    if (file.text.at(line) === undefined) return;
    place.scrollIntoView({ block: "center" });
    // Lines that wrap are measured only now, which moves the others. The line is shown when that is over.
    const size = list.getTotalSize();
    let frame = requestAnimationFrame(() => {
      frame = requestAnimationFrame(() => {
        if (list.getTotalSize() === size) target.current = undefined;
        else draw((n) => n + 1);
      });
    });
    return () => cancelAnimationFrame(frame);
  });
  const goTo = (line: number) => {
    target.current = line;
    setMarked(line);
    setChosen(null);
    draw((n) => n + 1);
  };

  const comment = () => {
    if (first === 0 || unread()) return;
    const lines = Array.from({ length: last - first + 1 }, (_, i) => file.text.at(first + i) ?? "");
    quoted.value = quote(file.path, first, lines);
    setChosen(null);
    getSelection()?.removeAllRanges();
    closeSheet();
  };
  const choose = (to: number, extend: boolean) => {
    const from = extend && chosen ? chosen.from : to;
    setChosen({ from, to: Math.min(Math.max(to, from - mostChosen + 1), from + mostChosen - 1) });
  };
  const selected = () => {
    const text = getSelection();
    const line = (node: Node | null | undefined) => {
      const found = (node instanceof Element ? node : node?.parentElement)?.closest<HTMLElement>("[data-line]");
      return found && scroller.current?.contains(found) ? Number(found.dataset.line) : undefined;
    };
    const [from, to] = [line(text?.anchorNode), line(text?.focusNode)];
    if (text?.isCollapsed || !from || !to) return;
    const [a, b] = [Math.min(from, to), Math.max(from, to)];
    setChosen({ from: a, to: Math.min(b, a + mostChosen - 1) });
  };
  const keys = (e: KeyboardEvent) => {
    if (e.target !== scroller.current || e.ctrlKey || e.metaKey || e.altKey) return;
    const move = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (move && mine && total) {
      const next = Math.min(Math.max(chosen ? chosen.to + move : (marked ?? topLine(scroller.current!)), 1), total);
      choose(next, e.shiftKey);
      scroller.current!.querySelector(`[data-line="${next}"]`)?.scrollIntoView({ block: "nearest" });
    } else if (e.key === "Enter" && chosen) comment();
    else if (e.key === "Escape" && chosen) setChosen(null);
    else if (e.key === "Escape") findFile();
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  const { folder, name } = parts(file.path);
  return (
    <div class="reader">
      <div class="bar">
        <button type="button" class="button quiet square" aria-label="Back to the files" title="Back" onClick={findFile}>
          <Icon sign="left" />
        </button>
        <h2 class="grow" title={file.path}>
          <span class="cut">{name}</span>
          <span class="meta cut">
            {[folder.replace(/\/$/, ""), total !== undefined && plural(total, "line")].filter(Boolean).join(" · ")}
          </span>
        </h2>
        <GoTo total={total} go={goTo} />
        {mine && (
          <button
            type="button"
            class="button quiet square"
            aria-label="Read the file again"
            title="Read the file again"
            onClick={() => {
              gone.value = false;
              file.text.reload();
            }}
          >
            <Icon sign="reload" />
          </button>
        )}
      </div>
      {gone.value && <p class="notice-line bad">The file was deleted. This is what was read before.</p>}
      {!mine && <NeedsControl what={total === undefined ? "open files" : "read other lines"} />}
      {failure !== undefined && <p class="notice-line bad">{failed(failure)}</p>}
      {total === 0 && <p class="notice-line">The file is empty.</p>}
      <div
        class="code-lines"
        ref={scroller}
        role="group"
        aria-label={`Lines of ${file.path}${mine ? "; arrows choose, Enter comments" : ""}`}
        aria-busy={mine && total === undefined && failure === undefined}
        tabIndex={0}
        onKeyDown={keys}
        onMouseUp={mine ? selected : undefined}
      >
        <div class="all" style={{ height: `${list.getTotalSize()}px`, "--digits": String(total ?? 1).length }}>
          {chunks.map((c) => (
            <div key={c.index} class="chunk" data-index={c.index} ref={list.measureElement} style={{ top: `${c.start}px` }}>
              {Array.from({ length: Math.min(chunkLines, (total ?? 0) - c.index * chunkLines) }, (_, i) => {
                const n = c.index * chunkLines + i + 1;
                const tone = n >= first && n <= last ? "chosen" : n === marked ? "marked" : "";
                return (
                  <div key={n} class={`l ${tone}`} data-line={n}>
                    <span
                      class="no"
                      onClick={mine ? (e) => choose(n, e.shiftKey || (coarse() && chosen?.from === chosen?.to)) : undefined}
                    >
                      {n}
                    </span>
                    <code>
                      <Line file={file} n={n} />
                    </code>
                  </div>
                );
              })}
            </div>
          ))}
        </div>
      </div>
      {first > 0 && mine && (
        <div class="chosen-bar">
          <span class="grow">{place(first, last)}</span>
          <button type="button" class="button quiet" onClick={() => setChosen(null)}>
            Clear
          </button>
          <button type="button" class="button primary" disabled={unread()} onClick={comment}>
            Comment
          </button>
        </div>
      )}
    </div>
  );
}

/** topLine is the first line that is wholly visible. */
function topLine(view: HTMLElement): number {
  const { top } = view.getBoundingClientRect();
  const lines = [...view.querySelectorAll<HTMLElement>("[data-line]")];
  return Number(lines.find((l) => l.getBoundingClientRect().top >= top - 1)?.dataset.line ?? 1);
}

const coarse = () => matchMedia("(pointer: coarse)").matches;

function Line({ file, n }: { file: Source; n: number }) {
  const text = file.text.at(n);
  if (text === undefined) return null;
  if (text.length > longestLine) {
    return (
      <>
        <Exposed text={text.slice(0, longestLine)} />
        <span class="meta"> … {plural(text.length - longestLine, "more character")} in this line</span>
      </>
    );
  }
  const tokens = file.tokens(n);
  if (!tokens) return <Exposed text={text} />;
  return (
    <>
      {tokens.map((t) =>
        t.kind ? (
          <span class={t.kind}>
            <Exposed text={t.text} />
          </span>
        ) : (
          <Exposed text={t.text} />
        ),
      )}
    </>
  );
}

function GoTo({ total, go }: { total: number | undefined; go: (line: number) => void }) {
  return (
    <form
      class="go-to"
      onSubmit={(e) => {
        e.preventDefault();
        const field = e.currentTarget.elements.namedItem("line") as HTMLInputElement;
        const line = Number(field.value);
        if (line >= 1) go(Math.min(line, total ?? line));
        field.value = "";
        document.querySelector<HTMLElement>(".code-lines")?.focus();
      }}
    >
      <input
        class="field"
        name="line"
        inputMode="numeric"
        pattern="[0-9]*"
        maxLength={7}
        aria-label="Go to line"
        placeholder="Line"
        autocomplete="off"
      />
    </form>
  );
}

function failed(err: unknown): string {
  const said = inWords(err);
  if (/only supports text files/.test(said)) return "This is not a text file, so it cannot be shown.";
  if (/only supports regular files/.test(said)) return "This is not a file: a folder or something else is called so.";
  if (/File not found/.test(said)) return "There is no such file any more.";
  if (/exceeds maximum/.test(said)) return "The file has more than 2 MiB, which is too much to show.";
  if (/Path traversal|outside/.test(said)) return "The file is outside of the workspace, where nothing can be read from here.";
  return said;
}
