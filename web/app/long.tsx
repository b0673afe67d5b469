// Texts and lists of any length. Only the parts of a long one that are near the screen are drawn, so that drawing takes
// little time whatever an agent sends.
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { plural } from "./format";
import { expose, exposeName, type Token } from "./hidden";
import { pieces } from "./pieces";

type Parts = {
  count: number;
  height: (i: number) => number; // of a part that was not drawn yet, in pixels
  part: (i: number) => preact.JSX.Element;
  few?: number; // that are drawn at once
  go?: Go;
};

/** A Go gets a function that scrolls to a part. */
type Go = { current: ((i: number) => void) | undefined };

/** Windowed draws the parts that are near the visible part of the element that scrolls them. */
export function Windowed(parts: Parts) {
  const { count, few = 0, part, go } = parts;
  if (count > few) return <Window {...parts} />;
  if (go) go.current = undefined;
  return <>{Array.from({ length: count }, (_, i) => part(i))}</>;
}

function Window({ count, height, part, go }: Parts) {
  const place = useRef<HTMLDivElement>(null);
  const scroller = useRef<HTMLElement | null>(null);
  const [margin, setMargin] = useState(0); // from the beginning of what scrolls to the first part
  const [, draw] = useState(0);
  const options = {
    count,
    scrollMargin: margin,
    getScrollElement: () => scroller.current,
    estimateSize: height,
    overscan: 2,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    onChange: () => draw((n) => n + 1),
  };
  const [list] = useState(() => new Virtualizer<HTMLElement, HTMLDivElement>(options));
  list.setOptions(options);
  useLayoutEffect(() => {
    scroller.current = scrollerOf(place.current!);
    return list._didMount();
  }, [list]);
  useLayoutEffect(() => {
    const s = scroller.current!;
    setMargin(Math.round(place.current!.getBoundingClientRect().top - s.getBoundingClientRect().top + s.scrollTop));
    list._willUpdate();
    if (go) go.current = (i) => list.scrollToIndex(i, { align: i === 0 ? "start" : "end" });
  });
  const drawn = list.getVirtualItems();
  return (
    <div class="windowed" ref={place} style={{ height: `${list.getTotalSize()}px` }}>
      <div style={{ transform: `translateY(${(drawn[0]?.start ?? margin) - margin}px)` }}>
        {drawn.map(({ index }) => (
          <div key={index} data-index={index} ref={list.measureElement}>
            {part(index)}
          </div>
        ))}
      </div>
    </div>
  );
}

function scrollerOf(place: HTMLElement): HTMLElement {
  for (let e = place.parentElement; e; e = e.parentElement)
    if (/auto|scroll/.test(getComputedStyle(e).overflowY)) return e;
  return document.documentElement;
}

/** Exposed shows a short text with its hidden characters by name. */
export function Exposed({ text }: { text: string }) {
  return <Tokens all={expose(text)} />;
}

/** Name shows the name of a file or a command with its hidden characters by name. */
export function Name({ text }: { text: string }) {
  return <Tokens all={exposeName(text)} />;
}

function Tokens({ all }: { all: Token[] }) {
  return (
    <>
      {all.map((t) =>
        t.hidden ? (
          <span
            class={`hidden-char ${t.blanks ? "blanks" : ""}`}
            title={t.blanks ? "blanks, which move what follows" : "a character that would not be seen"}
          >
            {t.text}
          </span>
        ) : (
          t.text
        ),
      )}
    </>
  );
}

const shortLabel = 200; // characters

/** Label shows a text that is usually short. */
export function Label({ text }: { text: string }) {
  return text.length <= shortLabel ? <Exposed text={text} /> : <Text look="words" text={text} exposed />;
}

const few = 4; // pieces of a text that are drawn at once
const lineHeight = 20;

type TextProps = { text: string; exposed?: boolean; look: string; label?: string };

/**
 * Text shows a text of any length. With exposed, invisible characters appear by name; use it for texts that somebody
 * decides about. A long text says how long it is.
 */
export function Text({ text, exposed, look, label }: TextProps) {
  const [unfolded, setUnfolded] = useState(false);
  const tokens = useMemo(
    () => (exposed ? expose(text, unfolded) : [{ text, hidden: false }]),
    [text, exposed, unfolded],
  );
  const all = useMemo(() => pieces(tokens, innerWidth < 760 ? 40 : 80), [tokens]);
  const go = useRef<(i: number) => void>(undefined);
  const long = all.length > few;
  const folds = unfolded || tokens.some((t) => t.blanks);
  const body = (
    <div class={look} tabIndex={label ? 0 : undefined} role={label ? "region" : undefined} aria-label={label}>
      {long ? (
        <Windowed
          count={all.length}
          height={(i) => all[i]!.rows * lineHeight}
          part={(i) => <Tokens all={all[i]!.tokens} />}
          go={go}
        />
      ) : (
        all.map((p) => <Tokens all={p.tokens} />)
      )}
    </div>
  );
  if (!long && !folds) return body;
  return (
    <figure class="extent">
      <figcaption class="meta">
        <span class="grow">{extent(text)}</span>
        {folds && (
          <button type="button" class="button quiet" aria-pressed={unfolded} onClick={() => setUnfolded(!unfolded)}>
            {unfolded ? "Fold blanks" : "Show blanks"}
          </button>
        )}
        {long && (
          <>
            <button type="button" class="button quiet" onClick={() => go.current?.(0)}>
              Beginning
            </button>
            <button type="button" class="button quiet" onClick={() => go.current?.(all.length - 1)}>
              End
            </button>
          </>
        )}
      </figcaption>
      {body}
    </figure>
  );
}

function extent(text: string): string {
  let lines = 1;
  for (let at = text.indexOf("\n"); at >= 0 && at < text.length - 1; at = text.indexOf("\n", at + 1)) lines++;
  return `${plural(lines, "line")}, ${plural(text.length, "character")}`;
}
