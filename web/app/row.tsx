// One row of the transcript.
import { effect, signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { EndItem, NoteItem, ToolItem } from "../client/index.ts";
import { plain } from "./ansi";
import { code, hasLongWord, tooDeep, type Code } from "./blocks";
import { CommandLine } from "./command";
import { Diff, PathLink } from "./diff";
import { clock, cost, count, duration, exact, plural, who } from "./format";
import { highlight } from "./highlight";
import { stats } from "./lines";
import { Icon, type Outcome } from "./icons";
import { Exposed, Text, Windowed } from "./long";
import { render, renderHighlighted } from "./markdown";
import { Omitted, Preview, previewed, useOutput } from "./output";
import type { Row } from "./rows";
import { act, moment, openID, state, you } from "./store";
import { about, longestPath, oneLine, withoutChange } from "./tools";

/** Rows that somebody opened, by key. They stay open when the list drops and draws them again. */
const opened = signal<ReadonlySet<string>>(new Set());
effect(() => {
  if (openID.value !== null) opened.value = new Set(); // keys are those of one session
});

function toggle(key: string): void {
  const next = new Set(opened.value);
  if (!next.delete(key)) next.add(key);
  opened.value = next;
}

/** reveal opens a row. */
export function reveal(key: string): void {
  if (!opened.peek().has(key)) toggle(key);
}

// Items change in place, and signals skip a component whose props are the same. So components get the
// row, which is new after each change.
type Of<K extends Row["kind"]> = { row: Extract<Row, { kind: K }> };

export function RowView({ row }: { row: Row }) {
  switch (row.kind) {
    case "prompt":
      return <Prompt row={row} />;
    case "block":
      return <Block text={row.text} open={row.open} />;
    case "thinking":
      return <Thinking row={row} />;
    case "tool":
      return <Tool row={row} />;
    case "reads":
      return <Reads row={row} />;
    case "command":
      return <CommandLine row={row} open={opened.value.has(row.key)} toggle={() => toggle(row.key)} />;
    case "question":
      return <Question row={row} />;
    case "end":
      return <End row={row} />;
    case "note":
      return <Note item={row.item} />;
  }
}

export function Time({ at }: { at: number }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={exact(at)}>
      {Date.now() - at < 86_400_000 ? clock(at) : exact(at)}
    </time>
  );
}

function Prompt({ row: { item, key: id } }: Of<"prompt">) {
  const { author, attachments, truncated } = item.prompt;
  const [whole, setWhole] = useState<string | null>(null);
  const content = whole ?? item.prompt.content;
  const start = content.slice(0, 1600).split("\n").slice(0, 14).join("\n");
  const long = start.length < content.length;
  const folded = long && !opened.value.has(id);
  const unfold = () => {
    toggle(id);
    if (truncated && whole === null) {
      void act(async (s) => {
        const [e] = (await s.history({ before: item.cursor + 1, limit: 1, full: true })).entries ?? [];
        if (e?.message?.type === "prompt_accepted") setWhole(e.message.content);
      });
    }
  };
  return (
    <article class={`prompt ${folded ? "fold" : ""}`} aria-label={`Prompt of ${who(author)}`}>
      <p class="by">
        <b>{you(author) ? "You" : who(author)}</b>
        <Time at={item.at} />
      </p>
      {folded ? <p class="said">{start}</p> : <Text look="said" text={content} />}
      {long && (
        <button type="button" class="button quiet" aria-expanded={!folded} onClick={unfold}>
          {folded ? "Show all" : "Show less"}
        </button>
      )}
      {attachments && (
        <div class="files">
          {attachments.map((name) => (
            <span class="chip">
              <Icon sign="file" />
              {name}
            </span>
          ))}
        </div>
      )}
    </article>
  );
}

function Block({ text, open }: { text: string; open: boolean }) {
  const block = useMemo(() => code(text), [text]);
  if (block)
    return (
      <div class="body">
        <CodeBlock code={block} open={open} />
      </div>
    );
  if (tooDeep(text))
    return (
      <div class="body">
        <Text look="output" text={text} />
        <p class="meta">This is nested too deeply to be formatted. It is shown as it was written.</p>
      </div>
    );
  return (
    <div class="body">
      <Prose text={text} />
    </div>
  );
}

