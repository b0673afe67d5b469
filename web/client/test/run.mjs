// Bundles the tests and runs them: MAESTRO=bin/maestro node run.mjs [name...]
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const out = mkdtempSync(join(tmpdir(), "maestro-client-"));
const names = process.argv.slice(2);
const entryPoints = readdirSync(here).filter((f) => f.endsWith(".test.ts") && (names.length === 0 || names.some((n) => f.startsWith(n))));
await build({
  absWorkingDir: here, entryPoints, outdir: out, bundle: true, platform: "node", target: "node20", format: "esm",
  outExtension: { ".js": ".mjs" }, sourcemap: "inline", logLevel: "warning",
});
const files = readdirSync(out).map((f) => join(out, f));
// Node 20 has its WebSocket behind a flag; later ones accept the flag.
const flags = ["--experimental-websocket", "--enable-source-maps", "--no-warnings", "--test", "--test-timeout=60000", "--test-reporter=spec"];
const run = spawnSync(process.execPath, [...flags, ...files], { stdio: "inherit" });
rmSync(out, { recursive: true, force: true });
process.exit(run.status ?? 1);
