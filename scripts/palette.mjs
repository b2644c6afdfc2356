// Rewrites a screenshot (PNG, 8-bit RGB) with a palette of 256 colours, which has a third of the size. The server embeds those that guides show.
import { crc32, deflateSync, inflateSync } from "node:zlib";

const COLOURS = 256;
/** Largest step of the distance between two colours of the palette, when more than 256 colours are in use. */
const STEP = 4;

/** Colours of a scanline as PNG filters it (ISO 15948, clause 9), written over the filtered octets. */
function unfilter(kind, line, above) {
  for (let x = 0; x < line.length; x++) {
    const [left, up, corner] = [line[x - 3] ?? 0, above[x] ?? 0, above[x - 3] ?? 0];
    const guess = left + up - corner;
    const [toLeft, toUp, toCorner] = [left, up, corner].map((value) => Math.abs(guess - value));
    const paeth = toLeft <= toUp && toLeft <= toCorner ? left : toUp <= toCorner ? up : corner;
    line[x] += [0, left, up, (left + up) >> 1, paeth][kind];
  }
}

const distance = (a, b) =>
  Math.hypot((a >> 16) - (b >> 16), ((a >> 8) & 255) - ((b >> 8) & 255), (a & 255) - (b & 255));
const nearest = (colour, palette) =>
  palette.reduce((best, one) => (distance(one, colour) < distance(best, colour) ? one : best));

/** The most common colours, each at least a distance from all others: the smallest distance at which all pixels have a colour near them. */
function paletteOf(uses) {
  const common = [...uses.keys()].sort((a, b) => uses.get(b) - uses.get(a));
  for (let least = 0; ; least += STEP) {
    const palette = [];
    for (const colour of common) if (palette.every((one) => distance(one, colour) >= least)) palette.push(colour);
    if (palette.length <= COLOURS) return palette;
  }
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type), data]);
  const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  check.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, check]);
}

export function withPalette(png) {
  const chunks = [];
  for (let at = 8; at < png.length; at += 12 + png.readUInt32BE(at)) {
    chunks.push([png.toString("latin1", at + 4, at + 8), png.subarray(at + 8, at + 8 + png.readUInt32BE(at))]);
  }
  const header = Buffer.from(chunks[0][1]);
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  if (header[8] !== 8 || header[9] !== 2 || header[12] !== 0)
    throw new Error("the picture is not 8-bit RGB without interlacing");
  const filtered = inflateSync(Buffer.concat(chunks.filter(([type]) => type === "IDAT").map(([, data]) => data)));
  const pixels = new Uint32Array(width * height);
  let above = new Uint8Array(width * 3);
  for (let y = 0; y < height; y++) {
    const start = y * (width * 3 + 1);
    const line = filtered.subarray(start + 1, start + 1 + width * 3);
    unfilter(filtered[start], line, above);
    for (let x = 0; x < width; x++)
      pixels[y * width + x] = (line[x * 3] << 16) | (line[x * 3 + 1] << 8) | line[x * 3 + 2];
    above = line;
  }
  const uses = new Map();
  for (const colour of pixels) uses.set(colour, (uses.get(colour) ?? 0) + 1);
  const palette = paletteOf(uses);
  const index = new Map([...uses.keys()].map((colour) => [colour, palette.indexOf(nearest(colour, palette))]));
  const lines = Buffer.alloc(height * (width + 1));
  pixels.forEach((colour, n) => (lines[n + Math.floor(n / width) + 1] = index.get(colour)));
  header[9] = 3;
  const colours = Buffer.from(palette.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]));
  const parts = [
    ["IHDR", header],
    ["PLTE", colours],
    ["IDAT", deflateSync(lines, { level: 9, memLevel: 9 })],
    ["IEND", Buffer.alloc(0)],
  ];
  return Buffer.concat([png.subarray(0, 8), ...parts.map(([type, data]) => chunk(type, data))]);
}
