// Builds the package that the server serves: compiles src/index.ts, adds the types of the API, and packs ../dist/bellwire-server.tgz with
// the libraries on which it depends, so that its installation needs no registry. `npm pack` makes equal bytes of equal sources.
import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const types = join(root, "static/admin/src/api/schema.d.ts"); // by openapi-typescript; a test compares it with the description of the API
const LINES_MAX = 150;

const lines = readFileSync(join(here, "src/index.ts"), "utf8").trimEnd().split("\n").length;
if (lines > LINES_MAX) throw new Error(`src/index.ts has ${lines} lines; ${LINES_MAX} are allowed`);
copyFileSync(types, join(here, "src/schema.d.ts"));
rmSync(join(here, "dist"), { recursive: true, force: true });
execFileSync(process.execPath, [join(here, "node_modules/typescript/bin/tsc"), "-p", "."], {
  cwd: here,
  stdio: "inherit",
});
copyFileSync(types, join(here, "dist/schema.d.ts"));

const temporary = mkdtempSync(join(tmpdir(), "bellwire-client-"));
const staged = join(temporary, "package");
const { scripts, devDependencies, ...manifest } = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));
const [, version] = readFileSync(join(root, "Cargo.toml"), "utf8").match(/^version = "(.+)"$/m);
mkdirSync(staged);
for (const name of [
  "dist",
  "README.md",
  "LICENSE",
  ...manifest.bundleDependencies.map((name) => `node_modules/${name}`),
]) {
  cpSync(join(here, name), join(staged, name), { recursive: true });
}
for (const name of ["LICENSE-MIT", "LICENSE-APACHE"]) copyFileSync(join(root, name), join(staged, name));
manifest.files.push("LICENSE-*");
writeFileSync(join(staged, "package.json"), `${JSON.stringify({ ...manifest, version }, null, 2)}\n`);
const npm = ["pack", "--json", "--ignore-scripts", "--offline", "--pack-destination", temporary];
const [{ filename }] = Object.values(JSON.parse(execFileSync("npm", npm, { cwd: staged, encoding: "utf8" })));
const packed = readFileSync(join(temporary, filename));
packed[9] = 255; // byte of the gzip header that names the builder's system; 255 is "unknown"
mkdirSync(join(here, "../dist"), { recursive: true });
writeFileSync(join(here, "../dist/bellwire-server.tgz"), packed);
rmSync(temporary, { recursive: true });
