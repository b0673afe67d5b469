// Signs of 16 by 16, drawn as lines in the colour of the text.
const paths = {
  check: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  right: "M6 3.5 10.5 8 6 12.5",
  left: "M10 3.5 5.5 8 10 12.5",
  down: "M3.5 6 8 10.5 12.5 6",
  plus: "M8 3v10M3 8h10",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  stop: "M4.5 4.5h7v7h-7z",
  send: "M8 13V3M3.5 7.5 8 3l4.5 4.5",
  copy: "M5.5 5.5h7v7h-7zM10.5 3.5h-7v7",
  hand: "M8 1.5 14.5 13h-13zM8 6v3.5M8 11.2v.3",
  ask: "M8 14.25A6.25 6.25 0 1 0 8 1.75a6.25 6.25 0 0 0 0 12.5zM6 6.2c.2-1.100 1-1.700 2-1.700 1.200 0 2.100.8 2.100 1.800 0 1.500-2.100 1.600-2.100 3M8 11.300v.2",
  alert: "M8 14.25A6.25 6.25 0 1 0 8 1.75a6.25 6.25 0 0 0 0 12.5zM8 4.800v3.700M8 11v.2",
  run: "M8 1.75a6.25 6.25 0 1 1-6.25 6.25",
  people: "M6 7.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM1.500 13.500c.2-2.500 2-4 4.500-4s4.300 1.500 4.500 4M11 2.800a2.500 2.500 0 0 1 0 4.500M12.500 9.900c1.200.6 1.900 1.900 2 3.600",
  file: "M4 1.750h5l3 3v9.500H4zM9 1.750v3h3",
} as const;

export type Sign = keyof typeof paths;

export function Icon({ sign, tone = "", label }: { sign: Sign; tone?: string; label?: string }) {
  return (
    <svg class={`icon ${tone}`} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round"
      stroke-linejoin="round" role={label ? "img" : undefined} aria-label={label} aria-hidden={label ? undefined : "true"}>
      <path d={paths[sign]} />
    </svg>
  );
}
