// What the page shows before the first prompt: instructions, examples, and a field if no session is open.
import { signal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { Refused } from "./composer";
import { intoPrompt, mayWrite, send } from "./draft";
import { Icon } from "./icons";
import { draft, setDraft } from "./kept";
import { coarse } from "./screen";
import { createSession, listLink, moment, role, sessions, state } from "./store";

/** isShell reports whether the agent of the open session is the shell, which runs each prompt as a command. */
export const isShell = () => state.value?.provider === "local" && state.value.model === "shell";

const commands = () => ["ls -la", state.value?.git_branch ? "git status" : "pwd", "date"];
const wishes = ["What does this project do?", "Run the tests and fix what fails", "Find a bug in the last change"];

/** NothingSaid fills the conversation of a session without a prompt. */
export function NothingSaid() {
  if (moment.value) {
    return (
      <div class="nothing">
        <h2>Nothing had been said yet</h2>
      </div>
    );
  }
  if (!mayWrite()) {
    return (
      <div class="nothing">
        <h2>Nothing was said here yet</h2>
        <p>What others ask the agent appears here.</p>
      </div>
    );
  }
  const shell = isShell();
  return (
    <div class="nothing">
      <h2>{shell ? "Write a command below" : "Write below what the agent should do"}</h2>
      <p>
        {shell
          ? "This agent is a shell. It asks you before it runs the command."
          : "It asks you before it does something that needs your consent."}
      </p>
      <ul class="examples" aria-label="Examples">
        {(shell ? commands() : wishes).map((text) => (
          <li key={text}>
            <button
              type="button"
              class={shell ? "button mono" : "button"}
              onClick={() => intoPrompt(text)}
            >
              {text}
            </button>
          </li>
        ))}
      </ul>
      {shell && (
        <p class="meta">
          For a coding agent, start the server with <code>--agent</code>.
        </p>
      )}
    </div>
  );
}

const beginning = signal(false);

/** begin makes a session and sends its first prompt. */
async function begin(prompt: string): Promise<void> {
  beginning.value = true;
  if (await createSession(true)) {
    setDraft("", "");
    void send(prompt);
  }
  beginning.value = false;
}

/** Begin fills the page while no session is open. A prompt there makes a session. */
export function Begin() {
  const text = draft("");
  const busy = beginning.value;
  const online = listLink.value.status === "online";
  const ready = useRef(false); // the list was read once; before, its first session may open
  ready.current ||= online;
  const none = sessions.value.length === 0 && online;
  if (!ready.current) return <div class="nothing" />;
  if (role.value !== "controller") {
    return (
      <div class="nothing">
        <h2>{none ? "No sessions yet" : "Choose a session"}</h2>
        <p>{none ? "They appear here when somebody starts one." : "Those that need you come first."}</p>
      </div>
    );
  }
  const submit = () => {
    if (text.trim() !== "" && !busy) void begin(text.trim());
  };
  return (
    <div class="nothing">
      <h2>{none ? "What should the agent do?" : "Choose a session, or begin one"}</h2>
      <p>Write a prompt. The agent asks you before it does something that needs your consent.</p>
      <form
        class="composer begin"
        onSubmit={(e) => {
          e.preventDefault();
          submit();
        }}
      >
        <textarea
          rows={2}
          aria-label="Prompt"
          placeholder="Ask the agent to do something"
          value={text}
          readOnly={busy}
          ref={(t) => {
            if (t && document.activeElement === document.body && !coarse.peek()) t.focus();
          }}
          onInput={(e) => setDraft("", e.currentTarget.value)}
          onKeyDown={(e) => {
            if (e.key !== "Enter" || e.shiftKey || e.isComposing || coarse.peek()) return;
            e.preventDefault();
            submit();
          }}
        />
        <div class="bar">
          <span class="meta grow cut only-wide">Enter sends, Shift+Enter starts a line</span>
          <span class="grow only-narrow" />
          <button type="submit" class="button primary" disabled={busy || text.trim() === ""}>
            <Icon sign="send" />
            Send
          </button>
        </div>
      </form>
      <Refused />
    </div>
  );
}
