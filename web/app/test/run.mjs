// Bundles the tests of this folder and runs them in Node.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const out = mkdtempSync(join(tmpdir(), "maestro-page-"));
const tests = readdirSync(here).filter((f) => f.endsWith(".test.ts"));
await build({
  absWorkingDir: here,
  entryPoints: tests,
  outdir: out,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  format: "esm",
  platform: "node",
  target: "node20",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});
const flags = ["--test", "--test-reporter=spec", ...tests.map((t) => join(out, t.replace(/ts$/, "mjs")))];
const run = spawnSync(process.execPath, flags, { stdio: "inherit" });
rmSync(out, { recursive: true, force: true });
process.exit(run.status ?? 1);
