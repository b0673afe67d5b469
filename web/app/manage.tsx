// What can be done with sessions in their list: search, rename, archive, delete, and undo.
import { effect, signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { SessionSummary, SessionUpdate } from "../client/index.ts";
import { Icon } from "./icons";
import { address, inWords, leave, openID, server, sessions } from "./store";

const perSearch = 50;

export const search = signal("");
/** what the search has found, archived sessions last; null without a search */
export const found = signal<readonly SessionSummary[] | null>(null);
/** what was done or refused last */
export const notice = signal<{ text: string; undo?: () => Promise<unknown> } | null>(null);
/** the session whose actions are shown */
const acting = signal("");
/** the session whose title is edited, and what was written; its entry is drawn anew when it goes to another section */
export const renaming = signal<{ id: string; draft: string } | null>(null);

let reading = false;
let again = false;

// read asks the server once at a time, and for the last search only.
async function read(): Promise<void> {
  again = true;
  if (reading) return;
  reading = true;
  while (again) {
    again = false;
    const q = search.peek().trim();
    if (q === "") {
      found.value = null;
      continue;
    }
    await attempt(async () => {
      const pages = await Promise.all(
        [false, true].map((archived) => server.overview({ q, archived, limit: perSearch })),
      );
      if (!again) found.value = pages.flatMap((p) => p.sessions);
    });
  }
  reading = false;
}
effect(() => {
  if (search.value !== undefined) void read();
});

// attempt does something and shows why it was refused.
async function attempt(what: () => Promise<unknown>): Promise<boolean> {
  try {
    await what();
    return true;
  } catch (err) {
    notice.value = { text: inWords(err) };
    return false;
  }
}

async function update(id: string, change: SessionUpdate): Promise<boolean> {
  return attempt(async () => {
    await server.update(id, change);
    await read();
  });
}

// putAway takes a session out of the list. The page goes to the next one if it was open, and undo comes back to it.
async function putAway(s: SessionSummary, done: string, away: () => Promise<unknown>, back: () => Promise<unknown>) {
  const open = openID.peek() === s.session_id;
  if (open) leave(sessions.peek().find((other) => other.session_id !== s.session_id)?.session_id);
  if (!(await attempt(away))) return; // somebody may be writing in the next one
  void read();
  notice.value = {
    text: `${done} “${s.title || "New session"}”.`,
    undo: () =>
      attempt(async () => {
        await back();
        void read();
        if (open) location.hash = address(s.session_id);
      }),
  };
}

const archive = (s: SessionSummary) =>
  putAway(
    s,
    "Archived",
    () => server.update(s.session_id, { archived: true }),
    () => server.update(s.session_id, { archived: false }),
  );

const remove = (s: SessionSummary) =>
  putAway(
    s,
    "Deleted",
    () => server.remove(s.session_id),
    () => server.restore(s.session_id),
  );

export function Search() {
  return (
    <input
      class="field"
      type="search"
      placeholder="Search sessions"
      aria-label="Search sessions"
      value={search.value}
      onInput={(e) => {
        search.value = e.currentTarget.value;
      }}
      onKeyDown={(e) => {
        if (e.key !== "Escape") return;
        search.value = "";
        e.currentTarget.blur();
      }}
    />
  );
}

/** More has the actions on one session; they open below its entry. */
export function More({ session: s, title }: { session: SessionSummary; title: string }) {
  const id = s.session_id;
  const open = acting.value === id;
  const choose = (what: () => unknown) => () => {
    acting.value = "";
    what();
  };
  const leave = (e: KeyboardEvent & { currentTarget: HTMLElement }) => {
    if (!open || e.key !== "Escape") return;
    e.stopPropagation(); // Escape also closes the list of a phone
    acting.value = "";
    e.currentTarget.parentElement!.querySelector<HTMLElement>(".more")!.focus();
  };
  return (
    <>
      <button
        type="button"
        class="button quiet square more"
        aria-label={`Actions for ${title}`}
        aria-expanded={open}
        onKeyDown={leave}
        onClick={() => {
          acting.value = open ? "" : id;
        }}
      >
        <Icon sign="more" />
      </button>
      {open && (
        <div class="acts" role="group" aria-label={`Actions for ${title}`} onKeyDown={leave}>
          <button
            type="button"
            class="button"
            onClick={choose(() => {
              renaming.value = { id, draft: s.title };
            })}
          >
            Rename
          </button>
          {s.archived ? (
            <button type="button" class="button" onClick={choose(() => update(id, { archived: false }))}>
              Unarchive
            </button>
          ) : (
            <button type="button" class="button" onClick={choose(() => archive(s))}>
              Archive
            </button>
          )}
          <button type="button" class="button danger" onClick={choose(() => remove(s))}>
            Delete
          </button>
        </div>
      )}
    </>
  );
}

export function Rename({ session: s }: { session: SessionSummary }) {
  const edited = renaming.peek()!;
  const done = (title: string) => {
    renaming.value = null;
    if (title !== s.title) void update(s.session_id, { title });
  };
  return (
    <TitleField
      class="field"
      title={s.title}
      draft={edited.draft}
      write={(draft) => {
        edited.draft = draft;
      }}
      done={done}
    />
  );
}

interface TitleProps {
  class: string;
  title: string;
  draft?: string;
  write?: (draft: string) => void;
  done: (title: string) => void;
}

/** TitleField edits a title. Enter and leaving the field are done with it, Escape keeps the title. */
export function TitleField({ class: look, title, draft = title, write, done }: TitleProps) {
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current!.setSelectionRange(draft === title ? 0 : draft.length, draft.length), []);
  useLayoutEffect(() => field.current!.focus()); // an entry that moves in the list loses the focus
  return (
    <input
      class={look}
      aria-label="Title"
      ref={field}
      defaultValue={draft}
      maxLength={200}
      onInput={(e) => write?.(e.currentTarget.value)}
      onBlur={() =>
        queueMicrotask(() => {
          const left = field.current; // null: the field was removed
          if (left && left !== document.activeElement) done(left.value.trim());
        })
      }
      onKeyDown={(e) => {
        if (e.key === "Enter") done(e.currentTarget.value.trim());
        else if (e.key === "Escape") done(title);
        else return;
        e.stopPropagation(); // Escape also closes the list of a phone
      }}
    />
  );
}

export function Notice() {
  const n = notice.value;
  return (
    <div role="status" class={n ? "notice" : ""}>
      {n && (
        <>
          <span class="grow">{n.text}</span>
          {n.undo && (
            <button
              type="button"
              class="button"
              onClick={() => {
                notice.value = null;
                void n.undo!();
              }}
            >
              Undo
            </button>
          )}
          <button
            type="button"
            class="button quiet square"
            aria-label="Dismiss"
            onClick={() => {
              notice.value = null;
            }}
          >
            <Icon sign="cross" />
          </button>
        </>
      )}
    </div>
  );
}
