// A file in the right column: its lines, of which only those near the screen are read, and comments on them.
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { exposed } from "./hidden";
import { Exposed, Name } from "./long";
import { intoPrompt, mayWrite, selectedIn } from "./draft";
import { drawn, gone, type Reader as Source } from "./files-open";
import { plural } from "./format";
import { Icon } from "./icons";
import { NeedsControl } from "./needs";
import { parts, place, quote } from "./paths";
import { coarse } from "./screen";
import { closeSheet, findFile } from "./side";
import { inWords } from "./store";

const chunkLines = 100; // lines that are drawn together
const lineHeight = 20; // pixels
const mostChosen = 500; // lines of one comment
const longestLine = 2000; // characters of a line that are drawn

type List = Virtualizer<HTMLDivElement, HTMLDivElement>;

export function Reader({ of: file }: { of: Source }) {
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
    // Lines that wrap are measured now, which moves the others. The line is in place when the size stays the same.
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
    intoPrompt(quote(file.path, place(first, last), lines));
    setChosen(null);
    getSelection()?.removeAllRanges();
    closeSheet();
  };
  const choose = (to: number, extend: boolean) => {
    const from = extend && chosen ? chosen.from : to;
    setChosen({ from, to: Math.min(Math.max(to, from - mostChosen + 1), from + mostChosen - 1) });
  };
  const tapsEnd = () => coarse.peek() && chosen?.from === chosen?.to; // a second tap chooses the last line
  const selected = () => {
    const found = selectedIn(scroller.current!, "line");
    if (!found) return;
    const from = Math.min(found.from, found.to);
    setChosen({ from, to: Math.min(Math.max(found.from, found.to), from + mostChosen - 1) });
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
        <button type="button" class="button quiet square" aria-label="Back to the files" onClick={findFile}>
          <Icon sign="left" />
        </button>
        <h2 class="grow" title={exposed(file.path)}>
          <span class="cut">
            <Name text={name} />
          </span>
          <span class="meta cut">
            <Name
              text={[folder.replace(/\/$/, ""), total !== undefined && plural(total, "line")].filter(Boolean).join(" · ")}
            />
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
            <div
              key={c.index}
              class="chunk"
              data-index={c.index}
              ref={list.measureElement}
              style={{ top: `${c.start}px` }}
            >
              {Array.from({ length: Math.min(chunkLines, (total ?? 0) - c.index * chunkLines) }, (_, i) => {
                const n = c.index * chunkLines + i + 1;
                const tone = n >= first && n <= last ? "chosen" : n === marked ? "marked" : "";
                return (
                  <div key={n} class={`l ${tone}`} data-line={n}>
                    <span class="no" onClick={mine ? (e) => choose(n, e.shiftKey || tapsEnd()) : undefined}>
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
  if (/Path traversal|outside/.test(said)) return "The file is outside of the workspace, so it cannot be shown here.";
  return said;
}
