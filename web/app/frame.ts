// The work of one frame is bounded. New content over the bound is drawn in later frames.

const perFrame = 16 << 10; // weight that is drawn anew in a frame

let room = perFrame;
const waiting = new Set<() => void>();
let asked = false;

function ask(): void {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    room = perFrame;
    const all = [...waiting];
    waiting.clear();
    for (const run of all) run();
  });
}

/**
 * spend reports whether something of this weight, in characters, may still be drawn in this frame. The first one
 * always may.
 */
export function spend(weight: number): boolean {
  if (weight > room && room < perFrame) return false;
  room -= weight;
  ask();
  return true;
}

/** onFrame runs a function in the next frame, unless the returned one is called before. */
export function onFrame(run: () => void): () => void {
  waiting.add(run);
  ask();
  return () => waiting.delete(run);
}
