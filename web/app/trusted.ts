// The scripts that the page starts beside itself. The browser refuses others.

/** The path of the service worker; its scope is the whole page. */
export const SERVICE_WORKER = "/sw.js";

type Policy = { createScriptURL(url: string): string };
let policy: Policy | undefined;

/** ownScript marks the path of one of these scripts as trusted, in browsers with Trusted Types. */
export function ownScript(path: typeof HIGHLIGHT_WORKER | typeof SERVICE_WORKER): string {
  const types = (globalThis as { trustedTypes?: { createPolicy(name: string, rules: Policy): Policy } }).trustedTypes;
  policy ??= types?.createPolicy("maestro", {
    createScriptURL(url) {
      if (url !== HIGHLIGHT_WORKER && url !== SERVICE_WORKER) throw new TypeError(url);
      return url;
    },
  });
  return policy ? policy.createScriptURL(path) : path;
}
