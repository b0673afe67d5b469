/** A Schedule runs a function soon, once. */
export type Schedule = (run: () => void) => void;

/** Where the page runs; everything is optional, so that it works in Node. */
export interface Surroundings {
  document?: EventTarget & { visibilityState?: string };
  window?: EventTarget;
}

/** surroundings returns those of the page, or none outside of a page. */
export function surroundings(): Surroundings {
  const g = globalThis as { document?: Document; window?: Window };
  return g.document && g.window ? { document: g.document, window: g.window } : {};
}

// Announcements of a stream: so many milliseconds from one to the next, on average of this time.
const pace = 30;
const burst = 120;

/**
 * frames returns a schedule that runs once in an animation frame, about 30 times a second while there is always
 * something to run: a page that draws each frame of a stream has no time for anything else on a slow machine. Pages
 * in the background have no frames, so a timer runs there instead. Outside of a page it runs in a microtask.
 */
export function frames(): Schedule {
  const g = globalThis as { requestAnimationFrame?: (f: () => void) => number };
  if (!g.requestAnimationFrame) return queueMicrotask;
  let due = 0;
  return (run) => {
    const now = performance.now();
    due = Math.max(due, now - burst) + pace;
    let done = false;
    const once = () => {
      if (done) return;
      done = true;
      clearTimeout(timer);
      run();
    };
    const timer = setTimeout(once, 250);
    const next = () => g.requestAnimationFrame!(once);
    if (due <= now) next();
    else setTimeout(next, due - now);
  };
}

/** A Listeners holds the listeners of one kind of news. */
export interface Listeners<T> {
  /** adds a listener; the result removes it */
  add(listen: (news: T) => void): () => void;
  tell(news: T): void;
  clear(): void;
}

/** call runs a listener. Its error is reported as uncaught, like that of an event listener. */
export function call<T>(listen: (news: T) => void, news: T): void {
  try {
    listen(news);
  } catch (err) {
    queueMicrotask(() => {
      throw err;
    });
  }
}

/** newListeners makes a list of listeners. An error of one listener does not reach the others. */
export function newListeners<T>(): Listeners<T> {
  const all = new Set<(news: T) => void>();
  return {
    add(listen) {
      const own = (news: T) => listen(news); // so that the same function can be added twice
      all.add(own);
      return () => void all.delete(own);
    },
    tell(news) {
      for (const listen of [...all]) call(listen, news);
    },
    clear: () => all.clear(),
  };
}

/**
 * onWake calls run when the page comes back from sleep or the background, and when it loses or finds its network. A page
 * that was left wakes only when it is shown again: another one may have its place.
 */
export function onWake(around: Surroundings, run: () => void): () => void {
  let left = false;
  const network = () => {
    if (!left) run();
  };
  const visible = () => {
    if (around.document?.visibilityState !== "hidden") network();
  };
  const leave = () => {
    left = true;
  };
  const show = () => {
    left = false;
    run();
  };
  const listeners = { online: network, offline: network, pagehide: leave, pageshow: show };
  around.document?.addEventListener("visibilitychange", visible);
  for (const [name, listen] of Object.entries(listeners)) around.window?.addEventListener(name, listen);
  return () => {
    around.document?.removeEventListener("visibilitychange", visible);
    for (const [name, listen] of Object.entries(listeners)) around.window?.removeEventListener(name, listen);
  };
}

/**
 * backoff returns delays in milliseconds that double from 250 to 10,000, each shortened by up to half at
 * random, so that the clients of a restarted server do not return at once.
 */
export function backoff(random: () => number = Math.random) {
  let last = 0;
  return {
    next(atLeast = 0): number {
      last = Math.min(Math.max(2 * last, 250), 10_000);
      return Math.max(last - (random() * last) / 2, atLeast);
    },
    reset(): void {
      last = 0;
    },
  };
}
