// What other parts of the page add to the prompt that is being written.
import { signal } from "@preact/signals";
import { control, moment, role } from "./store";

/** A text for the composer, which takes it and empties the signal. */
export const quoted = signal("");

/** mayWrite reports whether the page shows a composer. */
export const mayWrite = () =>
  !moment.value && role.value === "controller" && (control.value.mine || control.value.holder === null);
