import type { HistoryPage, Refusal as RefusalFrame, Result } from "../../contracts/ts/maestro.d.ts";
import { Refusal, type Reason } from "./refusal.ts";

/** What the server answered: a page for ws.history, otherwise a result. */
export type Answer = Result | HistoryPage;

/** Where a frame without an answer may be sent again; on any connection if it changes nothing. */
type Repeat = "never" | "same" | "always";

interface Call {
  id: string;
  text: string;
  repeat: Repeat;
  written: boolean; // on this link
  lost: boolean; // written on an earlier link
  resolve(answer: Answer): void;
  reject(why: Refusal): void;
}

const maxUnanswered = 32; // the server's bound
const maxWaiting = 256;

/** A Calls is the table of frames that are not written or answered yet, oldest first. */
export type Calls = ReturnType<typeof newCalls>;

/** newCalls makes a table; write sends a text on the link. */
export function newCalls(write: (text: string) => void) {
  let open: Call[] = [];
  let linked = false;
  let ended: Refusal | undefined;

  function flush(): void {
    if (!linked) return;
    for (const c of open.slice(0, maxUnanswered)) {
      if (c.written) continue;
      c.written = true; // from its first byte on, the server may have executed it
      write(c.text);
    }
  }

  function finish(c: Call, end: (c: Call) => void): void {
    open = open.filter((o) => o !== c);
    end(c);
  }

  return {
    /** sends a frame and waits for its answer */
    send(id: string, text: string, repeat: Repeat): Promise<Answer> {
      if (ended) return Promise.reject(ended);
      if (!linked && repeat === "never")
        return Promise.reject(new Refusal("not_connected", "There is no connection to the server"));
      if (open.length >= maxWaiting)
        return Promise.reject(new Refusal("overloaded", "Too many commands wait for an answer", { retryable: true }));
      return new Promise((resolve, reject) => {
        open.push({ id, text, repeat, written: false, lost: false, resolve, reject });
        flush();
      });
    },

    /** finishes the call with the id; the caller of an unknown one has gone */
    answer(id: string | null | undefined, answer: Answer | RefusalFrame): void {
      const c = open.find((o) => o.id === id);
      if (!c) return;
      finish(c, () => {
        if ("type" in answer && answer.type === "ws.error") c.reject(refused(answer));
        else c.resolve(answer as Answer);
      });
      flush();
    },

    /**
     * A new link begins. If the server continues the same connection, it knows which ids it has executed, so all
     * unanswered frames are sent again. Otherwise those that change nothing or were never sent are; the others fail.
     */
    link(same: boolean): void {
      linked = true;
      for (const c of open) {
        if (c.lost && !same && c.repeat !== "always") finish(c, () => c.reject(lost()));
        else c.written = false;
      }
      flush();
    },

    /** The link ended. Frames that must not be repeated fail. */
    unlink(): void {
      linked = false;
      for (const c of open) {
        c.lost ||= c.written;
        if (c.repeat === "never") finish(c, () => c.reject(lost()));
      }
    },

    /** No further call is possible. */
    end(why: Refusal): void {
      linked = false;
      ended = why;
      for (const c of open) finish(c, () => c.reject(c.repeat !== "always" && (c.lost || c.written) ? lost() : why));
    },

    /** Calls are possible again, after end. */
    reopen(): void {
      ended = undefined;
    },
  };
}

const lost = () =>
  new Refusal("answer_lost", "The connection was lost before the answer; the command may have been executed");

export function refused(f: RefusalFrame): Refusal {
  return new Refusal(f.code as Reason, f.error, { retryable: f.retryable, details: f.details });
}
