// Notifications of this browser: whether they are possible, Web Push while no page is open, and those of the page
// itself while it is in the background.
import { computed, effect, signal } from "@preact/signals";
import { Refusal, type PushAnswer } from "../client/index.ts";
import { inbox, keyOf, needed, questions } from "./lists";
import { isQuiet, parseQuiet } from "./quiet";
import { inWords, logout, role, server, stage, whoAmI } from "./store";
import { ownScript, SERVICE_WORKER } from "./trusted";

const kept = "maestro.notify";

/** The settings of the notifications of this browser. */
interface Wish {
  /** such as 22:00-07:00; empty: none */
  quietHours: string;
}

/** wish is null while notifications are off. */
export const wish = signal<Wish | null>(stored());

function stored(): Wish | null {
  try {
    const { quietHours } = JSON.parse(localStorage.getItem(kept) ?? "null") as Wish;
    return { quietHours: parseQuiet(quietHours) ? quietHours : "" };
  } catch {
    return null; // off
  }
}

/** reach says when notifications arrive, and why not always; working while that is looked up. */
type Reach = { when: "always" | "page" | "working" | "never"; why?: string };
export const reach = signal<Reach>({ when: "working" });

/** permission is the one that the browser has for the page. It may change outside of the page. */
const permission = signal(globalThis.Notification?.permission ?? "denied");
void navigator.permissions
  ?.query({ name: "notifications" })
  .then((status) => {
    status.onchange = () => {
      permission.value = Notification.permission;
    };
  })
  .catch(() => {}); // the browser does not tell

/** installed reports whether the page runs as an app. */
export const installed = matchMedia("(display-mode: standalone)").matches;
/** apple reports whether the system is that of an iPhone or iPad. */
export const apple =
  /iP(hone|ad|od)/.test(navigator.userAgent) || (/Mac/.test(navigator.platform) && navigator.maxTouchPoints > 1);

/** impossible says why this browser cannot notify, and what to do; empty if it can. */
export const impossible = computed(() => {
  if (role.value === "viewer") return "Your link lets you watch. Nobody asks you a question.";
  if (!isSecureContext) {
    return (
      "Browsers show notifications only over HTTPS and on localhost. Open Maestro at an https address. " +
      "Its operator can serve one with --tls-cert or --behind-tls."
    );
  }
  if (apple && !installed) {
    return (
      "On this device, notifications are for apps on the home screen. In Safari, choose Share and Add to Home " +
      "Screen. Then open Maestro from there and come back to this place."
    );
  }
  if (!("Notification" in globalThis) || !("serviceWorker" in navigator)) {
    return "This browser has no notifications for web pages. Current Firefox, Chrome and Safari have.";
  }
  if (permission.value === "denied") {
    return (
      "This browser blocks notifications of this page. Open the settings of the page with the sign in front of the " +
      "address, allow notifications, and come back to this place."
    );
  }
  return "";
});

/** turnOn asks for the permission of the person, and notifies from then on. Call it only for a click. */
export async function turnOn(): Promise<void> {
  permission.value = await Notification.requestPermission();
  if (permission.value === "granted") return change({ quietHours: "" });
  if (permission.value === "default") {
    throw new Refusal("access_denied", "Notifications stay off until you allow them when the browser asks.");
  }
}

/** change keeps a wish, and tells it to the server. */
export async function change(next: Wish): Promise<void> {
  wish.value = next;
  localStorage.setItem(kept, JSON.stringify(next));
  await register();
}

export async function turnOff(): Promise<void> {
  wish.value = null;
  localStorage.removeItem(kept);
  const service = await navigator.serviceWorker?.getRegistration();
  if (!service) return;
  const subscription = await service.pushManager?.getSubscription();
  if (subscription) {
    await subscription.unsubscribe();
    await server.unsubscribe(subscription.endpoint).catch(() => {}); // the push service tells the server too
  }
  await service.unregister();
}

/** logOut logs out and ends the notifications of this browser, because they are for the person who is logged in. */
export async function logOut(): Promise<void> {
  const wanted = wish.peek();
  await turnOff().catch(() => {}); // such as without a connection
  if (!(await logout()) && wanted) await change(wanted);
}

let registering: Promise<void> = Promise.resolve();

// register makes sure that the server knows this browser with its present wish. Each load of the page calls it, because
// browsers, push services and servers forget registrations.
function register(): Promise<void> {
  registering = registering.then(once, once);
  return registering;
}

