// A program that speaks the Agent Client Protocol: it offers commands and modes, and shows a plan while it works.
import { createInterface } from "node:readline";

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const update = (change) => send({ method: "session/update", params: { sessionId: "one", update: change } });
const step = (content, status) => ({ content, status, priority: "high" });

let asking; // the id of the prompt that waits for the end of its plan

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  switch (method) {
    case "initialize":
      return send({ id, result: { protocolVersion: 1, agentCapabilities: {}, authMethods: [] } });
    case "session/new":
      send({
        id,
        result: {
          sessionId: "one",
          modes: {
            currentModeId: "ask",
            availableModes: [
              { id: "ask", name: "Ask first" },
              { id: "plan", name: "Plan only" },
            ],
          },
        },
      });
      return update({
        sessionUpdate: "available_commands_update",
        availableCommands: [
          { name: "review", description: "Review the changes", input: { hint: "what to look for" } },
          { name: "compact", description: "Make the context shorter" },
          { name: "release-notes", description: "What is new" },
        ],
      });
    case "session/prompt":
      update({ sessionUpdate: "current_mode_update", currentModeId: "plan" });
      update({
        sessionUpdate: "plan",
        entries: [step("Read", "completed"), step("Think", "in_progress"), step("Say", "pending")],
      });
      update({
        sessionUpdate: "agent_message_chunk",
        content: { type: "text", text: `Got ${params.prompt[0].text}` },
      });
      asking = id;
      return;
    case "session/cancel":
      send({ id: asking, result: { stopReason: "cancelled" } });
      return;
    default:
      if (id !== undefined && method) send({ id, result: {} });
  }
});
