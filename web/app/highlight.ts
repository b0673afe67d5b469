// The page's side of the worker that highlights code.
import type { HighlightAnswer, HighlightRequest } from "./highlight-worker";
import { ownScript } from "./trusted";

const longest = 12 << 10; // characters; longer code stays plain, so that the page keeps few elements
const most = 64; // texts that are highlighted at the same time

const aliases: Record<string, string> = {
  sh: "bash",
  shell: "bash",
  zsh: "bash",
  console: "bash",
  js: "javascript",
  jsx: "javascript",
  mjs: "javascript",
  ts: "typescript",
  tsx: "typescript",
  py: "python",
  rb: "ruby",
  rs: "rust",
  yml: "yaml",
  md: "markdown",
  html: "xml",
  svg: "xml",
  "c++": "cpp",
  h: "c",
  hpp: "cpp",
  cc: "cpp",
  mts: "typescript",
  cts: "typescript",
  golang: "go",
  patch: "diff",
  jsonc: "json",
  make: "makefile",
};

let worker: Worker | undefined;
let last = 0;
const waiting = new Map<number, (html: string | undefined) => void>();

/** highlight returns the code as HTML, or nothing if it stays plain, such as one that is longer than max characters. */
export function highlight(language: string, text: string, max = longest): Promise<string | undefined> {
  if (language === "" || text.length > max || waiting.size >= most) return Promise.resolve(undefined);
  worker ??= start();
  const id = ++last;
  const name = language.toLowerCase();
  const request: HighlightRequest = { id, language: aliases[name] ?? name, text };
  worker.postMessage(request);
  return new Promise((resolve) => waiting.set(id, resolve));
}

function start(): Worker {
  const made = new Worker(ownScript(HIGHLIGHT_WORKER));
  made.addEventListener("message", (e: MessageEvent<HighlightAnswer>) => end(e.data.id, e.data.html));
  made.addEventListener("error", () => {
    for (const id of [...waiting.keys()]) end(id, undefined);
  });
  return made;
}

function end(id: number, html: string | undefined): void {
  waiting.get(id)?.(html);
  waiting.delete(id);
}
