// The title and the icon of the tab say how much needs the person of this page.
import icon from "./icon.svg";
import { needed, place } from "./lists";
import { titleOf } from "./sidebar";
import { openID, summary } from "./store";

const names = { inbox: "Inbox · Maestro", dashboard: "Dashboard · Maestro" };

export function nameTab(): void {
  const n = needed.value;
  const at = place.value;
  const title =
    at !== "session"
      ? names[at]
      : openID.value === null
        ? "Maestro"
        : `${titleOf(summary.value, openID.value)} · Maestro`;
  document.title = n > 0 ? `(${n}) ${title}` : title;
  void draw(n);
}

let drawn = 0; // the last drawing that began

// draw puts the number over the icon. The browser has the image already.
async function draw(n: number): Promise<void> {
  const mine = ++drawn;
  let href = icon;
  if (n > 0) {
    const image = new Image();
    image.src = icon;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 64;
    const c = canvas.getContext("2d")!;
    c.drawImage(image, 0, 0, 64, 64);
    c.fillStyle = "#f2a31b";
    c.beginPath();
    c.roundRect(n > 9 ? 12 : 24, 22, n > 9 ? 52 : 40, 42, 12);
    c.fill();
    c.fillStyle = "#221a05";
    c.font = "700 40px system-ui, sans-serif";
    c.textAlign = "center";
    c.fillText(n > 99 ? "99" : String(n), n > 9 ? 38 : 44, 57);
    href = canvas.toDataURL();
  }
  if (mine !== drawn) return;
  document.querySelector('link[rel="icon"]')!.setAttribute("href", href);
}
