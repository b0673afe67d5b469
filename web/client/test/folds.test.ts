import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { newFold } from "../fold.ts";
import type { Event, Snapshot } from "../index.ts";

test("the fold makes the state that the server makes of the same events", () => {
  const lines = readFileSync(process.env.FOLDS!, "utf8").trim().split("\n"); // written by client_test.go
  const seen = new Set<string>();
  for (const line of lines) {
    const { events, snapshot } = JSON.parse(line) as { events: Event[]; snapshot: Snapshot };
    const fold = newFold();
    for (const e of events) {
      seen.add(e.type);
      fold.apply(e);
    }
    assert.deepEqual(JSON.parse(JSON.stringify(fold.snapshot())), snapshot.state);
  }
  assert.ok(seen.size > 30, `${seen.size} types of events`);
});
