import { backoff, onWake, type Surroundings } from "./notify.ts";
import { Refusal, refusalOf, type Reason } from "./refusal.ts";

/** The part of WebSocket that the client uses. */
export interface Socket {
  readonly protocol: string;
  onopen: ((e: any) => void) | null;
  onmessage: ((e: any) => void) | null; // with data
  onclose: ((e: any) => void) | null; // with code and reason
  onerror: ((e: any) => void) | null;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}

export const subprotocol = "maestro-headless.2026-04-02";

const openTimeout = 90_000; // the server may have to start an agent
const handshakeTimeout = 10_000;
const pongTimeout = 4_000;
const staleAttempt = 5_000; // after a wake, an attempt that took longer so far is made anew
const stable = 10_000; // a connection that lasted longer was a success

/** How the connection is; `closed` is final until the caller reconnects. */
export type LinkStatus =
  | { status: "connecting" }
  | { status: "online" }
  | { status: "waiting"; why: Refusal; retryAt: number }
  | { status: "login"; why: Refusal }
  | { status: "closed"; why: Refusal };

/** Codes after which another attempt can succeed. */
const retried = new Set<Reason>([
  "network",
  "going_away",
  "timeout",
  "rate_limited",
  "overloaded",
  "slow_consumer",
  "runtime_not_ready",
  "runtime_busy",
]);

/** Close codes of connections that were lost, or that the server ended for a while. */
const lostCodes = new Set([1001, 1005, 1006, 1011, 1012, 1013, 4408, 4429, 4503]);

/** Codes that are final although their close code is 1011. */
const finalCodes = new Set<Reason>(["runtime_failed", "unsupported_capability", "workspace_violation"]);

/** verdict says what to do when a connection has ended. */
export function verdict(why: Refusal): "retry" | "login" | "end" {
  if (why.code === "unauthenticated") return "login";
  return retried.has(why.code) || (lostCodes.has(why.more.closeCode ?? 0) && !finalCodes.has(why.code))
    ? "retry"
    : "end";
}

interface Hooks {
  dial(): Promise<Socket>;
  /** asks over HTTP why a connection was refused before it was open, because browsers do not say */
  probe(): Promise<Refusal | undefined>;
  /** the socket is open: sends the handshake */
  opened(): void;
  /** handles a frame; an error ends the connection for good */
  frame(text: string): void;
  /** the connection has ended */
  lost(): void;
  /** what to do about the end */
  judge(why: Refusal): "retry" | "login" | "end";
  /** asks for a new credential */
  login(why: Refusal): Promise<void>;
  changed(status: LinkStatus): void;
  around: Surroundings;
}

/** A Link keeps one connection alive and makes the next when it is lost. */
export type Link = ReturnType<typeof newLink>;

