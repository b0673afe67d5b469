// The prompts that wait. The person who drives can edit, move and remove them.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { QueuedPrompt } from "../../contracts/ts/maestro";
import { oneLine } from "./tools";
import { plural, who } from "./format";
import { Icon, type Sign } from "./icons";
import { addDraft } from "./kept";
import { act, control, moment, openID, people, you } from "./store";

export function Queue() {
  const prompts = people.value?.queue ?? [];
  const held = people.value?.queue_held ?? false;
  const mine = control.value.mine && !moment.value;
  if (prompts.length === 0) return null;
  return (
    <section class="queue" aria-label="Prompts that wait">
      <ol>
        {prompts.map((p, i) => (
          <Waiting
            key={p.prompt_id}
            prompt={p}
            mine={mine}
            up={prompts[i - 1]?.prompt_id}
            down={i + 1 < prompts.length ? (prompts[i + 2]?.prompt_id ?? null) : undefined}
          />
        ))}
      </ol>
      {held && (
        <p class="meta">
          {plural(prompts.length, "prompt")} held since somebody stopped the agent.
          {mine && (
            <button type="button" class="button quiet" onClick={() => void act((s) => s.queue.resume())}>
              Go on
            </button>
          )}
        </p>
      )}
    </section>
  );
}

// up and down are what the prompt would stand before after a move; null is the end, undefined no move.
type Props = { prompt: QueuedPrompt; mine: boolean; up: string | undefined; down: string | null | undefined };

function Waiting({ prompt: p, mine, up, down }: Props) {
  const [editing, setEditing] = useState(false);
  const id = p.prompt_id;
  const line = oneLine(p.content);
  if (editing && mine) return <Edit prompt={p} close={() => setEditing(false)} />;
  const move = (before: string | null) => void act((s) => s.queue.move(id, before));
  const button = (sign: Sign, what: string, run: () => void) => (
    <button
      type="button"
      class="button quiet square"
      title={what}
      aria-label={`${what} the prompt ${line.slice(0, 60)}`}
      onClick={run}
    >
      <Icon sign={sign} />
    </button>
  );
  return (
    <li>
      <span class="meta">{p.when === "steer" ? "Steers" : "Waits"}</span>
      <span class="cut grow" title={p.content}>
        {line}
      </span>
      <span class="meta only-wide">{you(p.author) ? "you" : who(p.author)}</span>
      {mine && (
        <span class="acts">
          {up !== undefined && button("up", "Move up", () => move(up))}
          {down !== undefined && button("down", "Move down", () => move(down))}
          {!p.truncated && button("pen", "Edit", () => setEditing(true))}
          {button("cross", "Remove", () => void act((s) => s.queue.cancel(id)))}
        </span>
      )}
    </li>
  );
}

function Edit({ prompt: p, close }: { prompt: QueuedPrompt; close: () => void }) {
  const [text, setText] = useState(p.content);
  const now = useRef(text);
  now.current = text;
  const done = useRef(Promise.resolve(false)); // saved or given up
  // The prompt may leave the queue meanwhile, or the queue the screen. Then the text is being written in its session.
  useLayoutEffect(() => {
    const id = openID.peek()!;
    return () => {
      close();
      void done.current.then((is) => {
        if (!is && now.current !== p.content) addDraft(id, now.current);
      });
    };
  }, []);
  const cancel = () => {
    done.current = Promise.resolve(true);
    close();
  };
  const save = async () => {
    const content = text.trim();
    if (!content) return;
    done.current = content === p.content ? Promise.resolve(true) : act((s) => s.queue.edit(p.prompt_id, content));
    if (await done.current) close();
  };
  return (
    <li class="edit">
      <textarea
        class="field"
        aria-label="Content of the prompt that waits"
        rows={Math.min(6, text.split("\n").length + 1)}
        value={text}
        ref={(a) => {
          if (a && !a.dataset.shown) {
            a.dataset.shown = "yes";
            a.focus();
          }
        }}
        onInput={(e) => setText(e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key === "Escape") cancel();
          if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
          e.preventDefault();
          void save();
        }}
      />
      <button type="button" class="button" onClick={cancel}>
        Cancel
      </button>
      <button type="button" class="button primary" disabled={text.trim() === ""} onClick={() => void save()}>
        Save
      </button>
    </li>
  );
}
