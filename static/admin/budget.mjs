// Fails when the admin page outgrows what people should have to load: all of its files together, compressed.
import { readdirSync, readFileSync } from "node:fs";
import { brotliCompressSync } from "node:zlib";

const MAX_OCTETS = 226_000;
const dist = new URL("dist/", import.meta.url);

let sum = 0;
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile()) continue;
  const path = `${entry.parentPath}/${entry.name}`;
  const octets = brotliCompressSync(readFileSync(path)).length;
  console.log(`${String(octets).padStart(7)}  ${entry.name}`);
  sum += octets;
}
console.log(`${String(sum).padStart(7)}  bytes compressed`);
if (sum > MAX_OCTETS) throw new Error(`the admin page may have at most ${MAX_OCTETS} bytes compressed`);
