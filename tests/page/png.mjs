// Makes PNGs small: at most 256 colours, and the best compression. Takes what browsers write: 8 bits a channel, no alpha.

import { deflateSync, inflateSync } from "node:zlib";

const SIGNATURE = 8;
const TRUE_COLOUR = 2;
const PALETTE = 3;
const COLOURS_MAX = 256;
/** Colours that stay as they are: areas have few of them. */
const EXACT = 32;

function* chunks(png) {
  for (let at = SIGNATURE; at < png.length; at += 12 + png.readUInt32BE(at)) {
    yield { kind: png.toString("latin1", at + 4, at + 8), data: png.subarray(at + 8, at + 8 + png.readUInt32BE(at)) };
  }
}

function crc(bytes) {
  let value = ~0;
  for (const byte of bytes) {
    value ^= byte;
    for (let bit = 0; bit < 8; bit += 1) value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
  }
  return ~value >>> 0;
}

function chunk(kind, data) {
  const whole = Buffer.alloc(data.length + 12);
  whole.writeUInt32BE(data.length, 0);
  whole.write(kind, 4, "latin1");
  data.copy(whole, 8);
  whole.writeUInt32BE(crc(whole.subarray(4, data.length + 8)), data.length + 8);
  return whole;
}

/** The neighbour that foretells a byte best: left, above, or both. PNG specification, 9.4. */
function paeth(left, above, corner) {
  const guess = left + above - corner;
  const [a, b, c] = [Math.abs(guess - left), Math.abs(guess - above), Math.abs(guess - corner)];
  if (a <= b && a <= c) return left;
  return b <= c ? above : corner;
}

/** Reads the pixels: three bytes each, row by row. */
function readPixels(png) {
  const parts = [...chunks(png)];
  const header = parts[0].data;
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  if (header[8] !== 8 || header[9] !== TRUE_COLOUR || header[12] !== 0) throw new Error("no picture of 8 bits a channel without alpha");
  const raw = inflateSync(Buffer.concat(parts.filter(({ kind }) => kind === "IDAT").map(({ data }) => data)));
  const row = width * 3;
  const pixels = Buffer.alloc(row * height);
  for (let y = 0; y < height; y += 1) {
    const filter = raw[y * (row + 1)];
    for (let x = 0; x < row; x += 1) {
      const at = y * row + x;
      const left = x >= 3 ? pixels[at - 3] : 0;
      const above = y > 0 ? pixels[at - row] : 0;
      const corner = x >= 3 && y > 0 ? pixels[at - row - 3] : 0;
      const foretold = [0, left, above, (left + above) >> 1, paeth(left, above, corner)][filter];
      pixels[at] = raw[y * (row + 1) + 1 + x] + foretold;
    }
  }
  return { width, height, pixels };
}

const colourAt = (pixels, at) => (pixels[at] << 16) | (pixels[at + 1] << 8) | pixels[at + 2];
const parts = (colour) => [colour >> 16, (colour >> 8) & 255, colour & 255];
const distance = (one, other) => parts(one).reduce((sum, part, n) => sum + (part - parts(other)[n]) ** 2, 0);

/** The most frequent colours. Of the rarer ones that look alike, only the most frequent one. */
function choosePalette(counts) {
  const sorted = [...counts].sort(([, one], [, other]) => other - one);
  const exact = sorted.slice(0, EXACT).map(([colour]) => colour);
  const alike = new Map();
  for (const [colour, count] of sorted.slice(EXACT)) {
    const group = parts(colour).map((part) => part >> 4).join();
    const known = alike.get(group);
    if (known) known.count += count;
    else alike.set(group, { colour, count });
  }
  const others = [...alike.values()].sort((one, other) => other.count - one.count).map(({ colour }) => colour);
  return [...exact, ...others].slice(0, COLOURS_MAX);
}

/** Returns the same picture in fewer bytes. Its areas keep their exact colours, and edges of letters about theirs. */
export function shrink(png) {
  const { width, height, pixels } = readPixels(png);
  const counts = new Map();
  for (let at = 0; at < pixels.length; at += 3) counts.set(colourAt(pixels, at), (counts.get(colourAt(pixels, at)) || 0) + 1);
  const palette = choosePalette(counts);
  const nearest = new Map([...counts.keys()].map((colour) => {
    const distances = palette.map((other) => distance(colour, other));
    return [colour, distances.indexOf(Math.min(...distances))];
  }));
  const rows = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) rows[y * (width + 1) + 1 + x] = nearest.get(colourAt(pixels, (y * width + x) * 3));
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, PALETTE, 0, 0, 0], 8);
  return Buffer.concat([
    png.subarray(0, SIGNATURE), chunk("IHDR", header), chunk("PLTE", Buffer.from(palette.flatMap(parts))),
    chunk("IDAT", deflateSync(rows, { level: 9, memLevel: 9 })), chunk("IEND", Buffer.alloc(0)),
  ]);
}
