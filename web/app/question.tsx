// The open question, pinned above the composer: all of what will run, and the answers to it.
import { createContext } from "preact";
import { useContext, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Answer, PendingRequest, ShownRecord, State } from "../client/index.ts";
import { toComposer } from "./composer";
import { Diff } from "./diff";
import { Choices, content, Fields, fieldsOf, initialValues, wrong, type Values } from "./form";
import { plural, who } from "./format";
import { Icon } from "./icons";
import { form, setForm } from "./kept";
import { forPage, ifAlone, typing, useSeen } from "./keys";
import { Exposed, Label, Text, Windowed } from "./long";
import { Arguments } from "./row";
import { announce, answer, link, moment, openID, pending, people, role, state } from "./store";
import { about, adds, json, longestPath, oneLine } from "./tools";

/** Asking is the session of a question and the way of an answer to it. By default it is the open session. */
export const Asking = createContext({
  id: () => openID.value,
  state: (): Readonly<State> | null => state.value,
  online: () => link.value.status === "online",
  answer,
});

/** useForm returns what is written in the form of a question. It outlives the form, until the question ends. */
function useForm<T extends object>(request: PendingRequest, initial: () => T): [T, (change: Partial<T>) => void] {
  const name = `${useContext(Asking).id()} ${request.id}`;
  const text = form(name);
  const written = useMemo((): T => ({ ...initial(), ...(text && JSON.parse(text)) }), [request, text]);
  return [written, (change) => setForm(name, JSON.stringify({ ...written, ...change }))];
}

/** mayAnswer says whether this page can answer, and why not. */
function mayAnswer(kind: string): { can: boolean; why: string } {
  if (moment.value) return { can: false, why: "This question was open then. It cannot be answered here." };
  if (role.value === "viewer") return { can: false, why: "You are watching. Your link does not allow answers." };
  if (role.value === "approver") {
    return kind === "approval" || kind === "user_input"
      ? { can: true, why: "" }
      : { can: false, why: "Only the person who drives can answer this." };
  }
  return { can: true, why: "" };
}

export function Questions() {
  const all = pending.value;
  const [id, setID] = useState(""); // of the question that is shown; others come and go before it
  const place = useRef(0); // of that question in the list, for when it is gone
  const held = all.findIndex((r) => r.id === id);
  const index = held >= 0 ? held : Math.min(place.current, all.length - 1);
  const one = all[index];
  useLayoutEffect(() => {
    place.current = Math.max(index, 0);
    setID(one?.id ?? "");
  });
  const first = all[0]?.id;
  useEffect(() => {
    if (first && !moment.peek()) announce("The agent asks a question.");
  }, [first]);
  if (!one) return null;
  return (
    <Sheet key={one.id} request={one} shown={people.value?.requests.find((r) => r.request_id === one.id)}>
      {all.length > 1 && (
        <span class="meta steps">
          <button
            type="button"
            class="button quiet square"
            aria-label="Previous question"
            disabled={index === 0}
            onClick={() => setID(all[index - 1]!.id)}
          >
            <Icon sign="left" />
          </button>
          {index + 1} of {all.length}
          <button
            type="button"
            class="button quiet square"
            aria-label="Next question"
            disabled={index === all.length - 1}
            onClick={() => setID(all[index + 1]!.id)}
          >
            <Icon sign="right" />
          </button>
        </span>
      )}
    </Sheet>
  );
}

type SheetProps = { request: PendingRequest; shown: ShownRecord | undefined; children: preact.ComponentChildren };
type Send = (reply: Answer) => void;

