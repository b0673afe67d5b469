// Signs of 16 by 16, drawn as lines in the colour of the text.
const paths = {
  check: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  open: "M8 13a5 5 0 1 0 0-10 5 5 0 0 0 0 10z",
  right: "M6 3.5 10.5 8 6 12.5",
  left: "M10 3.5 5.5 8 10 12.5",
  down: "M3.5 6 8 10.5 12.5 6",
  up: "M3.5 10 8 5.5 12.5 10",
  pen: "M3 13l.6-2.8L11 2.8l2.2 2.2-7.4 7.4z",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3 14 14",
  plus: "M8 3v10M3 8h10",
  more: "M3 8h.8M7.6 8h.8M12.2 8h.8",
  tiles: "M2.5 2.5h4.5v4.5h-4.5zM9 2.5h4.5v4.5h-4.5zM2.5 9h4.5v4.5h-4.5zM9 9h4.5v4.5h-4.5z",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  gear:
    "M6.9 1.5h2.2l.3 1.7 1.2.5 1.4-1 1.3 1.3-1 1.4.5 1.2 1.7.3v2.2l-1.7.3-.5 1.2 1 1.4-1.3 1.3-1.4-1-1.2.5-.3 1.7H6.9l-.3-1.7-1.2-.5-1.4 1L2.7 12l1-1.4-.5-1.2-1.7-.3V6.9l1.7-.3.5-1.2-1-1.4L4 2.7l1.4 1 1.2-.5zM8 10a2 2 0 1 0 0-4 2 2 0 0 0 0 4z",
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12M8 5l3 1.5M8 8h4M8 11l3-1.5",
  stop: "M4.5 4.5h7v7h-7z",
  send: "M8 13V3M3.5 7.5 8 3l4.5 4.5",
  copy: "M5.5 5.5h7v7h-7zM10.5 3.5h-7v7",
  attention: "M8 1.5 14.5 13h-13zM8 6v3.5M8 11.2v.3",
  ask: "M8 14a6 6 0 1 0 0-12 6 6 0 0 0 0 12zM6 6.5a2 2 0 1 1 2.6 2c-.4.1-.6.4-.6.8M8 11.6v.1",
  alert: "M8 14a6 6 0 1 0 0-12 6 6 0 0 0 0 12zM8 4.8v3.7M8 11v.2",
  clock: "M8 14a6 6 0 1 0 0-12 6 6 0 0 0 0 12zM8 4.5V8l2.5 1.5",
  play: "M5 3.2v9.6L12.5 8z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  run: "M8 2a6 6 0 1 1-6 6",
  people:
    "M6 7.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM1.5 13.5c.2-5 8.8-5 9 0M11 2.8a2.5 2.5 0 0 1 0 4.5M12.5 10q2 1 2 3.5",
  diff: "M8 2.5v6M5 5.5h6M5 12.5h6",
  reload: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v3h-3",
  terminal: "M2.5 4 6 8l-3.5 4M8 12h5.5",
  bin: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.5 9h6l.5-9M7 7v4M9 7v4",
  voice: "M3 6v4h2.5L9 13V3L5.5 6zM11.5 5.5q1.5 2.5 0 5",
  tray: "M2 9.5 4 3h8l2 6.5v3.5H2zM2 9.5h3.5l1 2h3l1-2H14",
  clip: "M13 7.5 8 12.5a3 3 0 0 1-4.3-4.3L9 3a2 2 0 0 1 2.9 2.9l-5 5a1 1 0 0 1-1.5-1.5L10 5",
  file: "M4 1.8h5l3 3v9.4H4zM9 1.8v3h3",
} as const;

export type Sign = keyof typeof paths;

/** An Outcome is a state with its sign, its tone and its word. */
export type Outcome = { sign: Sign; tone: string; word: string };

export function Icon({ sign, tone = "", label }: { sign: Sign; tone?: string; label?: string }) {
  return (
    <svg
      class={`icon ${tone}`}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      stroke-width="1.5"
      stroke-linecap="round"
      stroke-linejoin="round"
      role={label ? "img" : undefined}
      aria-label={label}
      aria-hidden={label ? undefined : "true"}
    >
      <path d={paths[sign]} />
    </svg>
  );
}
