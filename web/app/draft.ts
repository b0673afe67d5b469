// Sending the prompt that is being written, and what other parts of the page add to it.
import { batch } from "@preact/signals";
import { addDraft, answered, setDraft, setUnsent, unsent } from "./kept";
import { place } from "./lists";
import { settle } from "./rest";
import { control, driving, link, moment, openID, role, session } from "./store";

/** mayWrite reports whether the page shows a composer in which something can be sent. */
export const mayWrite = () =>
  place.value === "session" &&
  link.value.status !== "closed" &&
  !moment.value &&
  role.value === "controller" &&
  (control.value.mine || control.value.holder === null);

/** compose moves the focus to the prompt. */
export function compose(): void {
  document.querySelector<HTMLElement>(".composer textarea")?.focus();
}

/** intoPrompt adds a text to what is being written in a session, and goes there if the session is open. */
export function intoPrompt(text: string, id = openID.peek()): void {
  if (!text || id === null) return;
  addDraft(id, text);
  if (id === openID.peek()) compose();
}

/** send sends what was written in the open session. If the server refuses it, the prompt is being written again. */
export async function send(content: string, when?: "next" | "steer"): Promise<void> {
  const s = session.peek()!;
  const sent = { id: s.id, content };
  setDraft(s.id, "");
  setUnsent([...unsent.peek(), sent]);
  const done = await driving((s) => s.prompt(content, { when }));
  batch(() => answered(sent, done));
  settle(s);
}

/** selectedIn returns in which elements a selected text begins and ends, by their data-row or data-line. */
export function selectedIn(view: HTMLElement, name: "row" | "line"): { from: number; to: number } | undefined {
  const selection = getSelection();
  if (!selection || selection.isCollapsed) return undefined;
  const [from, to] = [selection.anchorNode, selection.focusNode].map((node) => {
    const found = (node instanceof Element ? node : node?.parentElement)?.closest<HTMLElement>(`[data-${name}]`);
    return found && view.contains(found) ? Number(found.dataset[name]) : undefined;
  });
  return from === undefined || to === undefined ? undefined : { from, to };
}
