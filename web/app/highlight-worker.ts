// Highlights finished blocks of code beside the page's own thread.
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import makefile from "highlight.js/lib/languages/makefile";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const languages = {
  bash,
  c,
  cpp,
  css,
  diff,
  go,
  java,
  javascript,
  json,
  makefile,
  markdown,
  python,
  ruby,
  rust,
  sql,
  typescript,
  xml,
  yaml,
};
for (const [name, language] of Object.entries(languages)) hljs.registerLanguage(name, language);

// Texts and answers are matched by id. An answer without html means that the text stays plain.
export type HighlightRequest = { id: number; language: string; text: string };
export type HighlightAnswer = { id: number; html?: string };

addEventListener("message", (e: MessageEvent<HighlightRequest>) => {
  const { id, language, text } = e.data;
  const answer: HighlightAnswer = { id };
  if (hljs.getLanguage(language)) answer.html = hljs.highlight(text, { language, ignoreIllegals: true }).value;
  (postMessage as (a: HighlightAnswer) => void)(answer);
});
