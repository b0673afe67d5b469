import type { ErrorDetail } from "../../contracts/ts/maestro.d.ts";
import { Refusal, refusalOf, type Reason } from "./refusal.ts";

/** A Credential is a bearer token, or what returns one. Without it the browser sends its cookie. */
export type Credential = string | (() => string | undefined | Promise<string | undefined>);

const answerTimeout = 30_000;

export interface Http {
  /** the bearer token for the next request */
  token(): Promise<string | undefined>;
  /** sends a request and returns the answer; a refused credential is renewed once */
  raw(method: string, path: string, more?: Request): Promise<Response>;
  json<T>(method: string, path: string, more?: Request): Promise<T>;
  /** how often the credential was renewed */
  readonly renewals: number;
  /** asks for a new credential, unless that happened since the count; requests at the same time share one call */
  login(why: Refusal, since: number): Promise<void>;
}

export interface Request {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
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

    login(why, since) {
      if (!renew) return Promise.reject(why);
      if (since < renewals) return Promise.resolve();
      renewal ??= renew(why)
        .then(() => {
          renewals++;
        })
        .finally(() => {
          renewal = undefined;
        });
      return renewal;
    },

    async raw(method, path, more = {}) {
      const since = renewals;
      const token = await http.token();
      const headers: Record<string, string> = { ...more.headers };
      if (token) headers.Authorization ??= `Bearer ${token}`;
      if (more.body !== undefined) headers["Content-Type"] = "application/json";
      const timeout = new AbortController();
      const stop = () => timeout.abort();
      more.signal?.addEventListener("abort", stop); // also ends the body
      if (more.signal?.aborted) stop();
      const timer = setTimeout(stop, answerTimeout);
      let res: Response;
      try {
        res = await fetcher(new URL(path, base), {
          method,
          headers,
          signal: timeout.signal,
          redirect: more.redirect ?? "follow",
          credentials: "same-origin",
          cache: "no-store",
          body: more.body === undefined ? undefined : JSON.stringify(more.body),
        });
      } catch (err) {
        throw timeout.signal.aborted && !more.signal?.aborted
          ? new Refusal("timeout", "The server did not answer", { retryable: true })
          : refusalOf(err);
      } finally {
        clearTimeout(timer);
      }
      if (res.ok || res.type === "opaqueredirect" || (more.redirect === "manual" && res.status < 400)) return res;
      const why = await refusedBy(res);
      if (why.code !== "unauthenticated" || more.once || !renew) throw why;
      await http.login(why, since);
      return http.raw(method, path, { ...more, once: true });
    },

    async json<T>(method: string, path: string, more?: Request) {
      const res = await http.raw(method, path, more);
      try {
        return (await res.json()) as T;
      } catch (err) {
        throw refusalOf(err);
      }
    },
  };
  return http;
}

/** refusedBy reads the refusal from an answer. */
async function refusedBy(res: Response): Promise<Refusal> {
  let body: { error?: string; code?: Reason; retryable?: boolean; details?: ErrorDetail[] } = {};
  try {
    body = (await res.json()) as typeof body;
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
