const encoder = new TextEncoder();

/** bytes returns the length of a text in UTF-8. */
export function bytes(text: string): number {
  return encoder.encode(text).length;
}

/** head returns the beginning of a text: at most so many bytes of UTF-8, whole code points. */
export function head(text: string, limit: number): string {
  if (text.length * 3 <= limit) return text;
  const { read } = encoder.encodeInto(text, new Uint8Array(limit));
  return text.slice(0, read);
}

/** tail returns the end of a text: at most so many code points and bytes of UTF-8. */
export function tail(text: string, points: number, limit: number): string {
  if (text.length <= points && text.length * 3 <= limit) return text;
  let at = text.length;
  for (let n = 0, size = 0; at > 0; n++) {
    const c = text.charCodeAt(at - 1);
    const pair = (c & 0xfc00) === 0xdc00 && at > 1;
    size += c < 0x80 ? 1 : c < 0x800 ? 2 : pair ? 4 : 3;
    if (n === points || size > limit) break;
    at -= pair ? 2 : 1;
  }
  return text.slice(at);
}
