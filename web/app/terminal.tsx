// The pane with the terminals of the session, below the conversation; on a phone a sheet.
import { useSignalEffect } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { plural } from "./format";
import { Icon, type Sign } from "./icons";
import { dialogOpen } from "./keys";
import { control, driving, loaded, pending, session } from "./store";
import type { Key, Size } from "./terminal-screen";
import {
  activeID,
  aloud,
  ctrl,
  describe,
  endTerminal,
  entering,
  isMine,
  mayStart,
  mayType,
  pointed,
  press,
  readAloud,
  ready,
  screenOf,
  selecting,
  showTerminals,
  shown,
  sizeTerminal,
  startTerminal,
  type Tab,
  tabOf,
  tabs,
  trouble,
} from "./terminals";

const heightKey = "maestro.terminals.height";
const least = 120; // pixels of the pane
const room = 240; // pixels that the conversation keeps

export function TerminalButton() {
  const n = tabs.value.filter((t) => t.ended === null).length;
  return (
    <button
      type="button"
      class="button quiet square terminal-button"
      aria-label={n > 0 ? `Terminals, ${n} running` : "Terminals"}
      title="Terminals (`)"
      aria-expanded={shown.value}
      aria-controls="terminals"
      onClick={() => showTerminals()}
    >
      <Icon sign="terminal" />
      {n > 0 && <span class="count">{n}</span>}
    </button>
  );
}