/** Prose shows one block of markdown. */
function Prose({ text }: { text: string }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => place.current!.replaceChildren(render(text)), [text]);
  return <div class={`prose ${hasLongWord(text) ? "solid" : ""}`} ref={place} />;
}

function CodeBlock({ code: { language, text }, open }: { code: Code; open: boolean }) {
  const place = useRef<HTMLElement>(null);
  const [copied, setCopied] = useState(false);
  useLayoutEffect(() => {
    place.current!.textContent = text;
    if (open) return;
    let gone = false;
    void highlight(language, text).then((html) => {
      if (html !== undefined && !gone) place.current?.replaceChildren(renderHighlighted(html));
    });
    return () => {
      gone = true;
    };
  }, [text, language, open]);
  useEffect(() => {
    const timer = copied ? setTimeout(() => setCopied(false), 2000) : undefined;
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = () => void navigator.clipboard?.writeText(text).then(() => setCopied(true));
  return (
    <figure class="code">
      <div class="bar">
        <span class="meta grow">{language}</span>
        {navigator.clipboard && (
          <button
            type="button"
            class={`button quiet square copy ${copied ? "done" : ""}`}
            onClick={copy}
            title="Copy"
            aria-label={copied ? "Copied" : "Copy the code"}
          >
            <Icon sign={copied ? "check" : "copy"} />
          </button>
        )}
      </div>
      <pre tabIndex={0}>
        <code ref={place} />
      </pre>
    </figure>
  );
}

function Thinking({ row: { item, key: id } }: Of<"thinking">) {
  const open = opened.value.has(id);
  const line = item.open ? oneLine(item.text.slice(-240)).slice(-120) : oneLine(item.text.slice(0, 240));
  return (
    <div class="body">
      <button type="button" class="line" aria-expanded={open} onClick={() => toggle(id)}>
        <Turn />
        <span>{item.open ? "Thinking" : "Thought"}</span>
        {!open && <span class="cut meta grow">{line}</span>}
      </button>
      {open && (
        <div class="inside">
          <Text look="thoughts" text={item.text} />
        </div>
      )}
    </div>
  );
}

const Turn = () => (
  <svg
    class="icon turn"
    viewBox="0 0 16 16"
    fill="none"
    stroke="currentColor"
    stroke-width="1.5"
    stroke-linecap="round"
    aria-hidden="true"
  >
    <path d="M6.5 5l3 3-3 3" />
  </svg>
);

function outcome(item: ToolItem, waits: boolean): Outcome {
  if (item.end?.success) return { sign: "check", tone: "good", word: "done" };
  if (item.end) {
    const denied = item.end.governed_outcome === "denied" || item.end.error_code === "governance_denied";
    return denied ? { sign: "cross", tone: "bad", word: "denied" } : { sign: "cross", tone: "bad", word: "failed" };
  }
  if (waits) return { sign: "attention", tone: "wait", word: "waits for an answer" };
  if (item.stopped) return { sign: "stop", tone: "", word: "stopped" };
  if (item.endedLater) return { sign: "right", tone: "", word: "ended later" };
  return { sign: "run", tone: "spin", word: "runs" };
}

const cwd = () => state.peek()?.cwd;

function Tool({ row }: Of<"tool">) {
  const { item, waits, key: id } = row;
  const call = item.call;
  const told = useMemo(() => about(call?.tool ?? "tool", call?.args, cwd()), [call]);
  const open = opened.value.has(id);
  const { sign, tone, word } = outcome(item, waits);
  const lines = told.change && stats(told.change);
  // Of calls that are over, those that failed show why. The output of a shell is what was asked for.
  const tells = word === "runs" || word === "failed" || state.peek()?.provider === "local";
  const preview = tells && item.output !== "";
  const written = useMemo(
    () => (preview && word !== "runs" ? item.output.replace(/\n$/, "").split("\n").length : 0),
    [preview, word, item.output],
  );
  const took = (item.endedAt ?? 0) - (item.startedAt ?? Infinity);
  return (
    <div class="body">
      <button type="button" class="line" aria-expanded={open} onClick={() => toggle(id)}>
        <Icon sign={sign} tone={tone} label={word} />
        <span class="verb">{told.verb}</span>
        <span class="object cut grow">{told.object}</span>
        {lines && (
          <span class="meta">
            <span class="added">+{lines.added}</span> <span class="removed">−{lines.removed}</span>
          </span>
        )}
        {word !== "done" && word !== "runs" && <span class={`meta ${tone}`}>{word}</span>}
        {took >= 100 && <span class="meta">{duration(took)}</span>}
        {word === "runs" && item.startedAt !== undefined && <Elapsed since={item.startedAt} />}
      </button>
      {open ? (
        <ToolDetails row={row} />
      ) : (
        preview && (
          <>
            <Preview text={plain(item.output.slice(-4000))} />
            {written > previewed && (
              <button type="button" class="button quiet whole" onClick={() => toggle(id)}>
                Show all {written} lines
              </button>
            )}
          </>
        )
      )}
    </div>
  );
}

/** Elapsed counts the seconds that a call has run for. */
function Elapsed({ since }: { since: number }) {
  const [now, setNow] = useState(Date.now());
  const then = moment.value?.at;
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.floor(((then ?? now) - since) / 1000);
  return seconds > 0 ? <span class="meta">{seconds < 60 ? `${seconds} s` : duration(1000 * seconds)}</span> : null;
}

function ToolDetails({ row: { item } }: Of<"tool">) {
  const told = useMemo(() => about(item.call?.tool ?? "tool", item.call?.args, cwd()), [item.call]);
  const { text, omitted, readAll } = useOutput(item);
  const written = text();
  const output = told.change && item.end?.success ? withoutChange(written, told.change, told.path) : written;
  return (
    <div class="inside">
      {told.command !== undefined && <Text look="output" text={told.command} exposed />}
      {told.change && <Diff change={told.change} />}
      <Arguments rest={told.rest} />
      {output !== "" && <Text look="output" text={output} label="Output" />}
      <Omitted bytes={omitted} readAll={readAll} />
      {written === "" && item.end && <p class="meta">There was no output.</p>}
    </div>
  );
}

const together = 20; // arguments of a long list that are drawn together

export function Arguments({ rest }: { rest: [string, string][] }) {
  if (rest.length === 0) return null;
  const list = (part: typeof rest) => (
    <dl class="args">
      {part.map(([name, value]) => (
        <>
          <dt>{name.length > 100 ? <Text look="name" text={name} exposed /> : <Exposed text={name} />}</dt>
          <dd tabIndex={value.length > 800 ? 0 : undefined}>
            {name === "path" && value.length <= longestPath ? (
              <PathLink path={value} line={lineOf(rest)} />
            ) : (
              <Text look="value" text={value} exposed />
            )}
          </dd>
        </>
      ))}
    </dl>
  );
  if (rest.length <= 3 * together) return list(rest);
  return (
    <>
      <p class="meta">{plural(rest.length, "argument")}</p>
      <div class="many">
        <Windowed
          count={Math.ceil(rest.length / together)}
          height={(i) => 24 * Math.min(together, rest.length - i * together)}
          part={(i) => list(rest.slice(i * together, (i + 1) * together))}
        />
      </div>
    </>
  );
}

/** lineOf is the first line that a call reads, if its arguments say so. */
function lineOf(rest: [string, string][]): number | undefined {
  const [, value = ""] = rest.find(([name]) => name === "offset" || name === "line") ?? [];
  return /^[1-9]\d{0,6}$/.test(value) ? Number(value) : undefined;
}

function Reads({ row: { items, key: id } }: Of<"reads">) {
  const open = opened.value.has(id);
  const files = useMemo(() => items.map((i) => about(i.call!.tool, i.call!.args, cwd()).object), [items]);
  return (
    <div class="body">
      <button type="button" class="line" aria-expanded={open} onClick={() => toggle(id)}>
        <Icon sign="check" tone="good" label="done" />
        <span class="verb">read</span>
        <span class="object cut grow">{[...new Set(files)].join(", ")}</span>
        <span class="meta">{plural(items.length, "call")}</span>
      </button>
      {open && (
        <div class="inside">
          {items.map((item) => (
            <Tool key={item.key} row={{ key: item.key, kind: "tool", item, waits: false }} />
          ))}
        </div>
      )}
    </div>
  );
}

export const unknownVerdict: Outcome = { sign: "check", tone: "", word: "Ended" };
export const verdicts: Record<string, Outcome> = {
  approved: { sign: "check", tone: "good", word: "Allowed" },
  denied: { sign: "cross", tone: "bad", word: "Denied" },
  answered: { sign: "check", tone: "good", word: "Answered" },
  completed: { sign: "check", tone: "good", word: "Completed" },
  failed: { sign: "cross", tone: "bad", word: "Not answered" },
  retried: { sign: "run", tone: "", word: "Retried" },
  skipped: { sign: "right", tone: "", word: "Skipped" },
  aborted: { sign: "stop", tone: "bad", word: "Aborted" },
  cancelled: { sign: "stop", tone: "", word: "Cancelled" },
};

export const resolvers: Record<string, string> = {
  policy: "a rule",
  runtime: "the agent",
  client: "a client",
  user: "somebody",
};
const stockReasons = ["Approved", "Denied by user"]; // what the server says for an answer without a reason

function Question({ row: { item } }: Of<"question">) {
  const { request, resolved } = item;
  const approval = (request ?? resolved)?.request_type === "approval";
  const what = request && !approval ? `${(request.reason || request.tool).replace(/[.?:]$/, "")}: ` : "";
  if (!resolved) {
    return (
      <div class="body">
        <p class="note">
          <Icon sign="ask" tone="wait" />
          <span>
            {what}
            {item.stopped ? "not answered" : item.endedLater ? "ended later" : "waits for an answer"}
          </span>
        </p>
      </div>
    );
  }
  const { author, reason = "", timestamp } = resolved;
  const { sign, tone, word } = verdicts[resolved.resolution] ?? unknownVerdict;
  const said = author && !stockReasons.includes(reason) && !reason.startsWith("{") ? oneLine(reason) : "";
  const by = author ? (you(author) ? "you" : who(author)) : resolvers[resolved.resolved_by];
  return (
    <div class="body">
      <p class="note">
        <Icon sign={sign} tone={tone} />
        <span>
          {what}
          {word} by {by}, <Time at={timestamp ? Date.parse(timestamp) : item.at} />
          {said && `: ${said}`}
        </span>
      </p>
    </div>
  );
}

function End({ row: { item, earlier } }: Of<"end">) {
  const { usage } = item.end;
  const sum = (of: (end: EndItem["end"]) => number) => [item, ...earlier].reduce((n, i) => n + of(i.end), 0);
  const read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
  const failed = sum((e) => e.tools_summary.calls_failed);
  const calls = failed + sum((e) => e.tools_summary.calls_succeeded);
  const facts = [
    duration(sum((e) => e.duration_ms)),
    usage.total_tokens > 0 && `${count(read)} tokens in, ${count(usage.output_tokens)} out`,
    cost(usage.total_cost_usd),
    calls > 0 && plural(calls, "call") + (failed > 0 ? `, ${failed} failed` : ""),
  ];
  return (
    <div class="body">
      <p class="end meta">
        {facts.filter(Boolean).map((f) => (
          <span>{f}</span>
        ))}
      </p>
    </div>
  );
}

function Note({ item: { event } }: { item: NoteItem }) {
  switch (event.type) {
    case "error": {
      const stopped = event.error_type === "cancelled";
      return (
        <div class="body">
          <p class={`note ${stopped ? "" : "bad"}`}>
            <Icon sign={stopped ? "stop" : "alert"} tone={stopped ? "" : "bad"} />
            <span>
              <Text look="message" text={event.message} />
            </span>
          </p>
        </div>
      );
    }
    case "compaction":
      return (
        <div class="body">
          <details>
            <summary class="note">The agent summarised {count(event.tokens_before)} tokens of the conversation</summary>
            <div class="inside">
              <Text look="thoughts" text={event.summary} />
            </div>
          </details>
        </div>
      );
    case "control_changed":
      return (
        <div class="body">
          <p class="note">
            <Icon sign="people" />
            <span>{moved(event)}</span>
          </p>
        </div>
      );
    default:
      return null;
  }
}

function moved({ from, to, reason }: Extract<NoteItem["event"], { type: "control_changed" }>): string {
  const now = you(to) ? "You drive" : `${who(to)} drives`;
  const before = you(from) ? "you" : who(from);
  return reason === "taken_over" ? `${now} now, taken over from ${before}` : `${now} now, after ${before}`;
}

/** Facts about the agent for the head of the page. */
export function agentName(): string {
  const s = state.value;
  return [s?.model, s?.provider?.replace(/^@[^/]+\//, "")].filter(Boolean).join(" · ");
}
