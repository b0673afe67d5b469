// The right column: whether it is open, which tab it shows, and which file is open in it.
import { signal } from "@preact/signals";
import { covered } from "./screen";

export const tabs = ["files", "changes", "people", "turns"] as const;
export type Tab = (typeof tabs)[number];

const kept = localStorage.getItem("maestro.tab");

export const tab = signal<Tab>(tabs.find((t) => t === kept) ?? "files");
export const paneled = signal(matchMedia("(min-width: 1400px)").matches);

/** A file that is open: its path, relative to the workspace or absolute, and the line to show first. */
export type Opened = { path: string; line?: number };
export const opened = signal<Opened | null>(null);

/** the dialog that runs a command is open */
export const running = signal(false);

export function showTab(next: Tab): void {
  tab.value = next;
  paneled.value = true;
  localStorage.setItem("maestro.tab", next);
}

/** toggleTab shows a tab, or closes the column if it shows that tab. */
export function toggleTab(next: Tab): void {
  if (paneled.peek() && tab.peek() === next) paneled.value = false;
  else showTab(next);
}

/** openFile shows a file in the right column. */
export function openFile(path: string, line?: number): void {
  opened.value = { path, line };
  showTab("files");
}

/** closeSheet closes the right column where it covers the conversation. */
export function closeSheet(): void {
  if (covered.peek()) paneled.value = false;
}

/** findFile goes to the field that finds a file. */
export function findFile(): void {
  opened.value = null;
  showTab("files");
  requestAnimationFrame(() => document.getElementById("find-file")?.focus());
}
