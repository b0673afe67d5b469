// The end of the transcript stays on the screen while a fast agent writes to a slow page.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { browser, composer, eachTest, patience, server, startServer } from "./harness.mjs";

eachTest();

const say =
  "Paragraph {{n}} wraps on a narrow page, so that its height is not what was guessed before it was drawn.\n\n" +
  "- one\n- two\n- three\n\n```go\nfunc f{{n}}() int { return {{n}} }\n```\n\n";
const script = {
  default: [{ repeat: { times: 200, rate: 80, steps: [{ say }] } }, { say: "That was all." }],
};
const folder = mkdtempSync(join(tmpdir(), "maestro-follow-"));
writeFileSync(join(folder, "script.json"), JSON.stringify(script));
after(() => rmSync(folder, { recursive: true }));

test("a slow page shows the end of a fast answer", { timeout: 3 * patience }, async () => {
  await startServer(["--agent", `script:${join(folder, "script.json")}`]);
  const p = await browser.open(await server.link());
  await composer(p).waitFor();
  const devtools = await p.page.context().newCDPSession(p.page);
  await devtools.send("Emulation.setCPUThrottlingRate", { rate: 6 });
  await p.page.evaluate(() => {
    globalThis.farthest = 0; // pixels between the screen and the end, in any frame
    const look = () => {
      const { scrollHeight, scrollTop, clientHeight } = document.querySelector(".transcript");
      globalThis.farthest = Math.max(globalThis.farthest, scrollHeight - scrollTop - clientHeight);
      requestAnimationFrame(look);
    };
    look();
  });
  await composer(p).fill("write");
  await composer(p).press("Enter");
  await p.page.getByText("That was all.", { exact: true }).waitFor({ timeout: patience });
  const farthest = await p.page.evaluate(() => globalThis.farthest);
  assert.ok(farthest < 300, `the end was ${farthest} pixels below the screen`);
});
