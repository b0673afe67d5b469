// The output of a tool or command. The history may have cut it.
import { useState } from "preact/hooks";
import type { CommandItem, ToolItem } from "../client/index.ts";
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
  const [whole, setWhole] = useState<string | null>(null);
  return {
    /** without what only a terminal understands */
    text: () => plain(whole ?? item.output),
    /** bytes or characters that are not in the text */
    omitted: whole === null ? item.omitted : 0,
    /** reads all of it, if the server has it */
    readAll:
      whole === null && item.cutAt.length > 0
        ? () =>
            void act(async (s) => {
              const pages = await Promise.all(
                item.cutAt.map((cursor) => s.history({ before: cursor + 1, limit: 1, full: true })),
              );
              const texts = pages.flatMap((p) => p.entries ?? []).map(({ message: m }) => m);
              setWhole(
                texts
                  .map((m) => (m?.type === "tool_output" || m?.type === "utility_command_output" ? m.content : ""))
                  .join(""),
              );
            })
        : undefined,
  };
}