export function newLink(hooks: Hooks) {
  let socket: Socket | undefined;
  let attempt = 0; // counts sockets; what belongs to an earlier one is ignored
  let status: LinkStatus = { status: "closed", why: new Refusal("closed", "not started") };
  let began = 0; // when the attempt or the connection began
  let seen = 0; // when the last frame came
  let quietAfter = 20_000; // without a frame, until a ping
  let pinged = 0; // when a ping was sent that nothing answered yet
  let timer: ReturnType<typeof setTimeout> | undefined; // of the attempt, the silence or the wait
  const delays = backoff();
  let retryAfter = 0; // from a goodbye
  let refusal: Refusal | undefined; // of the handshake, before the server closes
  let ended = false; // by the caller
  const stopWake = onWake(hooks.around, wake);

  function become(next: LinkStatus): void {
    status = next;
    hooks.changed(next);
  }

  function arm(ms: number, run: () => void): void {
    clearTimeout(timer);
    timer = setTimeout(run, ms);
  }

  /** detach forgets the socket. A dead one may take minutes to say that it is closed. */
  function detach(): void {
    attempt++;
    clearTimeout(timer);
    const old = socket;
    socket = undefined;
    if (!old) return;
    old.onopen = old.onmessage = old.onclose = null;
    old.onerror = () => {};
    try {
      old.close();
    } catch {
      // not open yet
    }
  }

  function connect(): void {
    detach();
    const mine = ++attempt;
    began = Date.now();
    retryAfter = 0;
    refusal = undefined;
    become({ status: "connecting" });
    arm(openTimeout, () => fail(new Refusal("timeout", "The server did not answer", { retryable: true })));
    hooks.dial().then(
      (s) => {
        if (mine !== attempt) {
          s.onerror = () => {};
          return s.close();
        }
        socket = s;
        let opened = false;
        s.onopen = () => {
          if (s.protocol !== subprotocol)
            return fail(new Refusal("upgrade_required", `The server chose the subprotocol "${s.protocol}"`));
          opened = true;
          seen = Date.now();
          arm(handshakeTimeout, () =>
            fail(new Refusal("timeout", "The server did not answer the handshake", { retryable: true })),
          );
          hooks.opened();
        };
        s.onmessage = (e) => {
          seen = Date.now();
          pinged = 0;
          try {
            hooks.frame(String(e.data));
          } catch (err) {
            fail(new Refusal("broken_protocol", err instanceof Error ? err.message : String(err)));
          }
        };
        s.onerror = () => {
          if (!opened) s.onclose?.({ code: 1006, reason: "" });
        }; // Node 20 sends no close event then
        s.onclose = (e) => {
          const why =
            refusal ??
            new Refusal(
              e.reason || (e.code === 1000 ? "closed" : "network"),
              e.reason || `The connection was lost (${e.code})`,
              { closeCode: e.code, retryAfter },
            );
          if (opened) return fail(why);
          detach();
          const mine = attempt;
          hooks.probe().then(
            (found) => {
              if (mine === attempt) fail(found ?? why);
            },
            () => {
              if (mine === attempt) fail(why);
            },
          );
        };
      },
      (err) => {
        if (mine === attempt) fail(refusalOf(err));
      },
    );
  }

  /** fail ends the connection or the attempt, and decides what comes next. */
  function fail(why: Refusal): void {
    const wasOnline = status.status === "online";
    detach();
    if (wasOnline) {
      hooks.lost();
      if (Date.now() - began >= stable) delays.reset();
    }
    const verdict = hooks.judge(why);
    if (verdict === "end") return become({ status: "closed", why });
    if (verdict === "login") {
      become({ status: "login", why });
      const mine = attempt;
      hooks.login(why).then(
        () => {
          if (mine === attempt) connect();
        },
        (err) => {
          if (mine === attempt) become({ status: "closed", why: err instanceof Refusal ? err : why });
        },
      );
      return;
    }
    const delay = delays.next(why.more.retryAfter);
    become({ status: "waiting", why, retryAt: Date.now() + delay });
    arm(delay, connect);
  }

  /** watch looks for silence. Heartbeats of the server are frames too. */
  function watch(): void {
    const quiet = Date.now() - seen;
    if (pinged > 0 && Date.now() - pinged >= pongTimeout)
      return fail(new Refusal("network", "The server has been silent", { retryable: true }));
    if (pinged === 0 && quiet >= quietAfter) ping();
    arm(pinged > 0 ? pinged + pongTimeout - Date.now() : quietAfter - quiet, watch);
  }

  function ping(): void {
    pinged = Date.now();
    send(JSON.stringify({ type: "ws.ping" }));
  }

  function wake(): void {
    switch (status.status) {
      case "waiting":
        delays.reset();
        return connect();
      case "connecting":
        if (Date.now() - began > staleAttempt) connect();
        return;
      case "online":
        if (pinged > 0) return;
        ping();
        arm(pongTimeout, watch);
    }
  }

  function send(text: string): void {
    try {
      socket?.send(text);
    } catch {
      // closing; the close event follows
    }
  }

  return {
    get status() {
      return status;
    },
    connect,
    send,
    /** the handshake succeeded; the server sends a heartbeat in each interval */
    online(heartbeat: number): void {
      began = Date.now();
      quietAfter = heartbeat * 1.3;
      pinged = 0;
      become({ status: "online" });
      arm(quietAfter, watch);
    },
    /** the server says why it refuses the handshake */
    refused(why: Refusal): void {
      refusal = why;
    },
    /** the server says when to come back, before it closes */
    goodbye(wait: number): void {
      retryAfter = wait;
    },
    /** the page goes away; if it comes back, the link does */
    rest(): void {
      if (status.status === "closed") return;
      const why = new Refusal("closed", "The page was left");
      if (status.status === "online") hooks.lost();
      detach();
      become({ status: "waiting", why, retryAt: Infinity });
    },
    get ended() {
      return ended;
    },
    /** ends the link for good */
    end(why: Refusal): void {
      ended = true;
      stopWake();
      if (status.status === "online") hooks.lost();
      detach();
      become({ status: "closed", why });
    },
  };
}
