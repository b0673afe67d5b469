// Search in the conversation: the server finds, and the page goes there and marks what was found.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { HistoryHit, ToolItem } from "../client/index.ts";
import { ago, exact, plural } from "./format";
import { Icon } from "./icons";
import { backToLive } from "./look";
import { reveal } from "./row";
import { act, announce, inWords, now, openID, rows, session } from "./store";
import { show } from "./transcript";
import { oneLine } from "./tools";

/** what is searched for; null while the search is closed */
const query = signal<string | null>(null);
const pause = 150; // ms without a key before the server is asked
const perPage = 30;

export function openSearch(): void {
  query.value ??= "";
  document.querySelector<HTMLInputElement>(".finder input")?.select();
}

const kinds: Record<string, string> = {
  prompt_accepted: "Prompt",
  message_start: "Prompt",
  response_chunk: "Answer",
  tool_call: "Call",
  tool_output: "Output",
  error: "Error",
};

export function SearchButton() {
  return (
    <button
      type="button"
      class="button quiet square"
      aria-label="Search the conversation"
      title="Search the conversation (F)"
      aria-expanded={query.value !== null}
      onClick={openSearch}
    >
      <Icon sign="search" />
    </button>
  );
}

export function Search() {
  return query.value === null ? null : <Finder key={openID.value} />;
}

