#!/usr/bin/env node
// Runs the program of the package for this platform, and ends as the program ends.
"use strict";
const { spawn } = require("node:child_process");

const name = `${require("../package.json").name}-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/maestro${process.platform === "win32" ? ".exe" : ""}`);
} catch {
  console.error(`maestro: the package ${name} is missing: this platform is not supported, or npm left out optional dependencies`);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends SIGINT and SIGHUP to the program too. The program decides what they end.
for (const signal of ["SIGINT", "SIGHUP"]) process.on(signal, () => {});
process.on("SIGTERM", () => child.kill("SIGTERM"));
child.on("error", (error) => {
  console.error(`maestro: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (!signal) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
