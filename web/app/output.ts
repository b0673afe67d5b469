// The output of a tool or command, which the history may have cut.
import { useState } from "preact/hooks";
import type { CommandItem, ToolItem } from "../client/index.ts";
import { plain } from "./ansi";
import { act } from "./store";

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
