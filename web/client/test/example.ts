// Prompts an agent, allows what it asks for, and prints the conversation.
import { connect } from "../index.ts";

const [url, token, prompt] = process.argv.slice(2) as [string, string, string];
const server = connect(url, {
  token,
  // Node can send the token in a header. A page leaves this out.
  socket: (url, protocols) => new WebSocket(url, { protocols, headers: { Authorization: `Bearer ${token}` } } as never),
});
const session = server.attach(await server.create(), { role: "controller", displayName: "Ann" });

const answered = new Set<string>();
session.on((changes) => {
  if (!changes.state.has("pending_requests")) return;
  for (const { id } of session.state.pending_requests) {
    if (answered.has(id)) continue;
    answered.add(id);
    console.log("allowed:", session.question(id)?.shown?.display);
    session.answer(id, { approved: true }).catch(console.error);
  }
});

await session.ready();
await session.prompt(prompt);
await session.until(({ transcript, state }) => transcript.items.at(-1)?.kind === "end" && !state.is_responding);
for (const item of session.transcript.items) {
  if (item.kind === "prompt") console.log(`${item.prompt.author.claimed_name}: ${item.prompt.content}`);
  if (item.kind === "text") console.log(item.text);
  if (item.kind === "tool") console.log(`${item.call?.tool}: ${item.output}`);
}
server.close();
