// The commands, the mode and the plan of the agent of the open session. The page asks for commands and mode. The plan
// comes as a status.
import { computed, effect, signal } from "@preact/signals";
import type { AgentOffer, Item } from "../client/index.ts";
import { loaded, openID, server, session, state } from "./store";

/** offer has the commands and the mode of the agent, once the server has answered. */
export const offer = signal<AgentOffer>({ commands: [] });

/** readOffer asks the server what the agent offers. */
export function readOffer(): void {
  const id = openID.peek();
  if (id === null) return;
  server.offer(id).then(
    (o) => {
      if (openID.peek() === id) offer.value = o;
    },
    () => {}, // such as without a connection: the last offer stays
  );
}

effect(() => {
  if (openID.value !== null) offer.value = { commands: [] };
});

effect(() => {
  if (loaded.value) readOffer();
});

// A status says in words that commands or mode changed. The page then asks for them.
effect(() =>
  session.value?.onEvent(({ event }) => {
    if (event?.type === "status" && /^Agent (commands|mode): /.test(event.message)) readOffer();
  }),
);

export interface Plan {
  done: number;
  steps: { text: string; state: "done" | "doing" | "open" }[];
}

/** planOf returns the last plan in a status since the last prompt. */
function planOf(items: readonly Item[]): Plan | null {
  for (let i = items.length - 1; i >= 0; i--) {
    const item = items[i]!;
    if (item.kind === "prompt") return null;
    const plan = item.kind === "note" && item.event.type === "status" && readPlan(item.event.message);
    if (plan) return plan;
  }
  return null;
}

const states = { x: "done", ">": "doing", " ": "open" } as const;

function readPlan(text: string): Plan | null {
  const [head, ...lines] = text.split("\n");
  if (!/^Plan, \d+ of \d+ done:$/.test(head!)) return null;
  const steps: Plan["steps"] = [];
  for (const line of lines) {
    const found = /^\[([x> ])\] (.*)$/.exec(line);
    if (found) steps.push({ text: found[2]!, state: states[found[1] as keyof typeof states] });
    else if (steps.length > 0) steps.at(-1)!.text += `\n${line}`; // a step of more than one line
  }
  return { done: steps.filter((s) => s.state === "done").length, steps };
}

/** plan is the plan of the current run, or of the last one. */
export const plan = computed(() => (state.value && session.value ? planOf(session.value.transcript.items) : null));
