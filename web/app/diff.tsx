// Changes of a file: lines with numbers and signs, unchanged parts folded.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Change } from "./tools";
import { intoPrompt, mayWrite, selectedIn } from "./draft";
import { plural } from "./format";
import { type Line, linesOf, piecesOf, stats } from "./lines";
import { place as shown } from "./lists";
import { Exposed, Windowed } from "./long";
import { place, quote } from "./paths";
import { narrow } from "./screen";
import { openFile } from "./side";
import { oneLine } from "./tools";

type Part = Line | { skipped: Line[] };

const around = 3; // unchanged lines beside a change
const few = 400; // lines that are drawn at once; of more, only those near the screen are drawn
const together = 40; // lines that are drawn together then

function fold(lines: Line[]): Part[] {
  const parts: Part[] = [];
  for (let i = 0; i < lines.length;) {
    if (lines[i]!.sign !== " ") {
      parts.push(lines[i++]!);
      continue;
    }
    let end = i;
    while (end < lines.length && lines[end]!.sign === " ") end++;
    const head = i === 0 ? 0 : around,
      tail = end === lines.length ? 0 : around;
    if (end - i <= head + tail + 1) parts.push(...lines.slice(i, end));
    else
      parts.push(
        ...lines.slice(i, i + head),
        { skipped: lines.slice(i + head, end - tail) },
        ...lines.slice(end - tail, end),
      );
    i = end;
  }
  return parts;
}

/** The view that somebody chose; a narrow page shows one column all the same. */
export const split = signal(localStorage.getItem("maestro.diff") === "split");

function chooseSplit(on: boolean): void {
  split.value = on;
  localStorage.setItem("maestro.diff", on ? "split" : "unified");
}

/** A row of the table: one line, the two beside each other, or folded lines. */
type Beside = { old?: Line; now?: Line };
type Drawn = Beside | { skipped: Line[] };

/** beside puts removed lines next to the added ones that replace them. */
function beside(parts: Part[]): Drawn[] {
  const rows: Drawn[] = [];
  for (let i = 0; i < parts.length;) {
    const part = parts[i]!;
    if ("skipped" in part || part.sign === " ") {
      rows.push("skipped" in part ? part : { old: part, now: part });
      i++;
      continue;
    }
    const run = (sign: string) => {
      const lines: Line[] = [];
      for (let p = parts[i]; p && !("skipped" in p) && p.sign === sign; p = parts[++i]) lines.push(p);
      return lines;
    };
    const [old, now] = [run("-"), run("+")];
    for (let n = 0; n < Math.max(old.length, now.length); n++) rows.push({ old: old[n], now: now[n] });
  }
  return rows;
}

const over = (parts: Part[]): Drawn[] =>
  parts.map((p) => ("skipped" in p ? p : p.sign === "-" ? { old: p } : { now: p }));

/**
 * Diff shows a change below its path. A caller with a caption shows the path and the choice of the view itself, and
 * passes the view in beside.
 */