/** useTerminalKey goes into the terminal and out of it from everywhere. */
export function useTerminalKey(): void {
  useLayoutEffect(() => {
    const keys = (e: KeyboardEvent) => {
      if (!(e.ctrlKey || e.metaKey) || e.code !== "Backquote" || e.defaultPrevented) return;
      if (dialogOpen()) return;
      e.preventDefault();
      showTerminals(true);
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
}

export function Terminals() {
  return shown.value && session.value ? <Pane /> : null;
}

function Pane() {
  const pane = useRef<HTMLElement>(null);
  const field = useRef<HTMLDivElement>(null);
  const [height, setHeight] = useState(() => Number(localStorage.getItem(heightKey)) || 280);
  const [ending, setEnding] = useState<Tab | null>(null);
  const tab = tabOf(activeID.value) ?? tabs.value[0];
  const screen = ready.value && tab ? screenOf(tab.id) : undefined;
  const typing = !!tab && mayType(tab);

  /** space returns the pixels that the screen may have. */
  const space = () => {
    const style = getComputedStyle(field.current!);
    const inner = (all: number, a: string, b: string) => all - parseFloat(a) - parseFloat(b);
    return [
      inner(field.current!.clientWidth, style.paddingLeft, style.paddingRight) - 14, // of the scroll bar
      inner(field.current!.clientHeight, style.paddingTop, style.paddingBottom),
    ] as const;
  };
  const measure = () => {
    if (!tab || !screen) return;
    if (mayType(tab)) sizeTerminal(tab, screen.room(...space()));
    else screen.fit(...space());
  };
  const measured = useRef(measure);
  measured.current = measure;

  useLayoutEffect(() => {
    if (!screen) return;
    field.current!.append(screen.element);
    screen.open();
    selecting.value = false;
    return () => screen.element.remove();
  }, [screen]);
  useLayoutEffect(() => screen?.typing(typing), [screen, typing]); // as soon as the line below says so
  useEffect(measure, [screen, typing, tab?.size]);
  useEffect(() => {
    const watch = new ResizeObserver(() => requestAnimationFrame(() => field.current && measured.current()));
    watch.observe(field.current!);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => setEnding(null), [tab?.id, typing]);
  // Opening the pane starts the first terminal and gives it the focus.
  useLayoutEffect(() => {
    if (!entering.value || !ready.value || !loaded.value || tab) return;
    entering.value = false;
    if (mayStart()) start();
  }, [entering.value, ready.value, loaded.value, tab]);
  useLayoutEffect(() => {
    if (!screen || !entering.value) return;
    entering.value = false;
    screen.focus();
  }, [screen, entering.value]);

  const start = () => void startTerminal(screen ? screen.room(...space()) : guess(field.current!));
  const resize = (to: number) => {
    const most = Math.max(least, pane.current!.parentElement!.clientHeight - room);
    const next = Math.round(Math.max(least, Math.min(most, to)));
    setHeight(next);
    localStorage.setItem(heightKey, String(next));
  };
  return (
    <section ref={pane} id="terminals" class="terminals" aria-label="Terminals" style={{ height: `${height}px` }}>
      <Divider height={height} resize={resize} />
      <div class="bar">
        <div class="tabs" role="tablist" aria-label="Terminals">
          {tabs.value.map((t) => (
            <TabButton key={t.id} tab={t} active={t === tab} />
          ))}
        </div>
        {mayStart() && <Tool sign="plus" label="New terminal" run={start} />}
        <span class="grow" />
        {selecting.value && screen && (
          <button type="button" class="button quiet" onClick={() => screen.copy()}>
            <Icon sign="copy" />
            Copy
          </button>
        )}
        <Tool sign="voice" label="Screen reader mode" pressed={aloud.value} run={() => readAloud(!aloud.value)} />
        {tab && (tab.ended !== null || isMine(tab)) && (
          <Tool
            sign="bin"
            label={tab.ended === null ? `End ${tab.name}` : `Put ${tab.name} away`}
            run={() => (tab.ended === null ? setEnding(tab) : void endTerminal(tab))}
          />
        )}
        <Tool sign="cross" label="Close the terminals" run={() => showTerminals(false)} />
      </div>
      {ending && <EndQuestion tab={ending} done={() => setEnding(null)} />}
      {pending.value.length > 0 && (
        <p class="strip warn only-sheet" role="status">
          <span class="grow">{plural(pending.value.length, "question waits", "questions wait")} for an answer.</span>
          <button type="button" class="button" onClick={() => showTerminals(false)}>
            Show
          </button>
        </p>
      )}
      {trouble.value && (
        <p class="strip fail" role="alert">
          <Icon sign="alert" />
          <span class="grow">{trouble.value}</span>
          <button type="button" class="button quiet" onClick={() => (trouble.value = "")}>
            Dismiss
          </button>
        </p>
      )}
      <div
        ref={field}
        class={`field-of-screen ${typing ? "" : "watched"}`}
        id="terminal-screen"
        role="tabpanel"
        aria-label={tab?.name ?? "Terminals"}
      >
        {!tab && <Empty start={start} />}
      </div>
      {tab && typing && <Keys />}
      {tab && <Line tab={tab} typing={typing} />}
    </section>
  );
}

function EndQuestion({ tab, done }: { tab: Tab; done: () => void }) {
  const keep = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => keep.current!.focus(), []);
  const answer = (end: boolean) => {
    done();
    entering.value = true;
    if (end) void endTerminal(tab);
  };
  return (
    <div
      class="strip warn"
      role="alertdialog"
      aria-label={`End ${tab.name}`}
      onKeyDown={(e) => {
        if (e.key === "Escape") answer(false);
      }}
    >
      <span class="grow">{tab.name} is still running. Ending it ends everything that runs in it.</span>
      <button ref={keep} type="button" class="button" onClick={() => answer(false)}>
        Keep it
      </button>
      <button type="button" class="button danger" onClick={() => answer(true)}>
        End it
      </button>
    </div>
  );
}

/** guess is the size of a first terminal before a screen can be measured. */
function guess(field: HTMLElement): Size {
  const columns = Math.max(20, Math.min(400, Math.floor((field.clientWidth - 32) / 8)));
  return { columns, rows: Math.max(4, Math.floor(field.clientHeight / 19)) };
}

function Tool(p: { sign: Sign; label: string; pressed?: boolean; run: () => void }) {
  return (
    <button
      type="button"
      class="button quiet square"
      aria-label={p.label}
      title={p.label}
      aria-pressed={p.pressed}
      onClick={p.run}
    >
      <Icon sign={p.sign} />
    </button>
  );
}

function TabButton({ tab, active }: { tab: Tab; active: boolean }) {
  const button = useRef<HTMLButtonElement>(null);
  const go = (by: number) => {
    const at = tabs.value.findIndex((t) => t.id === tab.id);
    const next = tabs.value[(at + by + tabs.value.length) % tabs.value.length]!;
    activeID.value = next.id;
  };
  useLayoutEffect(() => {
    if (!active) return;
    button.current!.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (document.activeElement?.getAttribute("role") === "tab") button.current!.focus();
  }, [active]);
  return (
    <button
      ref={button}
      type="button"
      role="tab"
      aria-selected={active}
      aria-controls="terminal-screen"
      tabIndex={active ? 0 : -1}
      class={tab.ended === null ? "" : "over"}
      title={tab.title || tab.command}
      onClick={() => {
        activeID.value = tab.id;
        entering.value = true;
      }}
      onKeyDown={(e) => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
        if (by) go(by);
        else if (e.key === "Enter" || e.key === "ArrowDown") entering.value = true;
        else return;
        e.preventDefault();
      }}
    >
      {tab.name}
    </button>
  );
}

function Empty({ start }: { start: () => void }) {
  return (
    <div class="nothing">
      <p>
        {mayStart()
          ? "No terminal is open. Everybody in the session sees what happens in one."
          : "No terminal is open. The person who drives can start one. You can watch it here."}
      </p>
      {mayStart() && (
        <button type="button" class="button" onClick={start}>
          New terminal
        </button>
      )}
    </div>
  );
}

/** Line says whose terminal it is, and how to leave it. */
function Line({ tab, typing }: { tab: Tab; typing: boolean }) {
  return (
    <div class="about meta">
      <span class="cut" role="status">
        {describe(tab)}
      </span>
      <span class="cut grow" dir="ltr">
        {pointed.value ?? tab.title}
      </span>
      {tab.ended === null && isMine(tab) && !control.value.mine && control.value.holder === null && (
        <button type="button" class="button quiet" onClick={() => void driving(() => Promise.resolve())}>
          Drive
        </button>
      )}
      {typing && (
        <span class="only-wide">
          <kbd class="key">Ctrl+`</kbd> leaves
        </span>
      )}
    </div>
  );
}

function Divider({ height, resize }: { height: number; resize: (to: number) => void }) {
  return (
    <div
      class="divider"
      role="separator"
      tabIndex={0}
      aria-orientation="horizontal"
      aria-label="Height of the terminals"
      aria-valuenow={height}
      aria-valuemin={least}
      aria-valuemax={Math.max(height, innerHeight - room)}
      onPointerDown={(e) => {
        e.preventDefault();
        e.currentTarget.setPointerCapture(e.pointerId);
      }}
      onPointerMove={(e) => {
        const bar = e.currentTarget;
        if (bar.hasPointerCapture(e.pointerId)) resize(bar.parentElement!.getBoundingClientRect().bottom - e.clientY);
      }}
      onKeyDown={(e) => {
        const by = { ArrowUp: 20, ArrowDown: -20, PageUp: 100, PageDown: -100, Home: 10_000, End: -10_000 }[e.key];
        if (!by) return;
        e.preventDefault();
        resize(height + by);
      }}
    />
  );
}

const row: [string, string, Key][] = [
  ["Esc", "Escape", "Escape"],
  ["Tab", "Tab", "Tab"],
  ["←", "Left", "Left"],
  ["↑", "Up", "Up"],
  ["↓", "Down", "Down"],
  ["→", "Right", "Right"],
];

/** Keys are those that the keyboard of a phone lacks. */
function Keys() {
  useSignalEffect(() => {
    if (!shown.value) ctrl.value = false;
  });
  const stay = (e: Event) => e.preventDefault(); // so that the keyboard stays open
  const button = (text: string, label: string, run: () => void, pressed?: boolean) => (
    <button
      key={label}
      type="button"
      class="button"
      aria-label={label}
      aria-pressed={pressed}
      onPointerDown={stay}
      onMouseDown={stay}
      onClick={run}
    >
      {text}
    </button>
  );
  return (
    <div class="keys" role="toolbar" aria-label="Keys">
      {row.slice(0, 2).map(([text, label, key]) => button(text, label, () => press(key)))}
      {button("Ctrl", "Control", () => (ctrl.value = !ctrl.value), ctrl.value)}
      {row.slice(2).map(([text, label, key]) => button(text, label, () => press(key)))}
    </div>
  );
}
