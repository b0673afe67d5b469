// What stands below the transcript: the composer, or why there is none, and requests for control.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { oneLine } from "./tools";
import { AttachButton, fileEvents } from "./attach";
import { isShell } from "./begin";
import { Choices, useCompletion } from "./complete";
import { send } from "./draft";
import { who } from "./format";
import { Icon } from "./icons";
import { draft, setDraft, unsent } from "./kept";
import { coarse } from "./screen";
import { toEnd } from "./transcript";
import {
  act,
  busy,
  control,
  link,
  openID,
  otherTab,
  ownPrompts,
  people,
  pending,
  refusal,
  role,
} from "./store";

/** Unsent shows the prompts that wait for the connection. */
export function Unsent() {
  const own = unsent.value.filter((p) => p.id === openID.value);
  if (own.length === 0 || link.value.status === "online") return null;
  return (
    <section class="queue" aria-label="Prompts that are not sent yet">
      <ol>
        {own.map(({ content }, i) => (
          <li key={i}>
            <span class="meta">Not sent yet</span>
            <span class="cut grow" title={content}>
              {oneLine(content)}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

export function Composer() {
  const { mine, holder } = control.value;
  // Nothing can be sent; what was being written stays.
  if (link.value.status === "closed" && !draft(openID.value!)) return null;
  if (role.value !== "controller") {
    return (
      <div class="closed">
        <p>
          {role.value === "approver"
            ? "You may watch and answer questions. Your link does not allow prompts."
            : "You are watching. Your link does not allow prompts."}
        </p>
      </div>
    );
  }
  if (!mine && holder !== null) return <Watching />;
  return <Writing key={openID.value} />;
}

function Watching() {
  const { asked, last, holder } = control.value;
  if (otherTab()) {
    return (
      <div class="closed">
        <p role="status">You drive in another tab. This one follows.</p>
        <button type="button" class="button" onClick={() => void act((s) => s.lease.take())}>
          Drive here
        </button>
      </div>
    );
  }
  const name = who(people.value?.controller);
  const why = last?.controller_connection_id === holder ? last?.reason : undefined; // of who drives now
  const denied = why === "denied" ? ` ${name} did not hand over${last?.message ? `: ${last.message}` : "."}` : "";
  const drives = why === "taken_over" ? "has taken over" : "is driving";
  return (
    <div class="closed">
      <p role="status">
        {asked ? `You have asked ${name} for control.` : `${name} ${drives}. You are watching.${denied}`}
      </p>
      {!asked && (
        <button type="button" class="button" onClick={() => void act((s) => s.lease.ask())}>
          Ask for control
        </button>
      )}
      <button type="button" class="button" onClick={() => void act((s) => s.lease.take())}>
        Take over
      </button>
    </div>
  );
}

/** toComposer moves the focus to the prompt, if there is one and this opens no keyboard on the screen. */
export function toComposer(): void {
  if (!coarse.peek()) document.querySelector<HTMLElement>(".composer textarea")?.focus();
}

function Writing() {
  const id = openID.value!;
  const text = draft(id);
  const written = useRef(text); // in this field; if the text is another one, it comes from elsewhere
  const area = useRef<HTMLTextAreaElement>(null);
  const recalled = useRef<{ at: number; text: string } | null>(null); // an earlier prompt that the arrows brought back
  const [caret, setCaret] = useState(text.length);
  const caretAt = useRef<number | null>(null); // where the caret goes after the next drawing
  const running = busy.value;
  const { status } = link.value;
  useLayoutEffect(() => {
    const a = area.current!;
    a.style.height = "auto";
    a.style.height = `${a.scrollHeight}px`;
    if (text !== written.current) setCaret((caretAt.current = text.length));
    written.current = text;
    if (caretAt.current === null) return;
    a.setSelectionRange(caretAt.current, caretAt.current);
    a.scrollTop = a.scrollHeight;
    caretAt.current = null;
  }, [text]);
  useLayoutEffect(() => {
    if (document.activeElement === document.body && !coarse.peek()) area.current!.focus();
  }, []);
  const write = (next: string) => {
    written.current = next;
    setDraft(id, next);
  };
  const place = (next: string, at: number) => {
    caretAt.current = at;
    setCaret(at);
    write(next);
    area.current!.focus();
  };
  const completion = useCompletion(text, caret, place);
  const submit = (when?: "next" | "steer") => {
    const content = text.trim();
    if (!content || status === "closed") return;
    void send(content, when);
    toEnd();
    area.current?.focus();
  };
  const keys = (e: KeyboardEvent) => {
    if (completion?.key(e)) return;
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing && !coarse.peek()) {
      e.preventDefault();
      submit(running ? (e.metaKey || e.ctrlKey ? "steer" : "next") : undefined);
    } else if (e.key === "Escape") area.current?.blur();
    else if ((e.key === "ArrowUp" || e.key === "ArrowDown") && (text === "" || text === recalled.current?.text)) {
      const all = ownPrompts();
      const at = (text === "" ? -1 : (recalled.current?.at ?? -1)) + (e.key === "ArrowUp" ? 1 : -1);
      if (at < -1 || at >= all.length) return;
      e.preventDefault();
      recalled.current = { at, text: all[at] ?? "" };
      write(recalled.current.text);
    }
  };
  const empty = text.trim() === "";
  return (
    <form
      class="composer"
      {...fileEvents}
      onSubmit={(e) => {
        e.preventDefault();
        submit(running ? "next" : undefined);
      }}
    >
      {completion && <Choices of={completion} />}
      <textarea
        ref={area}
        rows={1}
        value={text}
        aria-label="Prompt"
        aria-autocomplete="list"
        aria-controls={completion ? "files-found" : undefined}
        aria-activedescendant={completion ? `file-${completion.at}` : undefined}
        placeholder={running ? "Say what comes next" : isShell() ? "Write a command" : "Ask the agent to do something"}
        onInput={(e) => {
          setCaret(e.currentTarget.selectionStart);
          write(e.currentTarget.value);
        }}
        onSelect={(e) => setCaret(e.currentTarget.selectionStart)}
        onKeyDown={keys}
      />
      <div class="bar">
        <span class="meta grow cut only-wide">
          {status === "closed"
            ? "Not connected: nothing can be sent"
            : status !== "online"
              ? "Sent when the connection is back"
              : running
                ? empty && pending.value[0]?.kind === "approval"
                  ? "Esc, then A allows, D denies"
                  : "Enter queues, Ctrl+Enter steers"
                : "Enter sends, Shift+Enter starts a line"}
        </span>
        <span class="grow only-narrow" />
        <AttachButton />
        {running && (
          <button type="button" class="button" onClick={() => void act((s) => s.interrupt())}>
            <Icon sign="stop" />
            Stop
          </button>
        )}
        {running && !empty && (
          <button type="button" class="button" onClick={() => submit("steer")}>
            Steer
          </button>
        )}
        <button type="submit" class="button primary" disabled={empty || status === "closed"}>
          <Icon sign="send" />
          {running ? "Queue" : "Send"}
        </button>
      </div>
    </form>
  );
}

/** ControlRequests asks the person who drives to hand over control or to keep it. */
export function ControlRequests() {
  return (
    <>
      {control.value.asking.map((a) => (
        <div class="closed" role="group" aria-label="Somebody asks for control" key={a.connection_id}>
          <p role="status">
            <b>{a.author ? who(a.author) : "Somebody"}</b> asks for control
            {a.reason ? `: ${oneLine(a.reason)}` : "."}
          </p>
          <button type="button" class="button" onClick={() => void act((s) => s.lease.deny(a.connection_id))}>
            Keep it
          </button>
          <button type="button" class="button primary" onClick={() => void act((s) => s.lease.grant(a.connection_id))}>
            Hand over
          </button>
        </div>
      ))}
    </>
  );
}

export function Refused() {
  if (!refusal.value) return null;
  return (
    <p class="refused" role="alert">
      <Icon sign="alert" />
      <span class="grow">{refusal.value}</span>
      <button
        type="button"
        class="button quiet square"
        aria-label="Dismiss"
        onClick={() => {
          refusal.value = "";
        }}
      >
        <Icon sign="cross" />
      </button>
    </p>
  );
}
