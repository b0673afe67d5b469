import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { serve } from "./harness.ts";

const env = (name: string) => process.env[name]!;

test("the example of the README runs", async () => {
  const source = readFileSync(env("EXAMPLE_SOURCE"), "utf8");
  assert.ok(readFileSync(env("README"), "utf8").includes("```ts\n" + source + "```"), "the README has test/example.ts");
  const server = await serve({
    model: "m",
    provider: "p",
    default: [
      { tool: { name: "bash", args: { command: "date" }, output: "Monday\n", gated: true } },
      { say: "It is Monday." },
    ],
  });
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ["--experimental-websocket", "--no-warnings", env("EXAMPLE"), server.url, server.token, "Which day is it?"],
    { timeout: 20_000 },
  );
  assert.equal(stdout, 'allowed: bash {"command":"date"}\nAnn: Which day is it?\nbash: Monday\n\nIt is Monday.\n');
});

test("the client is small", () => {
  const size = gzipSync(readFileSync(env("MINIFIED")), { level: 9 }).length;
  assert.ok(size <= 16 << 10, `${size} bytes after minifying and gzip`);
});
