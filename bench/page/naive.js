// A chat page as many are written: all messages are in the document, and each piece of an answer renders
// that answer again. It shows the stored history, each message once, and then follows the session.
const log = document.getElementById("log");
const api = new URLSearchParams(location.search).get("session"); // address of the session
let answer; // the element that grows, and its text
let text = "";
const tools = new Map();

function add(kind, html) {
  log.insertAdjacentHTML("beforeend", `<div class="${kind}">${html}</div>`);
  return log.lastElementChild;
}

const escaped = (s) => s.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

function show(e) {
  switch (e.type) {
    case "prompt_accepted":
      add("prompt", `<b>${escaped(e.author.principal)}</b><p>${escaped(e.content)}</p>`);
      break;
    case "response_chunk": {
      const kind = e.is_thinking ? "thinking" : "text";
      if (answer?.className !== kind) {
        answer = add(kind, "");
        text = "";
      }
      text += e.content;
      answer.innerHTML = marked.parse(text);
      break;
    }
    case "tool_call":
      answer = undefined;
      tools.set(e.call_id, add("tool", `<b>${escaped(e.tool)}</b> <code>${escaped(JSON.stringify(e.args))}</code><pre></pre>`));
      break;
    case "tool_output":
      tools.get(e.call_id).querySelector("pre").innerHTML += escaped(e.content);
      break;
    case "response_end":
      answer = undefined;
      add("end", `${e.duration_ms} ms, ${e.usage.total_tokens} tokens`);
  }
}

const toEnd = () => (log.scrollTop = log.scrollHeight);

const pages = [];
let cursor = 0;
for (let before = ""; before !== null; ) {
  const query = before && `&before=${before}`;
  const page = await (await fetch(`${api}/history?limit=1000&bytes=524288${query}`)).json();
  cursor ||= page.entries?.at(-1)?.cursor ?? 0;
  pages.unshift(page);
  before = page.before;
}
for (const e of pages.flatMap((p) => p.entries ?? [])) if (e.message) show(e.message);
toEnd();
const events = new EventSource(`${api}/events?cursor=${cursor}&epoch=${pages.at(-1).epoch}`);
events.onopen = () => log.setAttribute("data-follows", "");
events.onmessage = ({ data }) => {
  const { message } = JSON.parse(data);
  if (!message) return;
  show(message);
  toEnd();
};
