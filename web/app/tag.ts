// The tag of a notification. The service worker knows only the link, the page only the question.

/** questionTag is the same for all notifications of one question, and the key of the question in the lists. */
export function questionTag(link: string): string {
  const query = new URLSearchParams(link.slice(link.indexOf("?") + 1));
  return `${query.get("session") ?? link} ${query.get("request") ?? ""}`;
}