export function Sheet({ request, shown, children }: SheetProps) {
  const asking = useContext(Asking);
  const title = useId();
  const [sent, setSent] = useState(false);
  const { can, why } = mayAnswer(request.kind);
  const online = asking.online();
  const seen = useSeen(request.id);
  const ready = can && online && seen && !sent;
  const sheet = useRef<HTMLElement>(null);
  const send: Send = (reply) => {
    if (!ready) return;
    // The focus would be lost with the question. A key acts late, when the question may have left the page.
    if (sheet.current?.contains(document.activeElement)) toComposer();
    setSent(true);
    void asking.answer(request.id, shown?.digest, reply).then((done) => {
      if (!done) setSent(false);
    });
  };
  const Body = bodies[request.kind] ?? Approval;
  return (
    <section class="question" role="group" aria-labelledby={title} data-question={request.kind} ref={sheet}>
      <div class="ask">
        <Icon
          sign={request.kind === "user_input" || request.kind === "mcp_elicitation" ? "ask" : "attention"}
          label="Waiting"
        />
        <div class="grow">
          <h2 id={title}>
            <Exposed text={headline(request, asking.state()?.cwd)} />
          </h2>
          <p class="meta">{facts(request, asking.state()?.cwd).join(" · ")}</p>
        </div>
        {children}
      </div>
      <Body request={request} shown={shown} can={can} ready={ready} send={send} />
      {!(can && online) && <p class="meta">{why || "You can answer when the connection is back."}</p>}
    </section>
  );
}

function headline(r: PendingRequest, cwd: string | null | undefined): string {
  const args = r.args as Record<string, unknown> | null;
  switch (r.kind) {
    case "user_input": {
      const asked = questionsOf(r);
      if (asked.length > 1) return `The agent has ${asked.length} questions`;
      return asked[0] && isShort(asked[0].question) ? asked[0].question : "The agent has a question";
    }
    case "mcp_elicitation":
      return `${oneLine(String(args?.serverName ?? r.tool))} asks for details`;
    case "tool_retry":
      return `${oneLine(r.tool)} failed. Try again?`;
  }
  const told = about(r.tool, r.args, cwd);
  if (told.command !== undefined) return "The agent wants to run a command";
  if (told.change) return `The agent wants to change ${isShort(told.change.path) ? told.change.path : "a file"}`;
  return `The agent wants to use ${oneLine(r.tool)}`;
}

const isShort = (text: string) => text !== "" && text.length <= longestPath;

function facts(r: PendingRequest, cwd: string | null | undefined): string[] {
  const told = about(r.tool, r.args, cwd);
  const said = [r.tool, told.path, told.object, told.command ?? ""];
  const news = (text: string) =>
    ![told.command, told.path, told.object].some((o) => names(text, o)) && adds(text, said);
  const labels = [r.display_name ?? r.tool, r.action_description]
    .filter((l, i): l is string => !!l && (i === 0 || news(l)))
    .map(oneLine);
  const own = told.rest.some(([name]) => name === "cwd"); // shown with the other arguments
  return [...new Set(labels), cwd && !own ? `in ${cwd}` : ""].filter(Boolean);
}

// names reports whether a text only names the object of a call, such as "ls" or "Running ls".
function names(text: string, object: string | undefined): boolean {
  return !!object && text.endsWith(object) && /^(\w+ )?$/.test(text.slice(0, -object.length));
}

type BodyProps = {
  request: PendingRequest;
  shown: ShownRecord | undefined;
  can: boolean;
  ready: boolean; // the question was seen, the connection is there, and no answer is on its way
  send: Send;
};

const bodies: Partial<Record<string, (p: BodyProps) => preact.JSX.Element>> = {
  approval: Approval,
  user_input: UserInput,
  mcp_elicitation: Elicitation,
  tool_retry: Retry,
};

