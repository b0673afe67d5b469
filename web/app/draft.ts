// What other parts of the page add to the prompt that is being written.
import { signal } from "@preact/signals";
import { control, moment, role } from "./store";

/** A text for the composer, which takes it and empties the signal. */
export const quoted = signal("");

/** mayWrite reports whether the page shows a composer. */
export const mayWrite = () =>
  !moment.value && role.value === "controller" && (control.value.mine || control.value.holder === null);

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
