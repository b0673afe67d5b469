// Prompts, approves what is asked, prints the text: node client.mjs READY-FILE
import { readFileSync } from "node:fs";
import WebSocket from "ws";
if (process.argv.length !== 3) {
  console.error("usage: node client.mjs READY-FILE");
  process.exit(2);
}
const { wsUrl, tokenFile } = JSON.parse(readFileSync(process.argv[2]));
const headers = { Authorization: `Bearer ${readFileSync(tokenFile, "utf8").trim()}` };
const ws = new WebSocket(`${wsUrl}&takeControl=later`, "maestro-headless.2026-04-02", { headers });
const send = (...frames) => frames.forEach((frame) => ws.send(JSON.stringify(frame)));
const hello = { type: "hello", role: "controller", capabilities: { server_requests: ["approval"] } };
ws.on("open", () => send(hello, { type: "prompt", content: "echo hello" }));
ws.on("message", (text) => {
  const { message: m, error } = JSON.parse(text); // error: another client has control, for instance
  if (m?.type === "server_request")
    send({ type: "server_request_response", request_id: m.request_id, request_type: m.request_type, approved: true });
  if (m?.type === "tool_output" || m?.type === "response_chunk") process.stdout.write(m.content);
  if (error) {
    console.error(error);
    process.exitCode = 1;
  }
  if (error || m?.type === "response_end") send({ type: "ws.bye" });
});
