// An agent on standard streams that passes each message on to a WebSocket, for clients that
// only start programs.
//
//	node bridge.mjs URL TOKEN
import { createInterface } from "node:readline";
import { WebSocket } from "ws";

const [url, token] = process.argv.slice(2);
const socket = new WebSocket(url, { headers: { Authorization: "Bearer " + token } });
socket.on("message", (text) => process.stdout.write(text + "\n"));
socket.on("close", () => process.exit(0));
socket.on("open", () => {
  const lines = createInterface({ input: process.stdin });
  lines.on("line", (line) => socket.send(line));
  lines.on("close", () => socket.close());
});
