// The settings of this browser, and the version of the server.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { Dialog, DialogHead } from "./dialog";
import { Icon } from "./icons";
import { apple, change, impossible, installed, logOut, reach, test, turnOff, turnOn, wish } from "./notify";
import { parseQuiet } from "./quiet";
import { inWords, ownName, setName, whoAmI } from "./store";

/** settingsOpen is set to show the settings. */
export const settingsOpen = signal(false);

/** An InstallPrompt is the event with which a browser offers to install the page. */
interface InstallPrompt extends Event {
  prompt(): Promise<unknown>;
}
const install = signal<InstallPrompt | null>(null);
addEventListener("beforeinstallprompt", (e) => {
  e.preventDefault(); // the settings offer it
  install.value = e as InstallPrompt;
});
addEventListener("appinstalled", () => {
  install.value = null;
});

export function Settings() {
  const close = () => {
    settingsOpen.value = false;
  };
  return (
    <Dialog class="settings" label="Settings" close={close}>
      <DialogHead title="Settings" close={close} />
      <Name />
      <Appearance />
      <Notifications />
      <App />
      <About />
      <footer>
        <button
          type="button"
          class="button"
          onClick={() => {
            close(); // the page says if it fails
            void logOut();
          }}
        >
          Log out
        </button>
        <span class="meta">Logs out all tabs of this browser and ends its notifications.</span>
      </footer>
    </Dialog>
  );
}

function Name() {
  return (
    <section>
      <h3>
        <label for="own-name">Your name</label>
      </h3>
      <div>
        <input
          id="own-name"
          class="field"
          defaultValue={ownName()}
          maxLength={60}
          placeholder="Name"
          autocomplete="name"
          aria-describedby="own-name-about"
          onChange={(e) => setName(e.currentTarget.value)}
        />
        <p id="own-name-about" class="meta">
          Others in a session see it beside what you do.
        </p>
      </div>
    </section>
  );
}

const themes = [
  ["system", "System"],
  ["light", "Light"],
  ["dark", "Dark"],
] as const;

/** chooseTheme changes the theme, or without one switches between light and dark; theme.ts does it. */
export function chooseTheme(next?: string): void {
  document.dispatchEvent(new CustomEvent("maestro:theme", { detail: next }));
}

function Appearance() {
  const [theme, setTheme] = useState(localStorage.getItem("maestro.theme") ?? "system");
  return (
    <section role="radiogroup" aria-labelledby="theme-title">
      <h3 id="theme-title">Theme</h3>
      <div class="segments">
        {themes.map(([value, words]) => (
          <label key={value}>
            <input
              type="radio"
              name="theme"
              checked={theme === value}
              onChange={() => {
                chooseTheme(value);
                setTheme(value);
              }}
            />
            <span>{words}</span>
          </label>
        ))}
      </div>
    </section>
  );
}

const arrives: Record<ReturnType<typeof reach.peek>["when"], string> = {
  always: "They arrive also while no page of Maestro is open.",
  page: "They arrive only while a page of Maestro is open in the background.",
  working: "Setting up…",
  never: "",
};

function Notifications() {
  const on = wish.value !== null && impossible.value === "";
  const [refused, setRefused] = useState("");
  const [said, setSaid] = useState("");
  const attempt = (what: () => Promise<void>) => {
    setSaid("");
    what().then(
      () => setRefused(""),
      (err) => setRefused(inWords(err)),
    );
  };
  return (
    <section>
      <h3 id="notify-title">Notifications</h3>
      <div>
        <label class="check">
          <input
            type="checkbox"
            role="switch"
            checked={on}
            disabled={impossible.value !== ""}
            aria-describedby="notify-about"
            onChange={(e) => {
              attempt(e.currentTarget.checked ? turnOn : turnOff);
              e.currentTarget.checked = on; // until it is done
            }}
          />
          <span>Tell this browser when a question waits</span>
        </label>
        <p id="notify-about" class="meta" role="status">
          {impossible.value ||
            (on
              ? [arrives[reach.value.when], reach.value.why].filter(Boolean).join(" ")
              : "A notification has a link, and nothing of the question.")}
        </p>
        {on && <Quiet attempt={attempt} />}
        {on && (
          <p class="row-of">
            <button
              type="button"
              class="button"
              disabled={reach.value.when === "working"}
              onClick={() =>
                attempt(async () => {
                  const why = await test();
                  setSaid(why ? `Not sent: ${why}` : "Sent. If nothing appears, look at the settings of your system.");
                })
              }
            >
              Send a test
            </button>
            <span class="meta" role="status">
              {said}
            </span>
          </p>
        )}
        {refused && (
          <p class="refused" role="alert">
            <Icon sign="alert" /> {refused}
          </p>
        )}
      </div>
    </section>
  );
}

function Quiet({ attempt }: { attempt: (what: () => Promise<void>) => void }) {
  const hours = parseQuiet(wish.value!.quietHours);
  const [from, to] = hours ?? ["22:00", "07:00"];
  const set = (next: [string, string] | undefined) => {
    const quietHours = next?.join("-") ?? "";
    if (quietHours === "" || parseQuiet(quietHours)) attempt(() => change({ quietHours })); // a field may be empty
  };
  return (
    <div class="quiet-hours">
      <label class="check">
        <input
          type="checkbox"
          checked={hours !== undefined}
          onChange={(e) => set(e.currentTarget.checked ? [from, to] : undefined)}
        />
        <span>Quiet hours</span>
      </label>
      {hours && (
        <span class="times">
          <input
            type="time"
            class="field"
            aria-label="Quiet from"
            value={from}
            onChange={(e) => set([e.currentTarget.value, to])}
          />
          <span class="meta">to</span>
          <input
            type="time"
            class="field"
            aria-label="Quiet until"
            value={to}
            onChange={(e) => set([from, e.currentTarget.value])}
          />
        </span>
      )}
    </div>
  );
}

function App() {
  return (
    <section>
      <h3>App</h3>
      <div>
        {install.value ? (
          <>
            <button
              type="button"
              class="button"
              onClick={() => {
                void install.value!.prompt();
                install.value = null; // a browser asks once, and may offer it again
              }}
            >
              Install Maestro
            </button>
            <p class="meta">It gets a window and an icon of its own.</p>
          </>
        ) : (
          <p class="meta">{installWords()}</p>
        )}
      </div>
    </section>
  );
}

function installWords(): string {
  if (installed) return "Maestro runs as an app.";
  if (!isSecureContext) return "Browsers install apps only from HTTPS and from localhost.";
  if (apple) return "In Safari, choose Share and Add to Home Screen.";
  return (
    "Maestro can be an app with its own window: choose Install or Add to home screen in the menu of the browser. " +
    "If it is not there, Maestro is installed already or the browser installs no apps."
  );
}

function About() {
  return (
    <section>
      <h3>About</h3>
      <p class="meta">
        Maestro {whoAmI.value?.version}
        <br />
        <a href="/assets/licenses.txt" target="_blank" rel="noreferrer">
          Licenses of the page
        </a>
      </p>
    </section>
  );
}
