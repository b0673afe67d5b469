// The output of a tool or command. The history may have cut it.
import { useState } from "preact/hooks";
import { wholeOutput, type CommandItem, type ToolItem } from "../client/items.ts";
import { plain } from "./ansi";
import { bytes } from "./format";
import { act } from "./store";

export const previewed = 8; // lines below a folded call or command

/** Preview shows the last lines of an output. */
export function Preview({ text }: { text: string }) {
  return (
    <pre class="output live" aria-hidden="true">
      {text.replace(/\n$/, "").split("\n").slice(-previewed).join("\n")}
    </pre>
  );
}

/** Omitted says how much of an output is not shown, and reads it. */
export function Omitted({ bytes: n, readAll }: { bytes: number; readAll: (() => void) | undefined }) {
  if (n === 0) return null;
  return (
    <p class="meta">
      {bytes(n)} of the output are not shown.{" "}
      {readAll && (
        <button type="button" class="button quiet" onClick={readAll}>
          Show all
        </button>
      )}
    </p>
  );
}

export function useOutput(item: ToolItem | CommandItem) {
  const [read, setRead] = useState<ReadonlyMap<number, string>>(new Map()); // for the cuts, by cursor
  const { text, omitted } = wholeOutput(item, read);
  const cuts = item.cuts.filter((c) => !read.has(c.cursor));
  const readAll = () =>
    void act(async (s) => {
      const texts = new Map(read);
      for (const { cursor } of cuts) {
        const [e] = (await s.history({ before: cursor + 1, limit: 1, full: true })).entries ?? [];
        const m = e?.cursor === cursor ? e.message : undefined; // else it is not stored any more
        if (m?.type === "tool_output" || m?.type === "utility_command_output") texts.set(cursor, m.content);
      }
      setRead(texts);
    });
  return {
    /** without what only a terminal understands */
    text: () => plain(text),
    /** bytes or characters that are not in the text */
    omitted,
    /** reads all of it, if the server has it */
    readAll: cuts.length > 0 ? readAll : undefined,
  };
}
