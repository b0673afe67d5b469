// A client of the Agent Client Protocol on a WebSocket, as an application of the TypeScript
// library has one. It sends one prompt, allows what the agent asks, and writes what it
// receives as lines of JSON.
//
//	node client.mjs URL TOKEN DIRECTORY PROMPT
import { client, methods, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";

const [url, token, cwd, text] = process.argv.slice(2);
const write = (kind, value) => console.log(JSON.stringify({ [kind]: value }));

class Named extends WebSocket {
  constructor(...args) {
    super(...args);
    this.on("upgrade", (answer) => write("connection", answer.headers["acp-connection-id"]));
  }
}

const stream = createWebSocketStream(url, { WebSocket: Named, headers: { Authorization: "Bearer " + token } });
const app = client({ name: "sdk" })
  .onNotification(methods.client.session.update, ({ params }) => write("update", params))
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    write("permission", params);
    const allow = params.options.find((o) => o.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: allow.optionId } };
  });
await app.connectWith(stream, async (ctx) => {
  write("initialize", await ctx.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION, clientCapabilities: {}, clientInfo: { name: "sdk", version: "1" },
  }));
  const session = await ctx.request(methods.agent.session.new, { cwd, mcpServers: [] });
  write("session", session);
  write("prompt", await ctx.request(methods.agent.session.prompt, {
    sessionId: session.sessionId, prompt: [{ type: "text", text }],
  }));
  write("sessions", await ctx.request(methods.agent.session.list, {}));
});
