// The inbox: the open questions of all sessions, each answered where it stands.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { InboxQuestion, PendingRequest, Session } from "../client/index.ts";
import { Exposed } from "./long";
import { ago, clock, exact, plural, who } from "./format";
import { Icon } from "./icons";
import {
  answerFromInbox,
  closed,
  inbox,
  keyOf,
  linked,
  look,
  moreQuestions,
  questions,
  type Closed,
  type Named,
} from "./lists";
import { ListConnection } from "./head";
import { forPage } from "./keys";
import { Asking, Sheet } from "./question";
import { resolvers, unknownVerdict, verdicts } from "./row";
import { address, now, role } from "./store";
import { about } from "./tools";

/** Top is the head of a part of the page that is not a session. */
export function Top({
  title,
  list,
  children,
}: {
  title: string;
  list: () => void;
  children?: preact.ComponentChildren;
}) {
  return (
    <>
    <header class="head">
      <button type="button" class="button quiet square" aria-label="Sessions" aria-controls="sessions" onClick={list}>
        <Icon sign="menu" />
      </button>
      <h1 class="grow cut">{title}</h1>
      {children}
    </header>
    <ListConnection />
    </>
  );
}

export function Inbox({ list }: { list: () => void }) {
  const all = questions.value;
  const [open, setOpen] = useState("");
  const link = linked.value;
  const listed = link !== null && all.some((q) => keyOf(q) === keyOf(link));
  const [unlisted, setUnlisted] = useState(""); // the linked question that the list did not have
  useLayoutEffect(() => setOpen(link ? keyOf(link) : ""), [link]);
  useEffect(() => {
    if (link && inbox.value === "online" && !listed && !closed.peek().some((c) => keyOf(c.ending) === keyOf(link))) {
      setUnlisted(keyOf(link));
    }
  }, [link, inbox.value]);
  // A question that leaves the list takes the focus along. The next one gets it.
  const at = useRef(0);
  useLayoutEffect(() => {
    const now = all.findIndex((q) => keyOf(q) === open);
    if (now >= 0) at.current = now;
    else if (open !== "" && document.activeElement === document.body) {
      document.querySelectorAll<HTMLElement>(".entry > button")[Math.min(at.current, all.length - 1)]?.focus();
    }
  }, [all, open]);
  useLayoutEffect(() => {
    const keys = (e: KeyboardEvent) => {
      if (!forPage(e) || (e.key !== "j" && e.key !== "k")) return;
      const heads = [...document.querySelectorAll<HTMLElement>(".entry > button")];
      const at = heads.indexOf(document.activeElement as HTMLElement);
      heads[Math.max(0, Math.min(heads.length - 1, at + (e.key === "j" ? 1 : -1)))]?.focus();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  return (
    <>
      <Top title="Inbox" list={list}>
        <span class="meta">{all.length > 0 ? `${plural(all.length, "question")} open` : ""}</span>
      </Top>
      <div class="inbox" tabIndex={-1}>
        <div class="entries">
          {link && unlisted === keyOf(link) && !listed && <Linked key={unlisted} question={link} />}
          {all.map((q) => {
            const key = keyOf(q);
            return <Entry key={key} question={q} open={open === key} toggle={() => setOpen(open === key ? "" : key)} />;
          })}
          {moreQuestions.value && <p class="meta">There are more. They appear when these are answered.</p>}
          {all.length === 0 && <Nothing />}
          {closed.value.length > 0 && (
            <section aria-label="Answered" class="ended">
              <h2 class="meta">Answered</h2>
              <ul>
                {closed.value.map((c) => (
                  <li key={keyOf(c.ending)}>
                    <Ended of={c} />
                  </li>
                ))}
              </ul>
            </section>
          )}
        </div>
      </div>
    </>
  );
}

function Nothing() {
  if (role.value === "viewer") return <p class="rest">Your link lets you watch. It shows no questions.</p>;
  switch (inbox.value) {
    case "online":
      return (
        <div class="rest">
          <Icon sign="check" tone="good" />
          <h2>Nothing needs you</h2>
          <p>Questions of all sessions appear here as soon as an agent asks.</p>
        </div>
      );
    case "closed":
      return <p class="rest">The inbox is not available with your login.</p>;
    default:
      return <p class="rest">Reconnecting…</p>;
  }
}

// beginning says what a question is about, before it is opened.
export function beginning(q: InboxQuestion): { asks: string; code?: string } {
  switch (q.request_type) {
    case "user_input":
    case "mcp_elicitation":
      return { asks: q.reason || q.description || "The agent asks" };
    case "tool_retry":
      return { asks: `${q.tool} failed. Try again?`, code: q.display };
  }
  const args = q.display.slice(q.tool.length + 1);
  try {
    const { command, change } = about(q.tool, JSON.parse(args));
    if (command !== undefined) return { asks: "Wants to run a command", code: command };
    if (change) return { asks: `Wants to change ${change.path || "a file"}` };
  } catch {
    // the display is only the beginning of the arguments
  }
  return { asks: `Wants to use ${q.tool}`, code: args };
}

function Entry({ question: q, open, toggle }: { question: InboxQuestion; open: boolean; toggle: () => void }) {
  const at = Date.parse(q.asked_at);
  const { asks, code } = useMemo(() => beginning(q), [q]);
  const ends = q.expires_at ? Date.parse(q.expires_at) : undefined;
  const article = useRef<HTMLElement>(null);
  useEffect(() => {
    if (linked.value && keyOf(linked.value) === keyOf(q)) article.current?.scrollIntoView({ block: "nearest" });
  }, [linked.value]);
  return (
    <article ref={article} class="entry" aria-label={`${asks}, ${q.session_title || "New session"}`}>
      <button type="button" aria-expanded={open} onClick={toggle}>
        <Icon sign={q.request_type === "user_input" || q.request_type === "mcp_elicitation" ? "ask" : "attention"} />
        <span class="title cut">{q.session_title || "New session"}</span>
        <time class="meta" dateTime={q.asked_at} title={exact(at)}>
          {ago(at, now.value)}
        </time>
        <span class="asks">
          <Exposed text={asks} />
          {(q.votes_needed ?? 0) > 1 && ` · ${q.votes ?? 0} of ${q.votes_needed} have allowed it`}
          {ends !== undefined && ` · ends ${clock(ends)}`}
        </span>
        {!open && code && (
          <code class="display">
            <Exposed text={code} />
          </code>
        )}
      </button>
      {open && <Whole question={q} />}
    </article>
  );
}

// Linked is the question of a link if the list does not have it: the list is cut, or the question has ended. The page
// looks into its session.
function Linked({ question: q }: { question: Named }) {
  const session = useLook(q.session_id);
  const [seen, setSeen] = useState(false);
  const known = session && session.link.status === "online" && session.cursor > 0;
  const open = known && session.state.pending_requests.some((r) => r.id === q.request_id);
  useEffect(() => {
    if (open) setSeen(true);
  }, [open]);
  if (open) {
    return (
      <article class="entry" aria-label="The question of this link">
        <Whole question={q} />
      </article>
    );
  }
  const gone = session?.link.status === "closed";
  return (
    <p class="meta" role="status">
      {gone
        ? `The question of this link cannot be read: ${session.link.why?.message ?? "its session is closed"}.`
        : !known
          ? "Looking for the question of this link…"
          : seen
            ? "The question of this link is answered."
            : "The question of this link is not open any more."}{" "}
      {known && <a href={address(q.session_id)}>Open session</a>}
    </p>
  );
}

/** useLook watches a session as long as a component is drawn. */
function useLook(id: string): Session | undefined {
  const [session, setSession] = useState<Session>();
  const [, changed] = useState(0);
  useEffect(() => {
    const made = look(id);
    made.on(() => changed((n) => n + 1));
    setSession(made);
    return () => made.close();
  }, [id]);
  return session;
}

// Whole is the question as its session shows it. The inbox has only the beginning of a long question, so the page
// watches the session while the question is open here.
function Whole({ question: q }: { question: Named }) {
  const session = useLook(q.session_id);
  const [refused, setRefused] = useState("");
  const asking = useMemo(
    () => ({
      id: () => q.session_id,
      state: () => session?.state ?? null,
      online: () => session?.link.status === "online",
      async answer(_: string, digest: string | undefined, reply: Parameters<typeof answerFromInbox>[2]) {
        const why = await answerFromInbox(q, digest, reply);
        setRefused(why);
        return why === "";
      },
    }),
    [session, q],
  );
  const request: PendingRequest | undefined = session?.state.pending_requests.find((r) => r.id === q.request_id);
  const shown = session?.state.people?.requests.find((r) => r.request_id === q.request_id);
  return (
    <Asking.Provider value={asking}>
      {request ? (
        <Sheet request={request} shown={shown}>
          <a class="meta" href={address(q.session_id)}>
            Open session
          </a>
        </Sheet>
      ) : (
        <p class="meta" role="status">
          {session?.link.status === "closed"
            ? `The question cannot be read: ${session.link.why?.message ?? "its session is closed"}`
            : "Reading the question…"}
        </p>
      )}
      {refused && (
        <p class="refused" role="alert">
          <Icon sign="alert" /> {refused}
        </p>
      )}
    </Asking.Provider>
  );
}

function Ended({ of: { question, ending, at, yours } }: { of: Closed }) {
  const { sign, tone, word } = verdicts[ending.resolution ?? ""] ?? unknownVerdict;
  const by = yours ? "you" : ending.author ? who(ending.author) : resolvers[ending.resolved_by ?? "runtime"];
  return (
    <a class="line" href={address(question.session_id)}>
      <Icon sign={sign} tone={tone} />
      <span>
        {ending.resolution ? `${word} by ${by}` : "The session is gone"}, {clock(at)}
      </span>
      <span class="cut grow meta">
        {question.tool} in {question.session_title || "New session"}
      </span>
    </a>
  );
}
