// What the tab keeps when the page is loaded again: what is being written in each session and in the forms of
// questions, and the prompts that the server has not answered.
import { signal } from "@preact/signals";

const unsentKey = "maestro.unsent";

type Prompt = { id: string; content: string; refused?: boolean };

const most = 200; // texts of a kind; one more drops the one that was changed first

/** keptTexts are texts by name, which the tab keeps with a prefix. */
function keptTexts(prefix: string) {
  const all = signal<ReadonlyMap<string, string>>(
    new Map(
      Object.entries<string>(sessionStorage)
        .filter(([key]) => key.startsWith(prefix))
        .map(([key, text]) => [key.slice(prefix.length), text]),
    ),
  );
  function set(name: string, text: string): void {
    if (text === (all.peek().get(name) ?? "")) return;
    const next = new Map(all.peek());
    next.delete(name);
    if (text) next.set(name, text);
    all.value = next;
    keep(prefix + name, text);
    const [first] = next.keys();
    if (next.size > most) set(first!, "");
  }
  return { get: (name: string) => all.value.get(name) ?? "", names: () => [...all.peek().keys()], set };
}

/** drafts are what is being written, by the id of the session; that without an id begins one. */
const drafts = keptTexts("maestro.draft.");
export const draft = drafts.get;
export const setDraft = drafts.set;

/** forms are what is being written in the forms of questions, in JSON, by the ids of session and question. */
const forms = keptTexts("maestro.form.");
export const form = forms.get;
export const setForm = forms.set;

/** dropForms drops the forms of a session whose questions are not open any more. */
export function dropForms(session: string, open: readonly { id: string }[]): void {
  const names = new Set(open.map(({ id }) => `${session} ${id}`));
  for (const name of forms.names()) {
    if (name.startsWith(`${session} `) && !names.has(name)) setForm(name, "");
  }
}

/** unsent are the prompts of all sessions that the server has not answered. */
export const unsent = signal<readonly Prompt[]>([]);

/** addDraft puts a text below what is being written. */
export function addDraft(id: string, text: string): void {
  setDraft(id, joined(draft(id), text));
}

/** returnPrompt puts a prompt that was not sent above what was written since. */
function returnPrompt({ id, content }: Prompt): void {
  setDraft(id, joined(content, draft(id)));
}

const joined = (first: string, second: string) => `${first && second ? first.replace(/\n*$/, "\n\n") : first}${second}`;

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
