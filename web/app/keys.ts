// Keys that act without a field. Somebody who writes while no field has the focus must not
// thereby allow a command or leave the session: a key with such an effect counts only alone.
import { useEffect, useState } from "preact/hooks";

const alone = 250; // ms before and after the key without another one

let last = -Infinity; // when a key was pressed before the present one
let now = -Infinity;
let waiting: ReturnType<typeof setTimeout> | undefined;

addEventListener(
  "keydown",
  (e) => {
    clearTimeout(waiting);
    last = now;
    now = e.key.length === 1 ? e.timeStamp : -Infinity; // after Escape or Enter something new begins
  },
  { capture: true },
);

/** ifAlone acts unless another key comes soon before or after the one that is handled. */
export function ifAlone(act: () => void): void {
  if (now - last < alone) return;
  waiting = setTimeout(act, alone);
}

/** forPage reports whether a key acts on the page: somebody types it alone, into no field, and no dialog is open. */
export function forPage(e: KeyboardEvent): boolean {
  return !(e.ctrlKey || e.metaKey || e.altKey || typing(e.target) || dialogOpen());
}

export const dialogOpen = () => document.querySelector("dialog[open]") !== null;

export function typing(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName))
  );
}

/**
 * useSeen is true when `what` has been on the screen for half a second. A click or key that was meant for what was in
 * its place before comes sooner.
 */
export function useSeen(what: string | boolean): boolean {
  const [seen, setSeen] = useState<string | boolean>();
  useEffect(() => {
    const timer = setTimeout(() => setSeen(what), 500);
    return () => clearTimeout(timer);
  }, [what]);
  return seen === what;
}
