// The service worker shows notifications and opens what they link to. It answers no requests of the page and stores
// nothing, so the page is always the one of the server.
import { questionTag } from "./tag";

/** The parts of a service worker that this one uses. */
interface Scope {
  addEventListener(type: string, handle: (e: any) => void): void;
  skipWaiting(): Promise<void>;
  clients: {
    claim(): Promise<void>;
    matchAll(query: object): Promise<{ url: string; focus(): Promise<unknown>; postMessage(m: unknown): void }[]>;
    openWindow(url: string): Promise<unknown>;
  };
  registration: ServiceWorkerRegistration;
}
const worker = globalThis as unknown as Scope;

worker.addEventListener("install", () => void worker.skipWaiting());
worker.addEventListener("activate", (e) => e.waitUntil(worker.clients.claim()));
worker.addEventListener("push", (e) => e.waitUntil(pushed(e.data)));
worker.addEventListener("notificationclick", (e) => {
  e.notification.close();
  e.waitUntil(open(e.notification.data?.link || "/#inbox"));
});

async function pushed(data: { json(): unknown } | null): Promise<void> {
  let message: { type?: string; link?: string } = {};
  try {
    message = (data?.json() ?? {}) as typeof message;
  } catch {
    // not from this server; browsers require a notification for each message
  }
  const link = typeof message.link === "string" ? message.link : "";
  const test = message.type === "test";
  await worker.registration.showNotification(test ? "Notifications work" : "A question waits", {
    body: test ? "Maestro tells you here when a question waits." : "Open it to answer.",
    icon: NOTIFICATION_ICON,
    badge: NOTIFICATION_BADGE,
    tag: test ? "test" : questionTag(link),
    data: { link },
  });
}

// open shows a link in an open page, which keeps the prompt that is being written there, or in a new page.
async function open(link: string): Promise<void> {
  const url = new URL(link, location.origin);
  const [page] = url.origin === location.origin ? await worker.clients.matchAll({ type: "window" }) : [];
  if (!page) {
    await worker.clients.openWindow(url.href);
    return;
  }
  page.postMessage({ open: url.pathname + url.search + url.hash });
  await page.focus();
}
