// Light or dark: as the system, until somebody chooses. The page loads this before anything is drawn.
const kept = "maestro.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function apply(): void {
  const chosen = localStorage.getItem(kept);
  const dark = chosen ? chosen === "dark" : system.matches;
  document.documentElement.classList.toggle("dark", dark);
}

apply();
system.addEventListener("change", apply);
addEventListener("storage", apply); // another tab chose
// The page is a module of its own, and asks by an event.
document.addEventListener("maestro:theme", () => {
  const dark = !document.documentElement.classList.contains("dark");
  if (dark === system.matches) localStorage.removeItem(kept);
  else localStorage.setItem(kept, dark ? "dark" : "light");
  apply();
});
