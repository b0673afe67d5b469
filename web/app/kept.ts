// What the tab keeps when the page is loaded again: what is being written in each session, and the prompts that the
// server has not answered.
import { signal } from "@preact/signals";

const draftKey = "maestro.draft.";
const unsentKey = "maestro.unsent";

type Prompt = { id: string; content: string; refused?: boolean };

/** drafts are what is being written, by the id of the session; that without an id begins one. */
const drafts = signal<ReadonlyMap<string, string>>(
  new Map(
    Object.entries<string>(sessionStorage)
      .filter(([key]) => key.startsWith(draftKey))
      .map(([key, text]) => [key.slice(draftKey.length), text]),
  ),
);

/** unsent are the prompts of all sessions that the server has not answered. */
export const unsent = signal<readonly Prompt[]>([]);

export const draft = (id: string) => drafts.value.get(id) ?? "";

export function setDraft(id: string, text: string): void {
  const next = new Map(drafts.peek());
  if (text) next.set(id, text);
  else next.delete(id);
  drafts.value = next;
  keep(draftKey + id, text);
}

/** addDraft puts a text below what is being written. */
export function addDraft(id: string, text: string): void {
  setDraft(id, joined(drafts.peek().get(id), text));
}

/** returnPrompt puts a prompt that was not sent above what was written since. */
function returnPrompt({ id, content }: Prompt): void {
  setDraft(id, joined(content, drafts.peek().get(id)));
}

const joined = (first = "", second = "") => `${first && second ? first.replace(/\n*$/, "\n\n") : first}${second}`;

export function setUnsent(all: readonly Prompt[]): void {
  unsent.value = all;
  keep(unsentKey, all.length > 0 ? JSON.stringify(all) : "");
}

/**
 * answered is called when the server has taken or refused a prompt. Refused ones are written again once none of their
 * session waits, so that they keep their order.
 */
export function answered(prompt: Prompt, taken: boolean): void {
  prompt.refused = !taken;
  const rest = unsent.peek().filter((p) => p !== prompt || !taken);
  const own = rest.filter((p) => p.id === prompt.id);
  if (own.some((p) => !p.refused)) return setUnsent(rest);
  setUnsent(rest.filter((p) => p.id !== prompt.id));
  own.reverse().forEach(returnPrompt);
}

/** keep lets the tab keep a text, if the browser has room for it. The page has it in any case. */
function keep(key: string, text: string): void {
  sessionStorage.removeItem(key);
  if (!text) return;
  try {
    sessionStorage.setItem(key, text);
  } catch {
    // no room
  }
}

// The page before this one did not send these.
const left = JSON.parse(sessionStorage.getItem(unsentKey) ?? "[]") as Prompt[];
sessionStorage.removeItem(unsentKey); // first, because the browser may have no room for both
left.reverse().forEach(returnPrompt);
