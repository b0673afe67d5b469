// A program that speaks the Agent Client Protocol: it offers commands and modes, and shows a plan while it works. A
// prompt about questions gets a form, and then one more question for each file that appears in the workspace.
import { watch } from "node:fs";
import { createInterface } from "node:readline";

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const update = (change) => send({ method: "session/update", params: { sessionId: "one", update: change } });
const say = (text) => update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } });
const step = (content, status) => ({ content, status, priority: "high" });

let asking; // the id of the prompt that waits for the end of its plan
let cwd;

const ask = (id, method, params) => send({ id, method, params: { sessionId: "one", ...params } });
const share = { type: "object", properties: { share: { type: "number", title: "Share" } } };

function askAboutFiles() {
  const known = new Set();
  watch(cwd, (_, name) => {
    if (known.has(name)) return;
    known.add(name);
    ask(name, "session/request_permission", {
      toolCall: { toolCallId: name, title: name, kind: "execute" },
      options: [
        { optionId: "yes", name: "Yes", kind: "allow_once" },
        { optionId: "no", name: "No", kind: "reject_once" },
      ],
    });
  });
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params, result } = JSON.parse(line);
  switch (method) {
    case "initialize":
      return send({ id, result: { protocolVersion: 1, agentCapabilities: {}, authMethods: [] } });
    case "session/new":
      cwd = params.cwd;
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
      say(`Got ${params.prompt[0].text}`);
      asking = id;
      if (!params.prompt[0].text.includes("question")) return;
      askAboutFiles();
      return ask("form", "elicitation/create", { mode: "form", message: "How much?", requestedSchema: share });
    case "session/cancel":
      send({ id: asking, result: { stopReason: "cancelled" } });
      return;
    default:
      if (id !== undefined && method) send({ id, result: {} });
      else if (result) say(`\n\n${id}: ${result.outcome?.optionId ?? JSON.stringify(result)}`);
  }
});
