// Makes pictures of pages small: PNG with a palette instead of three or four bytes a pixel.
import { crc32, deflateSync, inflateSync } from "node:zlib";

const signature = Buffer.from("89504e470d0a1a0a", "hex");

/** palette returns a PNG with at most 256 colours: of all that are nearly the same, the one that is used most. */
export function palette(png) {
  const { width, height, pixels } = decode(png);
  const uses = new Map();
  for (const c of pixels) uses.set(c, (uses.get(c) ?? 0) + 1);
  const groups = new Map(); // by the five high bits of each channel
  for (const [colour, n] of [...uses].sort((a, b) => b[1] - a[1])) {
    const group = groups.get(colour & 0xf8f8f8);
    // The grounds of the page are nearly the same and must not be mixed.
    if (group && n < pixels.length / 1000) group.n += n;
    else groups.set(group ? -colour : colour & 0xf8f8f8, { colour, n });
  }
  const colours = [...groups.values()]
    .sort((a, b) => b.n - a.n)
    .slice(0, 256)
    .map((g) => g.colour);
  const index = new Map(colours.map((c, i) => [c, i]));
  const rows = Buffer.alloc((width + 1) * height); // each begins with its filter: none
  for (let i = 0; i < pixels.length; i++) {
    const c = pixels[i];
    if (!index.has(c)) index.set(c, nearest(colours, c));
    rows[i + Math.floor(i / width) + 1] = index.get(c);
  }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 3, 0, 0, 0], 8); // 8 bits, palette
  const plte = Buffer.from(colours.flatMap((c) => [c >> 16, (c >> 8) & 255, c & 255]));
  return Buffer.concat([
    signature,
    chunk("IHDR", head),
    chunk("PLTE", plte),
    chunk("IDAT", deflateSync(rows, { level: 9, memLevel: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

function nearest(colours, c) {
  let [best, least] = [0, Infinity];
  colours.forEach((o, i) => {
    const away = [16, 8, 0].reduce((sum, at) => sum + (((o >> at) & 255) - ((c >> at) & 255)) ** 2, 0);
    if (away < least) [best, least] = [i, away];
  });
  return best;
}

function chunk(name, data) {
  const body = Buffer.concat([Buffer.from(name), data]);
  const framed = Buffer.alloc(body.length + 8);
  framed.writeUInt32BE(data.length, 0);
  body.copy(framed, 4);
  framed.writeUInt32BE(crc32(body), body.length + 4);
  return framed;
}

/** decode reads a PNG of a browser: 8 bits a channel, RGB or RGBA, not interlaced. It drops the alpha channel. */
function decode(png) {
  const parts = [];
  let [width, height, channels] = [0, 0, 0];
  for (let at = 8; at < png.length; ) {
    const size = png.readUInt32BE(at);
    const name = png.toString("latin1", at + 4, at + 8);
    const data = png.subarray(at + 8, at + 8 + size);
    if (name === "IHDR") {
      [width, height] = [data.readUInt32BE(0), data.readUInt32BE(4)];
      channels = { 2: 3, 6: 4 }[data[9]];
      if (data[8] !== 8 || !channels || data[12] !== 0) throw new Error("a kind of PNG that is not read here");
    }
    if (name === "IDAT") parts.push(data);
    at += size + 12;
  }
  const raw = inflateSync(Buffer.concat(parts));
  const line = width * channels;
  const pixels = new Uint32Array(width * height);
  let above = new Uint8Array(line);
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (line + 1)];
    const row = new Uint8Array(line);
    for (let x = 0; x < line; x++) {
      const left = x >= channels ? row[x - channels] : 0;
      const corner = x >= channels ? above[x - channels] : 0;
      row[x] = raw[y * (line + 1) + 1 + x] + guess(filter, left, above[x], corner);
    }
    for (let x = 0; x < width; x++) {
      const at = x * channels;
      pixels[y * width + x] = (row[at] << 16) | (row[at + 1] << 8) | row[at + 2];
    }
    above = row;
  }
  return { width, height, pixels };
}

/** guess is the value that a filter of PNG expects of a byte, from its neighbours. */
function guess(filter, left, up, corner) {
  switch (filter) {
    case 1:
      return left;
    case 2:
      return up;
    case 3:
      return (left + up) >> 1;
    case 4: {
      const p = left + up - corner;
      const [a, b, c] = [left, up, corner].map((v) => Math.abs(p - v));
      return a <= b && a <= c ? left : b <= c ? up : corner;
    }
  }
  return 0;
}