function Finder() {
  const text = (query.value ?? "").trim();
  const [hits, setHits] = useState<HistoryHit[]>([]); // the newest first
  const [before, setBefore] = useState<number | null>(null);
  const [said, setSaid] = useState("");
  const [at, setAt] = useState(-1);
  const list = useRef<HTMLOListElement>(null);
  const entered = useRef(false); // Enter came before the hits of this text
  // read adds a page of hits to those that are known. It goes on while pages without hits have one before them.
  const read = async (known: HistoryHit[], from: number | undefined, gone: () => boolean) => {
    const s = session.peek()!;
    try {
      let found: HistoryHit[] = [];
      let next: number | null | undefined = from;
      do {
        const page = await s.search(text, { before: next ?? undefined, limit: perPage });
        if (gone()) return;
        found = (page.hits ?? []).toReversed();
        next = page.before;
      } while (found.length === 0 && next !== null);
      const all = [...known, ...found];
      setHits(all);
      setBefore(next);
      setSaid(all.length === 0 ? "Nothing found" : `${plural(all.length, "place")}${next === null ? "" : " so far"}`);
    } catch (err) {
      if (!gone()) setSaid(inWords(err));
    }
  };
  useLayoutEffect(() => {
    let gone = false;
    entered.current = false;
    setHits([]);
    setBefore(null);
    setAt(-1);
    setSaid(text && "Searching…");
    const timer = text ? setTimeout(() => void read([], undefined, () => gone), pause) : undefined;
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [text]);
  useEffect(() => (said && said !== "Searching…" ? announce(said) : undefined), [said]);
  useEffect(() => markAll(text), [text]);
  const close = () => {
    query.value = null;
    document.querySelector<HTMLElement>(".transcript")?.focus();
  };
  const go = (i: number) => {
    const hit = hits[i];
    entered.current = hits.length === 0;
    if (!hit) return;
    setAt(i);
    list.current?.children[i]?.scrollIntoView({ block: "nearest" });
    void goToCursor(hit.cursor, text);
  };
  useLayoutEffect(() => {
    if (entered.current) go(0);
  }, [hits]);
  return (
    <search class="finder" aria-label="Search the conversation">
      <div class="ask">
        <input
          class="field"
          aria-label="Text to find"
          placeholder="Find in the conversation"
          maxLength={80}
          value={query.value ?? ""}
          ref={(i) => {
            if (i && !i.dataset.shown) {
              i.dataset.shown = "yes";
              i.focus();
            }
          }}
          onInput={(e) => {
            query.value = e.currentTarget.value;
          }}
          onKeyDown={(e) => {
            const step = e.key === "ArrowUp" || (e.key === "Enter" && e.shiftKey) ? -1 : 1;
            if (e.key === "Escape") close();
            else if (e.key === "Enter" || e.key === "ArrowDown" || e.key === "ArrowUp") go(Math.max(0, at + step));
            else return;
            e.preventDefault();
            e.stopPropagation();
          }}
        />
        <span class="meta">{said}</span>
        <button type="button" class="button quiet square" aria-label="Close the search" onClick={close}>
          <Icon sign="cross" />
        </button>
      </div>
      {hits.length > 0 && (
        <ol ref={list} aria-label="Places found">
          {hits.map((h, i) => (
            <li key={h.cursor}>
              <button type="button" aria-current={i === at ? "true" : undefined} onClick={() => go(i)}>
                <span class="meta">{kinds[h.of] ?? "Event"}</span>
                <span class="cut">
                  <Marked text={oneLine(h.excerpt)} what={text} />
                </span>
                <span class="meta" title={exact(Date.parse(h.at))}>
                  {ago(Date.parse(h.at), now.value)}
                </span>
              </button>
            </li>
          ))}
          {before !== null && (
            <li>
              <button type="button" onClick={() => void read(hits, before, () => query.peek()?.trim() !== text)}>
                Earlier places
              </button>
            </li>
          )}
        </ol>
      )}
    </search>
  );
}

function Marked({ text, what }: { text: string; what: string }) {
  const i = text.toLowerCase().indexOf(what.toLowerCase());
  if (i < 0) return <>{text}</>;
  const from = Math.max(0, i - 40);
  return (
    <>
      {from > 0 && "…"}
      {text.slice(from, i)}
      <mark>{text.slice(i, i + what.length)}</mark>
      {text.slice(i + what.length)}
    </>
  );
}

/**
 * goToCursor shows the row of an event, and of several rows the one with a text. It reads that part of the conversation
 * if it is not loaded.
 */
export async function goToCursor(cursor: number, what = ""): Promise<void> {
  const s = session.peek();
  if (!s) return;
  backToLive();
  const { items } = s.transcript;
  if (items.length === 0 || items[0]!.cursor > cursor || items.at(-1)!.last < cursor) {
    if (!(await act((o) => o.transcript.jump(cursor + 1)))) return;
  }
  const item = s.transcript.items.findLast((i) => i.cursor <= cursor);
  if (!item) return;
  const low = what.toLowerCase();
  const find = () => {
    const own = rows.peek().filter((r) =>
      r.kind === "reads" ? r.items.includes(item as ToolItem) : `${r.key}.`.startsWith(`${item.key}.`),
    );
    return own.find((r) => r.kind === "block" && r.text.toLowerCase().includes(low)) ?? own[0];
  };
  let row = find();
  if (!row) {
    // The rows of what was just read are made when the page is told of it.
    await new Promise<void>((told) => {
      const stop = s.on(() => {
        stop();
        told();
      });
    });
    row = find();
  }
  if (!row || s !== session.peek()) return;
  reveal(row.key);
  if (row.kind === "reads") reveal(item.key);
  show(row.key);
}

/** markAll marks a text in all drawn rows until the returned function is called. */
function markAll(what: string): (() => void) | undefined {
  const place = document.querySelector(".transcript .rows");
  if (!what || !place || !("highlights" in CSS)) return undefined;
  const low = what.toLowerCase();
  const mark = () => {
    const found = new Highlight();
    const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    for (let n = texts.nextNode(); n; n = texts.nextNode()) {
      const text = (n as Text).data.toLowerCase();
      if (text.length !== (n as Text).data.length) continue; // the places would be others
      for (let i = text.indexOf(low); i >= 0 && found.size < 1000; i = text.indexOf(low, i + low.length)) {
        const [startContainer, startOffset, endOffset] = [n, i, i + low.length];
        found.add(new StaticRange({ startContainer, startOffset, endContainer: n, endOffset }));
      }
    }
    CSS.highlights.set("found", found);
  };
  let drawn = 0;
  const watch = new MutationObserver(() => {
    cancelAnimationFrame(drawn);
    drawn = requestAnimationFrame(mark);
  });
  watch.observe(place, { childList: true, subtree: true, characterData: true });
  mark();
  return () => {
    watch.disconnect();
    cancelAnimationFrame(drawn);
    CSS.highlights.delete("found");
  };
}
