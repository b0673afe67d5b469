// Commands that people run in the workspace: the dialog that asks for one, and their lines in the conversation.
import { useMemo, useRef, useState } from "preact/hooks";
import type { CommandItem } from "../client/index.ts";
import { plain } from "./ansi";
import { Dialog } from "./dialog";
import { mayWrite } from "./draft";
import { clock, duration } from "./format";
import { compareCommand } from "./git";
import { Icon, type Outcome } from "./icons";
import { useSeen } from "./keys";
import { Text } from "./long";
import { NeedsControl } from "./needs";
import { Omitted, Preview, previewed, useOutput } from "./output";
import type { Row } from "./rows";
import { running } from "./side";
import { act, control, driving, nameOf, session } from "./store";
import { oneLine } from "./tools";
import { toEnd } from "./transcript";

const earlier: string[] = []; // commands that were run from this page, the latest first
const mostEarlier = 50;
const longest = 100_000; // characters, which the server accepts

export function RunCommand() {
  return running.value ? <Ask /> : null;
}

function Ask() {
  const [text, setText] = useState("");
  const at = useRef(-1); // the earlier command that the arrows brought back
  const close = () => {
    running.value = false;
  };
  const run = () => {
    const command = text.trim();
    if (!command) return;
    earlier.splice(0, earlier.length, ...[command, ...earlier.filter((c) => c !== command)].slice(0, mostEarlier));
    close();
    toEnd();
    void driving((s) => s.utilities.run(command).started);
  };
  return (
    <Dialog class="palette run" label="Run a command" close={close}>
      {mayWrite() ? (
        <form
          onSubmit={(e) => {
            e.preventDefault();
            run();
          }}
        >
          <textarea
            class="field mono"
            rows={1}
            aria-label="Command"
            placeholder="Command to run in the workspace"
            autocapitalize="off"
            autocomplete="off"
            spellcheck={false}
            maxLength={longest}
            value={text}
            ref={(field) => field?.focus()}
            onInput={(e) => setText(e.currentTarget.value)}
            onKeyDown={(e) => {
              const step = { ArrowUp: 1, ArrowDown: -1 }[e.key];
              const browses = text === "" || text === earlier[at.current];
              if (step && browses) {
                at.current = Math.min(Math.max((text === "" ? -1 : at.current) + step, -1), earlier.length - 1);
                setText(earlier[at.current] ?? "");
              } else if (e.key === "Enter" && !e.shiftKey && !e.isComposing) run();
              else return;
              e.preventDefault();
            }}
          />
          <div class="bar">
            <p class="meta grow">
              It runs as the user of the server, not in a sandbox. Everyone who watches sees it and its output.
            </p>
            <button type="submit" class="button primary" disabled={text.trim() === ""}>
              Run
            </button>
          </div>
        </form>
      ) : (
        <NeedsControl what="run commands" />
      )}
    </Dialog>
  );
}

function outcome({ exit, stopped, endedLater }: CommandItem): Outcome {
  if (exit?.success) return { sign: "check", tone: "good", word: "exit 0" };
  if (exit?.signal) return { sign: "stop", tone: "", word: `ended by ${exit.signal}` };
  if (exit?.exit_code != null) return { sign: "cross", tone: "bad", word: `exit ${exit.exit_code}` };
  if (exit) return { sign: "cross", tone: "bad", word: exit.reason ? "not started" : "failed" };
  if (stopped) return { sign: "stop", tone: "", word: "stopped" };
  if (endedLater) return { sign: "right", tone: "", word: "ended later" };
  return { sign: "run", tone: "spin", word: "runs" };
}

const liveSize = 64 << 10; // characters of the output that are drawn while it grows

export function CommandLine({
  row: { item },
  open,
  toggle,
}: {
  row: Extract<Row, { kind: "command" }>;
  open: boolean;
  toggle: () => void;
}) {
  const { start, exit, version } = item;
  const { sign, tone, word } = outcome(item);
  const over = exit !== undefined || item.stopped || item.endedLater;
  const { text: all, omitted, readAll } = useOutput(item);
  const text = useMemo(
    () => (over && open ? all() : plain(item.output.slice(-liveSize))).replace(/\n$/, ""),
    [version, open, omitted],
  );
  const owner = start?.owner_connection_id;
  const own = owner !== undefined && owner === session.value?.me?.connectionId;
  const took = (item.endedAt ?? 0) - item.at;
  const lines = text.split("\n").length;
  const compares = start?.command === compareCommand; // its output is a list of changes for who asked
  const previews = text !== "" && (!compares || exit?.success === false);
  return (
    <div class="body command">
      <div class="command-line">
        <button type="button" class="line" aria-expanded={open} onClick={toggle}>
          <Icon sign={sign} tone={tone} label={word} />
          <span class="verb">
            {own ? "You" : ((owner && nameOf(owner)) ?? "Somebody")} {compares ? "compared" : "ran"}
          </span>
          <span class={compares ? "cut grow" : "object cut grow"}>
            {compares ? "the workspace with its last commit" : oneLine(start?.command ?? "")}
          </span>
          {over && word !== "exit 0" && <span class={`meta ${tone}`}>{word}</span>}
          {took >= 100 && <span class="meta">{duration(took)}</span>}
        </button>
        {!over && own && control.value.mine && <Stop id={item.id} />}
      </div>
      {open ? (
        <div class="inside">
          <Text look="output" text={start?.command ?? ""} exposed />
          {text !== "" && <Text look="output" text={text} label="Output" />}
          <Omitted bytes={omitted} readAll={readAll} />
          {text === "" && over && <p class="meta">There was no output.</p>}
          {exit?.reason && <p class="meta">{exit.reason}</p>}
          <p class="meta">
            Started {clock(item.at)}
            {start?.cwd && ` in ${start.cwd}`}
          </p>
        </div>
      ) : (
        previews && <Preview text={text} />
      )}
      {!open && word === "not started" && <p class="meta bad why">{exit!.reason}</p>}
      {previews && !open && lines > previewed && over && (
        <button type="button" class="button quiet all-output" onClick={toggle}>
          {item.output.length > liveSize ? "Show all of the output" : `Show all ${lines} lines`}
        </button>
      )}
    </div>
  );
}

/** Stop ends a command, and after a second click at once. */
function Stop({ id }: { id: string }) {
  const [asked, setAsked] = useState(false);
  const seen = useSeen(asked);
  return (
    <button
      type="button"
      class="button"
      onClick={() => {
        if (asked && !seen) return; // the second click of a double click
        setAsked(true);
        void act((s) => s.send({ type: "utility_command_terminate", command_id: id, force: asked || undefined }));
      }}
    >
      <Icon sign="stop" />
      {asked ? "Stop at once" : "Stop"}
    </button>
  );
}
