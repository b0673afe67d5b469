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
const tests = readdirSync(here).filter(
  (f) => f.endsWith(".test.ts") && (names.length === 0 || names.some((n) => f.startsWith(n))),
);
const common = { absWorkingDir: here, bundle: true, format: "esm", logLevel: "warning" };
await build({
  ...common,
  entryPoints: [...tests, "example.ts"],
  outdir: out,
  platform: "node",
  target: "node20",
  outExtension: { ".js": ".mjs" },
  sourcemap: "inline",
});
const minified = join(out, "minified.js");
await build({
  ...common,
  entryPoints: ["../index.ts"],
  outfile: minified,
  platform: "browser",
  target: "es2022",
  minify: true,
});

// Node 20 has its WebSocket behind a flag; later ones accept the flag.
const flags = [
  "--experimental-websocket",
  "--enable-source-maps",
  "--no-warnings",
  "--test",
  "--test-concurrency=4", // tests wait more than they compute
  "--test-timeout=120000",
  "--test-reporter=spec",
];
const files = readdirSync(out)
  .filter((f) => f.endsWith(".test.mjs"))
  .map((f) => join(out, f));
const run = spawnSync(process.execPath, [...flags, ...files], {
  stdio: "inherit",
  env: {
    ...process.env,
    EXAMPLE: join(out, "example.mjs"),
    EXAMPLE_SOURCE: join(here, "example.ts"),
    README: join(here, "../README.md"),
    MINIFIED: minified,
  },
});
rmSync(out, { recursive: true, force: true });
process.exit(run.status ?? 1);
