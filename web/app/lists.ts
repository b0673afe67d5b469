// What the page knows about all sessions: which part of it is shown, and the inbox.
import { batch, computed, effect, signal } from "@preact/signals";
import type { Answer, InboxEnding, InboxQuestion, InboxReply, Session } from "../client/index.ts";
import { setForm } from "./kept";
import { announce, fragment, inWords, role, server, sessions, stage } from "./store";

type Place = "session" | "inbox" | "dashboard";

/** place is what the page shows, as its address says. */
export const place = signal<Place>(placed());

function placed(): Place {
  if (fragment("inbox") !== null) return "inbox";
  return fragment("dashboard") === null ? "session" : "dashboard";
}

/** The dashboard is alone on the screen, for a monitor on a wall. */
export const wall = signal(fragment("dashboard") === "wall");

/** linked is the question that the address names, such as that of a notification. */
export const linked = signal(named());

function named(): Named | null {
  const [session_id, request_id] = [fragment("session"), fragment("request")];
  return session_id && request_id ? { session_id, request_id } : null;
}

addEventListener("hashchange", () => {
  place.value = placed();
  wall.value = fragment("dashboard") === "wall";
  linked.value = named();
});

/** The open questions of all sessions, the oldest first. */
export const questions = signal<readonly InboxQuestion[]>([]);
export const inbox = signal<"connecting" | "online" | "closed">("connecting");
export const moreQuestions = signal(false);

/** A Closed question is one that ended while the page watched. */
export interface Closed {
  question: InboxQuestion;
  ending: InboxEnding;
  at: number;
  yours: boolean;
}

const maxClosed = 5;
/** the questions that ended last, the newest first */
export const closed = signal<readonly Closed[]>([]);

/** needed is how much waits for the person of this page. */
export const needed = computed(() =>
  inbox.value === "online" ? questions.value.length : sessions.value.filter((s) => s.status === "waiting").length,
);

export function keyOf(q: { session_id: string; request_id: string }): string {
  return `${q.session_id} ${q.request_id}`;
}

const answered = new Set<string>(); // by this page, until their end is known

let following = false;
effect(() => {
  if (stage.value !== "open" || role.value === "viewer" || following) return;
  following = true;
  const list = server.questions();
  list.on(() =>
    batch(() => {
      const known = new Map(questions.peek().map((q) => [keyOf(q), q]));
      const ended = list.ended.flatMap((ending): Closed[] => {
        const question = known.get(keyOf(ending));
        const yours = answered.delete(keyOf(ending));
        setForm(keyOf(ending), "");
        return question ? [{ question, ending, at: Date.now(), yours }] : [];
      });
      if (ended.length > 0) closed.value = [...ended.reverse(), ...closed.peek()].slice(0, maxClosed);
      const before = questions.peek().length;
      questions.value = list.questions;
      moreQuestions.value = list.truncated;
      const { status } = list.link;
      if (place.peek() === "inbox" && inbox.peek() === "online" && list.questions.length > before) {
        announce("A question came in.");
      }
      inbox.value = status === "online" || status === "closed" ? status : "connecting";
    }),
  );
});

/** A Named is a question by its ids. The inbox also knows its digest. */
export type Named = Pick<InboxQuestion, "session_id" | "request_id"> & { digest?: string };

/** answerFromInbox answers without control of the session. It returns why that was refused, in words. */
export async function answerFromInbox(q: Named, digest: string | undefined, reply: Answer): Promise<string> {
  const { reason: note, ...rest } = { reason: undefined, ...reply };
  answered.add(keyOf(q));
  try {
    const receipt = await server.answer({ ...q, digest: digest ?? q.digest }, { ...rest, note } as InboxReply);
    if (!receipt.ended) answered.delete(keyOf(q)); // a vote: somebody else may end the question
    return "";
  } catch (err) {
    answered.delete(keyOf(q));
    return inWords(err);
  }
}

/** look watches a session, without a part in it and with as little of its history as possible. */
export function look(id: string): Session {
  return server.attach(id, { role: "viewer", turns: 1, clientInfo: { name: "maestro-inbox" }, optOut: ["status"] });
}
