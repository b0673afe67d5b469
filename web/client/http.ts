import type { ErrorDetail } from "../../contracts/ts/maestro.d.ts";
import { Refusal, refusalOf, type Reason } from "./refusal.ts";

/** A Credential is a bearer token, or what returns one. Without it the browser sends its cookie. */
export type Credential = string | (() => string | undefined | Promise<string | undefined>);

const silence = 30_000; // milliseconds without the answer, or without its next piece
const maxAnswer = 64 << 20; // bytes; a snapshot is the longest answer

export interface Answer {
  headers: Headers;
  text: string;
}

export interface Http {
  /** the bearer token for the next request */
  token(): Promise<string | undefined>;
  /** sends a request and returns the whole answer; a refused credential is renewed once */
  raw(method: string, path: string, more?: Request): Promise<Answer>;
  json<T>(method: string, path: string, more?: Request): Promise<T>;
  /** how often the credential was renewed */
  readonly renewals: number;
  /** asks for a new credential, unless that happened since the count; requests at the same time share one call */
  login(why: Refusal, since: number): Promise<void>;
}

export interface Request {
  body?: unknown;
  headers?: Record<string, string>;
  redirect?: RequestRedirect;
  /** do not renew the credential */
  once?: boolean;
}

export function newHttp(
  base: URL,
  credential: Credential | undefined,
  fetcher: typeof fetch,
  renew?: (why: Refusal) => Promise<void>,
): Http {
  let renewal: Promise<void> | undefined;
  let renewals = 0;

  const http: Http = {
    async token() {
      return typeof credential === "function" ? credential() : credential;
    },

    get renewals() {
      return renewals;
    },

    async login(why, since) {
      if (!renew) throw why;
      if (since < renewals) return;
      renewal ??= renew(why)
        .then(() => void renewals++)
        .finally(() => (renewal = undefined));
      return renewal;
    },

    async raw(method, path, more = {}) {
      const since = renewals;
      const token = await http.token();
      const headers: Record<string, string> = { ...more.headers };
      if (token) headers.Authorization ??= `Bearer ${token}`;
      if (more.body !== undefined) headers["Content-Type"] = "application/json";
      const [res, text] = await exchange(new URL(path, base), {
        method,
        headers,
        redirect: more.redirect,
        cache: "no-store",
        body: JSON.stringify(more.body),
      });
      if (res.ok || (more.redirect === "manual" && res.status < 400)) return { headers: res.headers, text };
      const why = refusedBy(res, text);
      if (why.code !== "unauthenticated" || more.once || !renew) throw why;
      await http.login(why, since);
      return http.raw(method, path, { ...more, once: true });
    },

    async json<T>(method: string, path: string, more?: Request) {
      return parse<T>((await http.raw(method, path, more)).text);
    },
  };

  /** exchange sends a request and reads its answer, which may take any time as long as pieces of it come. */
  async function exchange(url: URL, init: RequestInit): Promise<[Response, string]> {
    const end = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        end.abort(new Refusal("timeout", "The server did not answer in time", { retryable: true }));
      }, silence);
    };
    let res: Response | undefined;
    try {
      heard();
      res = await fetcher(url, { ...init, signal: end.signal });
      const pieces = res.body?.getReader();
      const read: BlobPart[] = [];
      let size = 0;
      for (;;) {
        heard();
        const piece = await pieces?.read();
        if (!piece || piece.done) return [res, await new Blob(read).text()];
        size += piece.value.length;
        if (size > maxAnswer) throw new Refusal("broken_protocol", "The answer is too long");
        read.push(piece.value);
      }
    } catch (err) {
      const { reason = err } = end.signal;
      end.abort(); // an answer that is too long
      if (res && !res.ok) return [res, ""]; // only the message is lost
      throw refusalOf(reason);
    } finally {
      clearTimeout(timer);
    }
  }

  return http;
}

/** parse returns the body of an answer. */
export function parse<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (err) {
    throw refusalOf(err);
  }
}

/** refusedBy reads the refusal from an answer. */
function refusedBy(res: Response, text: string): Refusal {
  let body: { error?: string; code?: Reason; retryable?: boolean; details?: ErrorDetail[] } = {};
  try {
    body = (JSON.parse(text) as typeof body | null) ?? {};
  } catch {
    // not from this server, such as from a proxy
  }
  const seconds = Number(res.headers.get("Retry-After"));
  return new Refusal(body.code ?? byStatus(res.status), body.error ?? `The server answered with status ${res.status}`, {
    status: res.status,
    retryable: body.retryable ?? res.status >= 500,
    details: body.details,
    retryAfter: seconds > 0 ? seconds * 1000 : undefined,
  });
}

function byStatus(status: number): Reason {
  switch (status) {
    case 401:
      return "unauthenticated";
    case 403:
      return "access_denied";
    case 404:
      return "not_found";
    case 429:
      return "rate_limited";
  }
  return status >= 500 ? "network" : "bad_request"; // a proxy whose server is away answers with 502
}
