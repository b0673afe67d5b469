// Connections that stay while the page shows another session: a terminal ends with the connection that started it, and
// a prompt that was sent without a connection waits for one.
import type { Connection, Session } from "../client/index.ts";
import { unsent } from "./kept";

const key = "maestro.connection";
const most = 4; // sessions that stay attached in the background

/** The connection of the page before it was loaded again. It is there only while the page is loaded. */
const text = sessionStorage.getItem(key) ?? "null";
sessionStorage.removeItem(key);
let kept: { session: string; connection: Connection } | null = JSON.parse(text);

/** keptConnection returns the connection from before the reload, to the first caller. */
export function keptConnection(id: string): Connection | undefined {
  const found = kept?.session === id ? kept.connection : undefined;
  kept = null;
  return found;
}

/** keepAlive keeps the connection of the shown session over the next loading of the page. */
export function keepAlive(shown: () => Session | null): void {
  addEventListener("pagehide", () => {
    const s = shown();
    if (s?.connection) sessionStorage.setItem(key, JSON.stringify({ session: s.id, connection: s.connection }));
  });
  // The page came back from the history of the browser. A duplicated tab must not get its connection.
  addEventListener("pageshow", () => sessionStorage.removeItem(key));
}

/** needed reports whether a session has a terminal of this page that runs, or a prompt that is not sent yet. */
function needed(s: Session): boolean {
  if (unsent.peek().some((p) => p.id === s.id)) return true;
  return s.state.active_utility_commands.some(
    (c) => c.terminal_mode === "pty" && c.owner_connection_id === s.me?.connectionId,
  );
}

const background = new Map<string, Session>();

/** rest is called when the page leaves a session. If the session is needed, it stays attached. */
export function rest(s: Session): void {
  // After close(true) the server keeps control for some time, for a page that comes back.
  if (s.link.status === "closed" || !needed(s)) return s.close(true);
  background.set(s.id, s);
  for (const [id, oldest] of background) {
    if (background.size <= most) return;
    background.delete(id);
    oldest.close(true);
  }
}

/** settle is called when a prompt was sent. A session that rests and is not needed any more is closed. */
export function settle(s: Session): void {
  if (background.get(s.id) !== s || needed(s)) return;
  background.delete(s.id);
  s.close(true);
}

/** revive returns the session that rests, if there is one and it was not ended meanwhile. */
export function revive(id: string): Session | undefined {
  const found = background.get(id);
  background.delete(id);
  if (found?.link.status !== "closed") return found;
  found.close(); // and what listens to it
  return undefined;
}
