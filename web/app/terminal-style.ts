// What xterm gets in place of a style element, which the policy of the page forbids; build.mjs puts it in.

/** makeStyle returns an element whose text becomes a style sheet of the document. */
export function makeStyle(): HTMLElement {
  const sheet = new CSSStyleSheet();
  const element = document.createElement("i");
  element.hidden = true;
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(element, "textContent", { set: (css: string) => sheet.replaceSync(css) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}