async function once(): Promise<void> {
  const wanted = wish.peek();
  if (!wanted || impossible.peek() || permission.peek() !== "granted") {
    reach.value = { when: "never" };
    return;
  }
  reach.value = { when: "working" };
  try {
    await navigator.serviceWorker.register(ownScript(SERVICE_WORKER));
    const service = await navigator.serviceWorker.ready;
    if (!whoAmI.peek()?.web_push) {
      reach.value = { when: "page", why: "This server sends no Web Push. Its operator can start it with --notify." };
      return;
    }
    if (!service.pushManager) throw new Error("this browser has none");
    await subscribe(service.pushManager, wanted, await server.push());
    reach.value = { when: "always" };
  } catch (err) {
    reach.value = { when: "page", why: whyNot(err) };
  }
}

async function subscribe(manager: PushManager, wanted: Wish, known: PushAnswer): Promise<void> {
  const key = fromBase64URL(known.public_key);
  let subscription = await manager.getSubscription();
  const old = subscription?.options.applicationServerKey;
  if (subscription && old && toHex(new Uint8Array(old)) !== toHex(key)) {
    await subscription.unsubscribe(); // the server has another key since
    subscription = null;
  }
  subscription ??= await manager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  const sum = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(subscription.endpoint));
  const id = toHex(new Uint8Array(sum));
  const timeZone = wanted.quietHours ? Intl.DateTimeFormat().resolvedOptions().timeZone : "";
  const same = known.browsers.some(
    (b) => b.id === id && (b.quiet_hours ?? "") === wanted.quietHours && (b.time_zone ?? "") === timeZone,
  );
  if (same) return;
  const { endpoint, keys } = subscription.toJSON();
  await server.subscribe({
    endpoint: endpoint!,
    keys: { p256dh: keys!.p256dh!, auth: keys!.auth! },
    quietHours: wanted.quietHours || undefined,
    timeZone: timeZone || undefined,
  });
}

function whyNot(err: unknown): string {
  if (err instanceof Refusal && err.code === "rate_limited") {
    return "You have notifications in too many browsers. Turn them off in one of them.";
  }
  return `Web Push does not work here: ${err instanceof Refusal ? inWords(err) : (err as Error).message}`;
}

/** test sends a notification on the same way as questions. It returns why that failed; empty if it was sent. */
export async function test(): Promise<string> {
  try {
    const service = await navigator.serviceWorker.ready;
    if (reach.peek().when === "always") {
      const subscription = await service.pushManager.getSubscription();
      await server.subscribe({ endpoint: subscription?.endpoint ?? "", test: true });
    } else {
      await show(service, "Notifications work", "Maestro tells you here when a question waits.", "test");
    }
    return "";
  } catch (err) {
    void register();
    return err instanceof Refusal ? inWords(err) : (err as Error).message;
  }
}

function show(service: ServiceWorkerRegistration, title: string, body: string, tag: string, link = ""): Promise<void> {
  const icon = document.querySelector<HTMLLinkElement>('link[rel="apple-touch-icon"]')!.href;
  return service.showNotification(title, { body, icon, tag, data: { link } });
}

function fromBase64URL(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
}

const toHex = (bytes: Uint8Array) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");

// The page tells of new questions itself while it is in the background, and takes back what was answered. The system
// shows one notification if Web Push tells of the same question.
let told: Set<string> | undefined; // the questions that were open before; undefined until the first list
effect(() => {
  const now = questions.value;
  if (inbox.value !== "online") return;
  const before = told;
  told = new Set(now.map(keyOf));
  if (!before || !wish.peek() || permission.peek() !== "granted") return;
  const added = now.filter((q) => !before.has(keyOf(q)));
  const ended = [...before].filter((key) => !told!.has(key));
  void navigator.serviceWorker.getRegistration().then(async (service) => {
    if (!service) return;
    for (const tag of ended) for (const shown of await service.getNotifications({ tag })) shown.close();
    if (document.visibilityState !== "hidden" || isQuiet(wish.peek()?.quietHours ?? "", timeOfDay())) return;
    for (const q of added.slice(0, 3)) {
      const link = `/inbox?${new URLSearchParams({ session: q.session_id, request: q.request_id })}`;
      await show(service, "A question waits", q.session_title || "New session", keyOf(q), link);
    }
  });
});

const timeOfDay = () => new Date().toTimeString().slice(0, 5);

/** startNotifying follows what a notification opens, and renews the registration of this browser. */
export function startNotifying(): void {
  navigator.serviceWorker?.addEventListener("message", ({ data }: MessageEvent<{ open?: string }>) => {
    const url = new URL(data.open ?? "", location.origin);
    if (url.origin !== location.origin) return;
    location.hash = url.pathname === "/inbox" ? `inbox&${url.search.slice(1)}` : url.hash;
  });
  navigator.serviceWorker?.startMessages();
  effect(() => {
    if (stage.value === "open" && !impossible.value) void register();
  });
  effect(() => {
    const n = needed.value;
    if (installed) void (navigator as { setAppBadge?(n: number): Promise<void> }).setAppBadge?.(n);
  });
}
