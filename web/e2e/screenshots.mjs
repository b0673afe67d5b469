// Writes the pictures of the main screens: node screenshots.mjs FOLDER [SCREEN...]
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { closeBrowser, leave, openBrowser, phone } from "./harness.mjs";
import { palette } from "./png.mjs";
import { screens } from "./screens.mjs";

const [folder, ...only] = process.argv.slice(2);
if (!folder) {
  console.error("usage: node screenshots.mjs FOLDER [SCREEN...]");
  process.exit(2);
}
mkdirSync(folder, { recursive: true });

async function take(p, name) {
  await p.page.mouse.move(0, 0); // nothing looks pointed at
  const png = await p.page.screenshot({ animations: "disabled", caret: "hide" });
  const small = palette(png);
  writeFileSync(join(folder, `${name}.png`), small);
  console.log(`${name}.png ${Math.round(small.length / 1024)} KB`);
}

await openBrowser();
try {
  for (const [name, show] of Object.entries(screens)) {
    if (only.length > 0 && !only.includes(name)) continue;
    const wide = { viewport: { width: 1280, height: 800 }, deviceScaleFactor: 1.5 };
    const desk = await show({ ...wide, reducedMotion: "reduce" });
    await take(desk, `${name}-light`);
    await desk.page.emulateMedia({ colorScheme: "dark" });
    await take(desk, `${name}-dark`);
    await leave();
    const hand = await show({ ...phone, deviceScaleFactor: 2, reducedMotion: "reduce" });
    await take(hand, `${name}-phone`);
    await leave();
  }
} finally {
  await closeBrowser();
}
