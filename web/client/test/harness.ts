// What tests need: a server, a network that fails on demand, and a client.
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, connect as dialTCP, type AddressInfo, type Socket as TCPSocket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { connect, type Options, type Server, type Session } from "../index.ts";

export interface Running {
  url: string;
  token: string;
  workspace: string;
  /** ends the server like a power cut, and starts it again on the same port */
  restart(): Promise<void>;
  /** stops and continues the process */
  signal(name: NodeJS.Signals): void;
}

/** serve runs maestro with a script for its agent until the tests of the file have ended. */
export async function serve(script: object, ...args: string[]): Promise<Running> {
  const folder = mkdtempSync(join(tmpdir(), "maestro-client-test-"));
  const workspace = mkdtempSync(join(tmpdir(), "maestro-client-work-"));
  const file = join(folder, "script.json");
  writeFileSync(file, JSON.stringify(script));
  let child: ChildProcess;
  let url = "";
  let token = "";

  async function start(listen: string): Promise<void> {
    child = spawn(
      process.env.MAESTRO!,
      [
        "serve",
        "--listen",
        listen,
        "--ready-stdout",
        "--agent",
        `script:${file}`,
        "--state-dir",
        join(folder, "state"),
        "--workspace",
        workspace,
        ...args,
      ],
      { stdio: ["ignore", "pipe", "pipe"] },
    );
    let log = "";
    child.stderr!.on("data", (d) => {
      log = (log + d).slice(-8000);
    });
    const line = await new Promise<string>((resolve, reject) => {
      let text = "";
      child.stdout!.on("data", (d) => {
        text += d;
        if (text.includes("\n")) resolve(text.slice(0, text.indexOf("\n")));
      });
      child.once("exit", () => reject(new Error(`maestro ended: ${log}`)));
    });
    const ready = JSON.parse(line) as { baseUrl: string; tokenFile: string };
    url = ready.baseUrl;
    token = readFileSync(ready.tokenFile, "utf8").trim();
  }

  const kill = () =>
    new Promise<void>((resolve) => {
      child.removeAllListeners("exit");
      child.once("exit", () => resolve());
      child.kill("SIGKILL");
    });

  await start("127.0.0.1:0");
  after(async () => {
    await kill();
    rmSync(folder, { recursive: true, force: true });
    rmSync(workspace, { recursive: true, force: true });
  });
  return {
    get url() {
      return url;
    },
    get token() {
      return token;
    },
    workspace,
    async restart() {
      await kill();
      await start(new URL(url).host);
    },
    signal: (name) => void child.kill(name),
  };
}

/** A Network is a proxy in front of a server. */
export interface Network {
  url: string;
  /** ends all connections without a close frame */
  cut(): void;
  /** nothing passes until thaw, and nobody is told */
  freeze(): void;
  thaw(): void;
}

export async function network(server: Running): Promise<Network> {
  const pairs = new Set<[TCPSocket, TCPSocket]>();
  let frozen = false;
  const proxy = createServer((near) => {
    const to = new URL(server.url);
    const far = dialTCP(Number(to.port), to.hostname);
    const pair: [TCPSocket, TCPSocket] = [near, far];
    pairs.add(pair);
    const end = () => {
      pairs.delete(pair);
      near.destroy();
      far.destroy();
    };
    for (const [from, into] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on("data", (d) => into.write(d));
      from.on("error", end).on("close", end);
      if (frozen) from.pause();
    }
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const each = (run: (s: TCPSocket) => void) => pairs.forEach((pair) => pair.forEach(run));
  const cut = () => each((s) => s.destroy());
  after(() => {
    cut();
    proxy.close();
  });
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    cut,
    freeze() {
      frozen = true;
      each((s) => s.pause());
    },
    thaw() {
      frozen = false;
      each((s) => s.resume());
    },
  };
}

/** Node sends the token in a header. */
export const socket: Options["socket"] = (url, protocols, token) =>
  new WebSocket(url, { protocols, headers: token ? { Authorization: `Bearer ${token}` } : {} } as unknown as string[]);

/** client connects to a server, or through a network, until the tests of the file have ended. */
export function client(server: { url: string; token?: string }, options: Options = {}): Server {
  const made = connect(server.url, { token: server.token, socket, ...options });
  after(() => made.close());
  return made;
}

/** page is what a client sees of a browser's page. */
export function page() {
  const document = Object.assign(new EventTarget(), { visibilityState: "visible" });
  const window = new EventTarget();
  return { around: { document, window }, fire: (name: string) => window.dispatchEvent(new Event(name)) };
}

/** texts returns the prompts and answers of a session, in their order. */
export function texts(s: Session): string[] {
  return s.transcript.items.flatMap((i) =>
    i.kind === "prompt" ? [`> ${i.prompt.content}`] : i.kind === "text" ? [i.text] : [],
  );
}

/** idle waits until no run is active. */
export function idle(s: Session): Promise<void> {
  return s.until(() => s.state.is_ready && !s.state.is_responding && s.state.pending_requests.length === 0);
}
