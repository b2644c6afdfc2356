// Bundles the SDK and the service worker into dist/, writes their types, and fails when the SDK outgrows its budget.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const SDK_MAX_OCTETS = 6_500;
const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
const common = { absWorkingDir: here, bundle: true, minify: true, target: "es2022", legalComments: "none", logLevel: "warning" };

rmSync(dist, { recursive: true, force: true });
await build({ ...common, entryPoints: ["src/bellwire.ts"], format: "esm", outfile: "dist/bellwire.js" });
await build({ ...common, entryPoints: ["src/worker/service-worker.ts"], format: "iife", outfile: "dist/service-worker.js" });

const temporary = mkdtempSync(join(tmpdir(), "bellwire-types-"));
const tsc = join(here, "node_modules/typescript/bin/tsc");
for (const project of ["tsconfig.json", "tsconfig.worker.json"]) {
  const emit = ["--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--rootDir", ".", "--outDir", temporary];
  execFileSync(process.execPath, [tsc, "-p", project, ...emit], { cwd: here, stdio: "inherit" });
}
for (const name of ["bellwire.d.ts", "api.d.ts", "types.d.ts", "worker/api.d.ts"]) {
  mkdirSync(dirname(join(dist, name)), { recursive: true });
  copyFileSync(join(temporary, "src", name), join(dist, name));
}
rmSync(temporary, { recursive: true });

for (const [name, max] of [["bellwire.js", SDK_MAX_OCTETS], ["service-worker.js", Infinity]]) {
  const octets = gzipSync(readFileSync(join(dist, name)), { level: 9 }).length;
  console.log(`dist/${name}: ${octets} octets compressed`);
  if (octets > max) throw new Error(`dist/${name} may have at most ${max} octets compressed`);
}
