// Light or dark: as the system, until somebody chooses. The page loads this before anything is drawn.
const kept = "maestro.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
// The colours of the address bar of a phone, for light and for dark.
const bars = [...document.querySelectorAll<HTMLMetaElement>('meta[name="theme-color"]')];
const colours = bars.map((b) => b.content);

function apply(): void {
  const chosen = localStorage.getItem(kept);
  const dark = chosen ? chosen === "dark" : system.matches;
  document.documentElement.classList.toggle("dark", dark);
  bars.forEach((bar, i) => {
    bar.content = colours[chosen ? Number(dark) : i]!;
  });
}

apply();
system.addEventListener("change", apply);
addEventListener("storage", apply); // another tab chose
// The page is a module of its own, and asks by an event: for system, light, dark, or for the other one of the two.
document.addEventListener("maestro:theme", (e) => {
  const dark = !document.documentElement.classList.contains("dark");
  const other = dark === system.matches ? "system" : dark ? "dark" : "light";
  const next = (e as CustomEvent<string | null>).detail ?? other;
  if (next === "system") localStorage.removeItem(kept);
  else localStorage.setItem(kept, next);
  apply();
});
