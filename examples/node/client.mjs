// Prompts, approves what is asked, prints the text: node client.mjs READY-FILE
import { readFileSync } from "node:fs";
import WebSocket from "ws";

const { wsUrl, tokenFile } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const headers = tokenFile ? { Authorization: `Bearer ${readFileSync(tokenFile, "utf8").trim()}` } : {};
const url = new URL(wsUrl);
url.searchParams.set("takeControl", "later"); // whoever drives goes on driving
const ws = new WebSocket(url, "maestro-headless.2026-04-02", { headers });
const send = (frame) => ws.send(JSON.stringify(frame));
ws.on("open", () => {
  send({ type: "hello", role: "controller", capabilities: { server_requests: ["approval"] } });
  send({ type: "prompt", content: "echo hello" });
});
ws.on("message", (frame) => {
  const { type, message, error } = JSON.parse(frame);
  if (message?.type === "server_request")
    send({ type: "server_request_response", request_id: message.request_id, request_type: message.request_type, approved: true });
  if (message?.type === "tool_output" || message?.type === "response_chunk") process.stdout.write(message.content);
  if (type === "ws.error") console.error(error); // somebody else drives, for instance
  if (type === "ws.error" || message?.type === "response_end") send({ type: "ws.bye" });
});
