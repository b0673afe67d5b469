// Blocks of markdown as elements of the page. Nothing in them runs, and nothing is loaded.
import DOMPurify from "dompurify";
import { Marked, type Tokens } from "marked";

const marked = new Marked({
  gfm: true,
  breaks: false,
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escapeText(text), // shown, not interpreted
    // Nothing is loaded: an image is a link.
    image: ({ href, text }: Tokens.Image) => `<a href="${escapeText(href)}">${escapeText(text || href)}</a>`,
    table(token: Tokens.Table) {
      return `<div class="table">${tableHTML(this.parser, token)}</div>`; // which scrolls by itself
    },
  },
});

type Parser = { parseInline: (tokens: Tokens.TableCell["tokens"]) => string };

function tableHTML(parser: Parser, token: Tokens.Table): string {
  const cell = ({ align, tokens }: Tokens.TableCell, tag: string) =>
    `<${tag}${align ? ` align="${align}"` : ""}>${parser.parseInline(tokens)}</${tag}>`;
  const row = (cells: Tokens.TableCell[], tag: string) => `<tr>${cells.map((c) => cell(c, tag)).join("")}</tr>`;
  const body = token.rows.map((r) => row(r, "td")).join("");
  return `<table><thead>${row(token.header, "th")}</thead><tbody>${body}</tbody></table>`;
}

function escapeText(text: string): string {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

const tags = [
  "a",
  "blockquote",
  "br",
  "code",
  "del",
  "div",
  "em",
  "h1",
  "h2",
  "h3",
  "h4",
  "h5",
  "h6",
  "hr",
  "input",
  "li",
  "ol",
  "p",
  "pre",
  "strong",
  "table",
  "tbody",
  "td",
  "th",
  "thead",
  "tr",
  "ul",
];
const attributes = ["align", "checked", "class", "disabled", "href", "start", "type"];

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
});

/** render returns the DOM of a block. */
export function render(block: string): DocumentFragment {
  return sanitize(parsed(block), tags, attributes);
}

// parsed is the HTML of a block. The parser calls itself for each level of emphasis, so a block with thousands
// of levels exhausts the stack. It is shown as text.
function parsed(block: string): string {
  try {
    return marked.parse(block, { async: false });
  } catch (e) {
    if (!(e instanceof RangeError)) throw e;
    return `<pre>${escapeText(block)}</pre>`;
  }
}

/** renderHighlighted returns the DOM of highlighted code. */
export function renderHighlighted(html: string): DocumentFragment {
  return sanitize(html, ["span"], ["class"]);
}

function sanitize(html: string, ALLOWED_TAGS: string[], ALLOWED_ATTR: string[]): DocumentFragment {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS,
    ALLOWED_ATTR,
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
}
