import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { newFold } from "../fold.ts";
import { connect, type Options, type Refusal, type Socket } from "../index.ts";

mock.timers.enable({ apis: ["setTimeout"] });

interface Body {
  status?: number;
  pieces: (string | Uint8Array)[];
  /** nothing comes after the pieces */
  stalls?: boolean;
}

/** slow answers requests with the bodies, in their order. Each piece takes 29 seconds. */
function slow(...bodies: Body[]): Options["fetch"] {
  return async (_url, init) => {
    const { status = 200, pieces, stalls } = bodies.shift()!;
    const body = new ReadableStream(
      {
        start: (c) => init!.signal!.addEventListener("abort", () => c.error(init!.signal!.reason)),
        pull(c) {
          const piece = pieces.shift();
          mock.timers.tick(piece !== undefined || !stalls ? 29_000 : 30_000);
          if (piece !== undefined) c.enqueue(typeof piece === "string" ? new TextEncoder().encode(piece) : piece);
          else if (!stalls) c.close();
        },
      },
      { highWaterMark: 0 },
    );
    return new Response(body, { status });
  };
}

const server = (...bodies: Body[]) => connect("http://maestro.test", { fetch: slow(...bodies) });
const refusal = (code: string, retryable?: boolean) => (err: unknown) =>
  (err as Refusal).code === code && (err as Refusal).more.retryable === retryable;

test("an answer that comes slowly is read, and one that stops in the middle fails", async () => {
  const { sessions } = await server({ pieces: ['{"ses', 'sions', '":[', "]}"] }).overview();
  assert.deepEqual(sessions, []);
  await assert.rejects(server({ pieces: ['{"sessions":['], stalls: true }).overview(), refusal("timeout", true));
  await assert.rejects(server({ pieces: ['{"state":'], stalls: true }).create(), refusal("timeout", true));
  const away = server({ status: 503, pieces: ['{"error":'], stalls: true });
  await assert.rejects(away.overview(), refusal("network", true));
});

test("an answer that never ends fails", async () => {
  const pieces = Array<Uint8Array>(65).fill(new Uint8Array(1 << 20));
  await assert.rejects(server({ pieces, stalls: true }).overview(), refusal("broken_protocol"));
});

test("an older moment can be shown after one whose answer stopped", async () => {
  const snapshot = { cursor: 5, state: newFold().snapshot() };
  const fetch = slow(
    { pieces: ['{"cursor":'], stalls: true },
    { pieces: [JSON.stringify(snapshot)] },
    { pieces: ['{"entries":[],"before":null}'] },
  );
  const socket = () => ({ close() {} }) as Socket; // never opens
  const past = connect("http://maestro.test", { fetch, socket }).attach("main").past();
  await assert.rejects(past.show(5), refusal("timeout", true));
  await past.show(5);
  assert.equal(past.cursor, 5);
});

test("a connection is made anew although the reason of its end stopped in the middle", async () => {
  let sockets = 0;
  const socket = () => {
    const made = { close() {} } as Socket;
    if (sockets++ === 0) setImmediate(() => made.onclose!({ code: 1006, reason: "" }));
    return made;
  };
  const fetch = slow({ status: 503, pieces: ['{"error":'], stalls: true });
  const session = connect("http://maestro.test", { fetch, socket }).attach("main");
  await session.until(() => session.link.status === "waiting");
  session.close();
});
