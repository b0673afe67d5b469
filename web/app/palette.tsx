// The palette: every action of the page and every session, found by a few letters.
import { createContext } from "preact";
import { useState } from "preact/hooks";
import { Dialog } from "./dialog";
import { ago } from "./format";
import { address, now, sessions } from "./store";
import { titleOf } from "./sidebar";

/** An Action is something that the page does, by its key or from the palette. */
export interface Action {
  what: string;
  key?: string;
  /** tells two with the same words apart */
  note?: string;
  run(): void;
  /** the key counts only alone, because its effect would surprise somebody who writes */
  alone?: boolean;
}

/** Actions are those of the page, for parts of it that offer them too. */
export const Actions = createContext<readonly Action[]>([]);

const most = 60; // in the list; another letter makes it shorter

/** Palette is drawn anew each time that it opens. */
export function Palette({ actions, close }: { actions: readonly Action[]; close: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [
    ...actions,
    ...sessions.value.map(
      (s): Action => ({
        what: `Open: ${titleOf(s, s.session_id)}`,
        note: ago(Date.parse(s.updated_at), now.value),
        run: () => {
          location.hash = address(s.session_id);
        },
      }),
    ),
  ];
  const found = all.filter((a) => words.every((w) => a.what.toLowerCase().includes(w))).slice(0, most);
  const chosen = Math.min(at, found.length - 1);
  const run = (a: Action | undefined) => {
    if (!a) return;
    close();
    queueMicrotask(() => a.run()); // the open dialog keeps the focus from the page
  };
  return (
    <Dialog class="palette" label="Commands" close={close}>
      <input
        class="field"
        role="combobox"
        aria-label="Command or session"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={chosen >= 0 ? `palette-${chosen}` : undefined}
        placeholder="What to do, or a session"
        value={text}
        onInput={(e) => {
          setText(e.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={(e) => {
          const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
          if (step) setAt((chosen + step + found.length) % Math.max(1, found.length));
          else if (e.key === "Enter") run(found[chosen]);
          else return;
          e.preventDefault();
        }}
      />
      <ul id="palette-list" role="listbox" aria-label="Commands">
        {found.map((a, i) => (
          <li
            key={i}
            id={`palette-${i}`}
            role="option"
            aria-selected={i === chosen}
            ref={(li) => {
              if (i === chosen) li?.scrollIntoView({ block: "nearest" });
            }}
            onMouseMove={() => setAt(i)}
            onClick={() => run(a)}
          >
            <span class="grow cut">{a.what}</span>
            {a.note && <span class="meta">{a.note}</span>}
            {a.key && <kbd class="key">{a.key}</kbd>}
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="meta">Nothing is called that.</p>}
    </Dialog>
  );
}
