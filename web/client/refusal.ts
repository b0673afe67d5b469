import type { Code, ErrorDetail } from "../../contracts/ts/maestro.d.ts";

/**
 * Reasons of this client, beside the codes of the server:
 * `network` - no answer came, or the connection was lost;
 * `answer_lost` - a command was sent and the connection ended before its answer, so it may have been executed;
 * `not_connected` - there is no connection for a frame that is never repeated;
 * `closed` - the caller closed the session, or the server ended it without a reason;
 * `broken_protocol` - the server sent what no server of this protocol sends.
 */
export type Reason = Code | "network" | "answer_lost" | "not_connected" | "closed" | "broken_protocol";

/** A Refusal says why something was refused or failed, with a stable code. */
export class Refusal extends Error {
  override readonly name = "Refusal";

  constructor(
    readonly code: Reason,
    message: string,
    readonly more: {
      /** HTTP status */
      status?: number;
      /** close code of the WebSocket */
      closeCode?: number;
      /** the same request may succeed later */
      retryable?: boolean;
      /** milliseconds that the server asks to wait */
      retryAfter?: number;
      details?: ErrorDetail[];
    } = {},
  ) {
    super(message);
  }

  /** metadata of the refusal, such as how a question ended */
  get metadata(): Record<string, string> {
    return this.more.details?.find((d) => d.reason === this.code)?.metadata ?? {};
  }
}

/** refusalOf returns err if it is a Refusal, otherwise a Refusal with the code `network`. */
export function refusalOf(err: unknown): Refusal {
  if (err instanceof Refusal) return err;
  return new Refusal("network", err instanceof Error ? err.message : String(err), { retryable: true });
}