export function Diff({
  change,
  caption,
  beside: chosenBeside,
}: {
  change: Change;
  caption?: ComponentChildren;
  beside?: boolean;
}) {
  const folded = useMemo(() => fold(linesOf(change)), [change]);
  const [open, setOpen] = useState<ReadonlySet<Part>>(new Set());
  const [chosen, setChosen] = useState<{ from: number; to: number } | null>(null); // rows, in the order of choice
  const { added, removed } = stats(change);
  const two = chosenBeside ?? (split.value && !narrow.value);
  const parts = useMemo(
    () => folded.flatMap((p) => ("skipped" in p && open.has(p) ? p.skipped : [p])),
    [folded, open],
  );
  const rows = useMemo(() => (two ? beside(parts) : over(parts)), [parts, two]);
  const comments = mayWrite();
  const [first, last] = chosen ? [Math.min(chosen.from, chosen.to), Math.max(chosen.from, chosen.to)] : [0, -1];
  const within = new Set(rows.slice(first, last + 1).flatMap((r) => ("skipped" in r ? [] : [r.old, r.now])));
  const lines = within.size > 0 ? parts.filter((p): p is Line => "sign" in p && within.has(p)) : [];
  const comment = () => {
    if (lines.length > 0) {
      const texts = lines.map((l) => l.sign + l.text);
      intoPrompt(quote(change.path || "The change", placeOf(lines), texts));
    }
    setChosen(null);
    getSelection()?.removeAllRanges();
  };
  const choose = (to: number, extend: boolean) => setChosen({ from: extend && chosen ? chosen.from : to, to });
  const selected = () => {
    const marked = selectedIn(body.current!, "row");
    if (marked) setChosen(marked);
  };
  const keys = (e: KeyboardEvent) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!body.current || e.target !== body.current) return;
    if (move) {
      const next = Math.min(Math.max((chosen?.to ?? (move > 0 ? -1 : rows.length)) + move, 0), rows.length - 1);
      choose(next, e.shiftKey);
      body.current.querySelector(`[data-row="${next}"]`)?.scrollIntoView({ block: "nearest" });
    } else if (e.key === "Enter" && chosen) comment();
    else if (e.key === "Escape" && chosen) setChosen(null);
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  const body = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => setChosen(null), [two, open]); // the rows are others
  const columns = two ? 6 : 4;
  const draw = (row: Drawn, i: number) =>
    "skipped" in row ? (
      <tr class="skip" role="presentation">
        <td colSpan={columns}>
          <button type="button" onClick={() => setOpen(new Set([...open, row]))}>
            Show {plural(row.skipped.length, "unchanged line")}
          </button>
        </td>
      </tr>
    ) : (
      <tr
        role="presentation"
        data-row={i}
        class={`${two ? "" : rowClass[(row.now ?? row.old)!.sign]} ${i >= first && i <= last ? "chosen" : ""}`}
        onClick={(e) => {
          if (comments && (e.target as Element).classList.contains("no")) choose(i, e.shiftKey);
        }}
      >
        {two ? (
          <>
            <Half line={row.old} no={row.old?.before} />
            <Half line={row.now} no={row.now?.after} />
          </>
        ) : (
          <Whole line={(row.now ?? row.old)!} />
        )}
      </tr>
    );
  const table = (from: number, to: number) => (
    <table role="presentation">
      <colgroup>
        {(two ? ["no", "sign", "", "no", "sign", ""] : ["no", "no", "sign", ""]).map((c) => (
          <col class={c} />
        ))}
      </colgroup>
      <tbody role="presentation">{rows.slice(from, to).map((row, n) => draw(row, from + n))}</tbody>
    </table>
  );
  const long = rows.length > few;
  return (
    <figure class={`diff ${two ? "split" : ""} ${long ? "long" : ""}`}>
      <figcaption class="file">
        {caption ? (
          <span class="grow">{caption}</span>
        ) : (
          <span class="cut grow">
            <PathLink path={change.path} line={firstLine(change)} />
          </span>
        )}
        {lines.length > 0 && comments && (
          <button type="button" class="button primary" onClick={comment}>
            Comment on {placeOf(lines)}
          </button>
        )}
        <span>
          <span class="added">+{added}</span> <span class="removed">−{removed}</span>
        </span>
        {!narrow.value && !caption && <SplitButton />}
      </figcaption>
      <div
        class="lines"
        ref={body}
        role={comments ? "group" : "presentation"}
        aria-label={
          comments ? `Lines of ${oneLine(change.path) || "the change"}; arrows choose, Enter comments` : undefined
        }
        tabIndex={comments || long ? 0 : undefined}
        onKeyDown={comments ? keys : undefined}
        onMouseUp={comments ? selected : undefined}
      >
        {long ? (
          <Windowed
            count={Math.ceil(rows.length / together)}
            height={(i) => 20 * Math.min(together, rows.length - i * together)}
            part={(i) => table(i * together, (i + 1) * together)}
          />
        ) : (
          table(0, rows.length)
        )}
      </div>
    </figure>
  );
}

/** SplitButton chooses the view of all changes. */
export function SplitButton() {
  return (
    <button
      type="button"
      class="button quiet"
      aria-pressed={split.value}
      onClick={() => chooseSplit(!split.value)}
    >
      Side by side
    </button>
  );
}

/** PathLink opens a file of the open session in the right column, at a line if one is given. */
export function PathLink({ path, line }: { path: string; line?: number }) {
  if (!path) return <bdi>change</bdi>;
  const name = (
    <bdi>
      <Exposed text={path} />
    </bdi>
  );
  if (shown.value !== "session") return name; // in the inbox, the file is of another session
  return (
    <button type="button" class="opens" title="Open the file" onClick={() => openFile(path, line)}>
      {name}
    </button>
  );
}

/** firstLine is the line where a change begins in its file. Only a patch has it. */
function firstLine(change: Change): number | undefined {
  return "patch" in change ? linesOf(change).find((l) => l.after !== undefined)?.after : undefined;
}

/** placeOf names lines by their numbers, those of the new file if it has them. */
function placeOf(lines: Line[]): string {
  const side = lines.some((l) => l.after !== undefined) ? "after" : "before";
  const numbers = lines.map((l) => l[side]).filter((n) => n !== undefined);
  const [from, to] = [numbers[0], numbers.at(-1)];
  if (from === undefined) return plural(lines.length, "line");
  return `${side === "before" ? "removed " : ""}${place(from, to!)}`;
}

const rowClass = { "+": "plus", "-": "minus", " ": "" };
const signText = { "+": "+", "-": "−", " ": "" };

function Half({ line, no }: { line: Line | undefined; no: number | undefined }) {
  const tone = line ? rowClass[line.sign] : "none";
  return (
    <>
      <td class={`no ${tone}`}>{no}</td>
      <td class={`sign ${tone}`}>{line && signText[line.sign]}</td>
      <td class={tone}>{line && <Pieces line={line} />}</td>
    </>
  );
}

function Whole({ line }: { line: Line }) {
  return (
    <>
      <td class="no">{line.before}</td>
      <td class="no">{line.after}</td>
      <td class="sign">{signText[line.sign]}</td>
      <td>
        <Pieces line={line} />
      </td>
    </>
  );
}

function Pieces({ line }: { line: Line }) {
  return (
    <>
      {piecesOf(line).map((p) =>
        p.marked ? (
          <mark>
            <Exposed text={p.text} />
          </mark>
        ) : (
          <Exposed text={p.text} />
        ),
      )}
    </>
  );
}
