// What the browser says about the screen. The widths are those of the style sheets.
import { signal } from "@preact/signals";

function matches(query: string) {
  const list = matchMedia(query);
  const now = signal(list.matches);
  list.addEventListener("change", () => {
    now.value = list.matches;
  });
  return now;
}

/** the page has one column, as on a phone */
export const narrow = matches("(max-width: 759px)");
/** the right column covers the conversation */
export const covered = matches("(max-width: 1099px)");
/** a finger points, so that focus opens a keyboard on the screen */
export const coarse = matches("(pointer: coarse)");