/** All of a request: nothing is left out, and nothing is hidden. */
function Whole({ tool, args, shown }: { tool: string; args: unknown; shown: ShownRecord | undefined }) {
  const { state } = useContext(Asking);
  const told = useMemo(() => about(tool, args, state()?.cwd), [tool, args]);
  return (
    <div class="what" tabIndex={0} role="region" aria-label="What will run">
      {shown?.escaped && <p class="bad">There are hidden characters in it. They are shown with their numbers.</p>}
      {shown?.truncated && isCut(args) && (
        <p class="bad">The request is too long to be shown whole. This is its beginning.</p>
      )}
      {told.command !== undefined && <Text look="runs" text={told.command} exposed />}
      {told.change && <Diff change={told.change} />}
      <Arguments rest={told.rest} />
    </div>
  );
}

// isCut reports whether the server replaced the arguments by their beginning.
function isCut(args: unknown): boolean {
  return typeof args === "object" && args !== null && (args as { truncated?: unknown }).truncated === true;
}

const remembering = new Set(["anthropic", "openai", "openai-chat"]); // providers whose agent keeps answers of a session
const ownTools = new Set(["bash", "read", "write", "edit", "glob", "grep"]);

function Approval({ request, shown, can, ready, send }: BodyProps) {
  const [{ note }, write] = useForm(request, () => ({ note: "" }));
  const group = useRef<HTMLDivElement>(null);
  const options = useMemo(() => about(request.tool, request.args).options, [request]);
  const lasting = options.filter((o) => o.kind.endsWith("_always"));
  const provider = useContext(Asking).state()?.provider ?? "";
  const remembers = options.length === 0 && remembering.has(provider) && ownTools.has(request.tool);
  const allow = () => send({ approved: true });
  const deny = () => send(note.trim() ? { approved: false, reason: note.trim() } : { approved: false });
  useLayoutEffect(() => {
    if (!can) return;
    const keys = (e: KeyboardEvent) => {
      if (!forPage(e)) return;
      if (e.key === "a") ifAlone(allow);
      else if (e.key === "d") ifAlone(deny);
      else return;
      e.preventDefault();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  });
  const arrows = (e: KeyboardEvent) => {
    if (e.key !== "ArrowLeft" && e.key !== "ArrowRight") return;
    if (typing(e.target)) return;
    const [first, second] = group.current!.querySelectorAll<HTMLButtonElement>("button.verdict");
    (e.key === "ArrowLeft" ? first : second)?.focus();
  };
  const votes = shown?.votes ?? [];
  return (
    <>
      <Whole tool={request.tool} args={request.args} shown={shown} />
      {shown?.votes_needed !== undefined && shown.votes_needed > 1 && (
        <p class="meta">
          {plural(shown.votes_needed, "person", "people")} must allow it.{" "}
          {votes.length > 0 ? `Allowed by ${votes.map(who).join(", ")} so far.` : "Nobody has yet."}
        </p>
      )}
      {can && (
        <div class="answers" ref={group} onKeyDown={arrows}>
          <input
            class="field"
            value={note}
            placeholder="Reason, if you deny"
            aria-label="Reason, sent to the agent if you deny"
            onInput={(e) => write({ note: e.currentTarget.value })}
          />
          <button
            type="button"
            class={`button verdict ${note.trim() ? "primary" : ""}`}
            disabled={!ready}
            onClick={deny}
          >
            Deny{" "}
            <kbd class="only-wide" aria-hidden="true">
              D
            </kbd>
          </button>
          <button
            type="button"
            class={`button verdict ${note.trim() ? "" : "primary"}`}
            disabled={!ready}
            onClick={allow}
          >
            Allow{" "}
            <kbd class="only-wide" aria-hidden="true">
              A
            </kbd>
          </button>
        </div>
      )}
      {can && (remembers || lasting.length > 0) && (
        <details>
          <summary>More answers</summary>
          <div class="kept">
            {remembers && (
              <button
                type="button"
                class="button"
                disabled={!ready}
                onClick={() => send({ approved: true, reason: JSON.stringify({ remember: "session" }) })}
              >
                Allow this in the whole session
              </button>
            )}
            {lasting.slice(0, mostOptions).map((o) => (
              <button
                type="button"
                class="button"
                disabled={!ready}
                onClick={() =>
                  send({ approved: o.kind.startsWith("allow"), reason: JSON.stringify({ option_id: o.id }) })
                }
              >
                <Exposed text={oneLine(o.name || o.id)} />
              </button>
            ))}
            {lasting.length > mostOptions && <p class="meta">The agent offers more answers than are shown.</p>}
          </div>
        </details>
      )}
    </>
  );
}

const mostOptions = 20; // lasting answers of one approval

type Asked = {
  header: string;
  question: string;
  options: { label: string; description?: string }[];
  multiSelect: boolean;
};

function questionsOf(r: PendingRequest): Asked[] {
  const list = (r.args as { questions?: unknown } | null)?.questions;
  if (!Array.isArray(list)) return [];
  return list
    .filter((q) => typeof q === "object" && q !== null)
    .map((q) => ({
      header: String(q.header ?? ""),
      question: String(q.question ?? ""),
      multiSelect: q.multiSelect === true,
      options: Array.isArray(q.options)
        ? q.options.filter((o: unknown) => typeof (o as { label?: unknown })?.label === "string")
        : [],
    }));
}

const noAnswer = "The user did not answer.";

function UserInput({ request, can, ready, send }: BodyProps) {
  const asked = useMemo(() => questionsOf(request), [request]);
  const parts = asked.length > 0 ? asked : [{ header: "Answer", question: "", options: [], multiSelect: false }];
  type Written = { chosen: Record<number, string[]>; typed: Record<number, string> };
  const [{ chosen, typed }, write] = useForm<Written>(request, () => ({ chosen: {}, typed: {} }));
  const answers = parts.map((_, i) => [...(chosen[i] ?? []), typed[i]?.trim()].filter(Boolean).join(", "));
  const submit = (e: Event) => {
    e.preventDefault();
    const text = answers.length === 1 ? answers[0]! : answers.map((a, i) => `${parts[i]!.header}: ${a}`).join("\n");
    send({ content: [{ type: "text", text }] });
  };
  const part = (i: number) => {
    const p = parts[i]!;
    const title = p.question || p.header;
    return (
      <fieldset disabled={!can}>
        <legend class={asked.length > 1 || !isShort(title) ? "" : "unseen"}>
          <Label text={title} />
        </legend>
        <Choices
          name={`${request.id}-${i}`}
          many={p.multiSelect}
          chosen={chosen[i] ?? []}
          choices={p.options.map((o) => ({ value: o.label, title: o.label, hint: o.description }))}
          set={(c) => write({ chosen: { ...chosen, [i]: c } })}
        />
        <input
          class="field"
          value={typed[i] ?? ""}
          placeholder={p.options.length > 0 ? "Something else" : "Answer"}
          aria-label={p.options.length > 0 ? "Something else" : oneLine(p.question) || "Answer"}
          onInput={(e) => {
            write({
              typed: { ...typed, [i]: e.currentTarget.value },
              chosen: p.multiSelect ? chosen : { ...chosen, [i]: [] },
            });
          }}
        />
      </fieldset>
    );
  };
  return (
    <form class="form" onSubmit={submit}>
      <div class="what">
        {asked.length === 0 && <Text look="runs" text={json(request.args)} exposed />}
        <Windowed few={20} count={parts.length} height={() => 120} part={part} />
      </div>
      {can && (
        <div class="answers">
          <span class="grow" />
          <button
            type="button"
            class="button"
            disabled={!ready}
            onClick={() => send({ content: [{ type: "text", text: noAnswer }], failed: true })}
          >
            Do not answer
          </button>
          <button type="submit" class="button primary" disabled={!ready || answers.some((a) => a === "")}>
            Send answer
          </button>
        </div>
      )}
    </form>
  );
}

function Elicitation({ request, can, ready, send }: BodyProps) {
  const args = request.args as { message?: string; url?: string; requestedSchema?: unknown } | null;
  const fields = useMemo(() => fieldsOf(args?.requestedSchema), [args]);
  type Written = { values: Values; raw: string };
  const [{ values, raw }, write] = useForm<Written>(request, () => ({
    values: initialValues(fields ?? []),
    raw: "{}",
  }));
  const [errors, setErrors] = useState<Record<string, string>>({});
  const go = useRef<(i: number) => void>(undefined);
  const reply = (action: string, more: object = {}) =>
    send({ content: [{ type: "text", text: JSON.stringify({ action, ...more }) }] });
  const submit = (e: Event) => {
    e.preventDefault();
    if (args?.url) return reply("accept");
    if (!fields) {
      try {
        return reply("accept", { content: JSON.parse(raw) });
      } catch {
        return setErrors({ raw: "Want a JSON object." });
      }
    }
    const found = Object.fromEntries(fields.map((f) => [f.name, wrong(f, values[f.name])]).filter(([, w]) => w));
    setErrors(found);
    const first = fields.findIndex((f) => found[f.name]);
    if (first >= 0) go.current?.(first);
    else reply("accept", { content: content(fields, values) });
  };
  const link = args?.url && /^https?:\/\//i.test(args.url) ? args.url : undefined;
  return (
    <form class="form" onSubmit={submit} noValidate>
      <div class="what">
        {args?.message && <Text look="said" text={args.message} exposed />}
        {args?.url &&
          (link && isShort(link) ? (
            <pre class="runs">
              <a href={link} target="_blank" rel="noopener noreferrer">
                <Exposed text={link} />
              </a>
            </pre>
          ) : (
            <Text look="runs" text={args.url} exposed />
          ))}
        {fields ? (
          <fieldset class="form" disabled={!can}>
            <Fields fields={fields} values={values} errors={errors} change={(values) => write({ values })} go={go} />
          </fieldset>
        ) : (
          !args?.url && (
            <fieldset disabled={!can}>
              <Text look="runs" text={json(args?.requestedSchema ?? request.args)} exposed />
              <label class="label" for={`raw-${request.id}`}>
                Answer as JSON
              </label>
              <textarea
                class="field mono"
                id={`raw-${request.id}`}
                rows={4}
                value={raw}
                onInput={(e) => write({ raw: e.currentTarget.value })}
              />
              {errors.raw && <span class="wrong">{errors.raw}</span>}
            </fieldset>
          )
        )}
      </div>
      {can && (
        <div class="answers">
          <button type="button" class="button quiet" disabled={!ready} onClick={() => reply("cancel")}>
            Cancel
          </button>
          <span class="grow" />
          <button type="button" class="button" disabled={!ready} onClick={() => reply("decline")}>
            Decline
          </button>
          <button type="submit" class="button primary" disabled={!ready}>
            {args?.url ? "I have done it" : "Send"}
          </button>
        </div>
      )}
    </form>
  );
}

function Retry({ request, shown, can, ready, send }: BodyProps) {
  const args = request.args as { args?: unknown; error_message?: string; attempt?: number } | null;
  return (
    <>
      <div class="what" tabIndex={0} role="region" aria-label="What failed">
        {args?.error_message && <Text look="runs bad" text={args.error_message} exposed />}
      </div>
      <Whole tool={request.tool} args={args?.args ?? request.args} shown={shown} />
      {can && (
        <div class="answers">
          <span class="grow meta">{args?.attempt ? `Attempt ${args.attempt} failed.` : ""}</span>
          <button type="button" class="button danger" disabled={!ready} onClick={() => send({ retry: "abort" })}>
            Abort
          </button>
          <button type="button" class="button" disabled={!ready} onClick={() => send({ retry: "skip" })}>
            Skip
          </button>
          <button type="button" class="button primary" disabled={!ready} onClick={() => send({ retry: "retry" })}>
            Retry
          </button>
        </div>
      )}
    </>
  );
}
