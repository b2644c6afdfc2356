// Bundles the SDK, its entry points and the service worker into dist/, writes their types, fails when SDK or worker outgrow their
// budget, and packs the npm package that the server serves.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

// The guide names them.
const MAX_OCTETS = {
  "bellwire.js": 8_200,
  "index.js": 8_200,
  "diagnose.js": 8_000,
  "service-worker.js": 8_900,
  "ui.js": 6_000,
  "ui/preferences.js": 3_000,
};
const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: "es2022",
  legalComments: "none",
  logLevel: "warning",
};

// Pages load it when they need it, from beside the module.
const lazy = {
  name: "lazy",
  setup: (build) => {
    build.onResolve({ filter: /\/(diagnose|ui)\.js$/ }, ({ path }) => ({
      path: `./${basename(path)}`,
      external: true,
    }));
    build.onResolve({ filter: /texts\/..\.json$/ }, ({ path }) => ({
      path: `./ui/${basename(path, ".json")}.js`,
      external: true,
    }));
    build.onResolve({ filter: /\/preferences_form$/ }, ({ kind, path }) =>
      kind === "entry-point" ? undefined : { path: "./ui/preferences.js", external: true },
    );
  },
};

// No minifier reads style sheets in templates.
const styles = {
  name: "styles",
  setup: (build) => {
    build.onLoad({ filter: /\/ui\/(preferences_)?style\.ts$/ }, ({ path }) => ({
      contents: readFileSync(path, "utf8").replace(/STYLE = `[^`]+`/, (sheet) => sheet.replaceAll("\n", "")),
      loader: "ts",
    }));
  },
};

rmSync(dist, { recursive: true, force: true });
await build({
  ...common,
  plugins: [lazy],
  entryPoints: ["src/bellwire.ts"],
  format: "esm",
  outfile: "dist/bellwire.js",
});
// For bundlers, which would replace `import.meta.url` by a path of the build machine, or by nothing.
const define = { "import.meta.url": "undefined" };
await build({
  ...common,
  plugins: [lazy],
  entryPoints: ["src/bellwire.ts"],
  format: "esm",
  define,
  outfile: "dist/index.js",
});
await build({
  ...common,
  entryPoints: ["src/worker/service-worker.ts"],
  format: "iife",
  outfile: "dist/service-worker.js",
});
// Frameworks that render on a server load hooks only from modules that are marked for the browser.
const banner = { js: '"use client";' };
await build({
  ...common,
  plugins: [lazy],
  entryPoints: ["src/react.ts"],
  format: "esm",
  external: ["react"],
  banner,
  outfile: "dist/react.js",
});
await build({
  ...common,
  plugins: [lazy],
  entryPoints: ["src/vue.ts"],
  format: "esm",
  external: ["vue"],
  outfile: "dist/vue.js",
});
await build({ ...common, entryPoints: ["src/diagnose.ts"], format: "esm", define, outfile: "dist/diagnose.js" });
await build({
  ...common,
  plugins: [lazy, styles],
  entryPoints: ["src/ui.ts"],
  format: "esm",
  define,
  outfile: "dist/ui.js",
});
await build({
  ...common,
  plugins: [lazy, styles],
  entryPoints: ["src/ui/preferences_form.ts"],
  format: "esm",
  outfile: "dist/ui/preferences.js",
});
const languages = readdirSync(join(here, "src/ui/texts")).map((file) => basename(file, ".json"));
for (const language of languages) {
  const texts = JSON.parse(readFileSync(join(here, `src/ui/texts/${language}.json`), "utf8"));
  writeFileSync(join(dist, `ui/${language}.js`), `export default ${JSON.stringify(texts)};\n`);
}
const types = ["bellwire.d.ts", "diagnose.d.ts", "react.d.ts", "vue.d.ts", "ui.d.ts", "worker/global.d.ts"];

const temporary = mkdtempSync(join(tmpdir(), "bellwire-sdk-"));
const tsc = join(here, "node_modules/typescript/bin/tsc");
for (const project of ["tsconfig.json", "tsconfig.worker.json"]) {
  const emit = ["--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--rootDir", ".", "--outDir", temporary];
  execFileSync(process.execPath, [tsc, "-p", project, ...emit], { cwd: here, stdio: "inherit" });
}
const typed = new Set();
for (const name of types) copyTypes(name);

/** Copies a file of types, and the files that it names. */
function copyTypes(name) {
  if (typed.has(name)) return;
  typed.add(name);
  const from = join(temporary, "src", name);
  mkdirSync(dirname(join(dist, name)), { recursive: true });
  copyFileSync(from, join(dist, name));
  for (const [, other] of readFileSync(from, "utf8").matchAll(/\bfrom "(\.[^"]+)\.js"/g)) {
    copyTypes(join(dirname(name), `${other}.d.ts`));
  }
}

for (const [name, max] of Object.entries(MAX_OCTETS)) {
  const bytes = gzipSync(readFileSync(join(dist, name)), { level: 9 }).length;
  console.log(`dist/${name}: ${bytes} bytes compressed`);
  if (bytes > max) throw new Error(`dist/${name} may have at most ${max} bytes compressed`);
}

pack();
rmSync(temporary, { recursive: true });

/** Packs dist/bellwire-web.tgz. `npm pack` sorts the entries and gives all of them one time, so equal sources make equal octets. */
function pack() {
  const { scripts, devDependencies, exports, ...manifest } = JSON.parse(
    readFileSync(join(here, "package.json"), "utf8"),
  );
  const [, version] = readFileSync(join(here, "../../Cargo.toml"), "utf8").match(/^version = "(.+)"$/m);
  const staged = join(temporary, "package");
  const put = (from, to) => {
    mkdirSync(dirname(join(staged, to)), { recursive: true });
    copyFileSync(from, join(staged, to));
  };
  const loaded = Object.values(exports).map((entry) => entry.default);
  const onDemand = ["preferences", ...languages].map((name) => `dist/ui/${name}.js`);
  for (const name of [...loaded, ...[...typed].map((name) => `dist/${name}`), ...onDemand].filter(Boolean))
    put(join(here, name), name);
  for (const name of ["README.md", "LICENSE"]) put(join(here, name), name);
  for (const name of ["LICENSE-MIT", "LICENSE-APACHE"]) put(join(here, "../..", name), name);
  manifest.files.push("LICENSE-*");
  writeFileSync(join(staged, "package.json"), `${JSON.stringify({ ...manifest, version, exports }, null, 2)}\n`);
  const npm = ["pack", "--json", "--ignore-scripts", "--offline", "--pack-destination", temporary];
  const [{ filename }] = Object.values(JSON.parse(execFileSync("npm", npm, { cwd: staged, encoding: "utf8" })));
  const packed = readFileSync(join(temporary, filename));
  packed[9] = 255; // octet of the gzip header that names the builder's system; 255 is "unknown"
  writeFileSync(join(dist, "bellwire-web.tgz"), packed);
}
