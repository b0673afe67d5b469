// Draws the icons of the installed app from app/icon.svg, with the Chromium in PATH. Run it when the icon changes.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const app = fileURLToPath(new URL("app/", import.meta.url));
const icon = readFileSync(join(app, "icon.svg"), "utf8");
const full = icon.replace('rx="7" ', ""); // systems cut the corners themselves
const small = full.replace(/<path/, '<path transform="translate(16 16) scale(0.8) translate(-16 -16)"');
const plain = icon.replace(/<rect[^>]*>/, ""); // Android shows only the shape

const drawings = [
  ["icon-192", icon, 192],
  ["icon-512", icon, 512],
  ["maskable-512", small, 512], // its sign is within the circle that all systems leave
  ["touch-180", full, 180],
  ["badge-96", plain, 96],
];
const paths = (process.env.PATH ?? "").split(":").map((d) => join(d, "chromium"));
const browser = await chromium.launch({
  executablePath: paths.find((p) => existsSync(p)),
  args: ["--no-sandbox"],
});
for (const [name, svg, size] of drawings) {
  const page = await browser.newPage({ viewport: { width: size, height: size } });
  const sized = svg.replace("<svg ", `<svg width="${size}" height="${size}" `);
  await page.setContent(`<style>body{margin:0}svg{display:block}</style>${sized}`);
  await page.screenshot({ path: join(app, "icons", `${name}.png`), omitBackground: true });
  await page.close();
}
await browser.close();
