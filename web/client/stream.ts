import { backoff, onWake, pause, type Surroundings } from "./notify.ts";
import { Refusal, refusalOf } from "./refusal.ts";

/** A Source opens a stream of events. It ends with the signal, or fails. Each comment of the stream is a null. */
export type Source = (signal: AbortSignal) => AsyncIterable<unknown>;

const silence = 40_000; // the server sends something every 15 s
const maxEvent = 8 << 20; // characters

/** events reads server-sent events from the body of an answer. */
export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<unknown> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      if (rest.length > maxEvent) throw new Refusal("broken_protocol", "an event of the stream is too long");
      const lines = rest.split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        if (line.startsWith("data: ")) yield JSON.parse(line.slice(6)); // the server writes one line for each event
        else if (line.startsWith(":")) yield null;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

export type FeedStatus =
  | { status: "connecting" }
  | { status: "online" }
  | { status: "waiting"; why: Refusal; retryAt: number }
  | { status: "closed"; why: Refusal };

interface Hooks {
  source: Source;
  event(e: any): void;
  /** an error that another attempt would get again; the feed then ends */
  final(why: Refusal): boolean;
  changed(status: FeedStatus): void;
  around: Surroundings;
}

/** follow reads a source until stop is called, and opens it again when it ends, is silent, or the page was away. */
export function follow(hooks: Hooks): { stop(): void } {
  let current = new AbortController();
  let stopped = false;
  let seen = Date.now();
  let waiting = false;
  const delays = backoff();
  const stopWake = onWake(hooks.around, () => {
    if (waiting || Date.now() - seen > silence / 2) {
      delays.reset();
      current.abort();
    }
  });

  async function once(): Promise<void> {
    const mine = (current = new AbortController());
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const alive = () => {
      seen = Date.now();
      clearTimeout(watchdog);
      watchdog = setTimeout(() => mine.abort(), silence);
    };
    hooks.changed({ status: "connecting" });
    alive();
    try {
      let online = false;
      for await (const e of hooks.source(mine.signal)) {
        alive();
        if (!online) hooks.changed({ status: "online" });
        online = true;
        if (e === null || stopped) continue;
        delays.reset();
        hooks.event(e);
      }
      throw new Refusal("network", "The stream ended", { retryable: true });
    } finally {
      clearTimeout(watchdog);
      mine.abort();
    }
  }

  async function run(): Promise<void> {
    while (!stopped) {
      try {
        await once();
      } catch (err) {
        if (stopped) break;
        const why = refusalOf(err);
        if (hooks.final(why)) {
          stop();
          return hooks.changed({ status: "closed", why });
        }
        const delay = delays.next(why.more.retryAfter);
        hooks.changed({ status: "waiting", why, retryAt: Date.now() + delay });
        current = new AbortController();
        waiting = true;
        await pause(delay, current.signal);
        waiting = false;
      }
    }
  }

  function stop(): void {
    stopped = true;
    stopWake();
    current.abort();
  }

  void run();
  return { stop };
}
