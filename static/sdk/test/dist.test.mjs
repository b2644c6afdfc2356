import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import vm from "node:vm";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { describe, expect, it } from "vitest";

const read = (name) => readFileSync(new URL(`../dist/${name}`, import.meta.url));

describe("what is built", () => {
  it("stays within its budget as one module", () => {
    const guide = read("../../../docs/browser.md").toString();
    for (const name of ["bellwire.js", "service-worker.js", "diagnose.js", "ui.js", "ui/preferences.js"]) {
      const row = guide.match(new RegExp(`/sdk/${name}\`[^|]*\\| ([\\d,]+) \\| ([\\d,]+) \\|`));
      const [size, max] = row.slice(1).map((figure) => Number(figure.replace(",", "")));
      const octets = gzipSync(read(name), { level: 9 }).length;
      expect(octets).toBeLessThanOrEqual(max);
      expect(
        Math.abs(octets - size),
        `the guide says ${size} octets for ${name}, which has ${octets}`,
      ).toBeLessThanOrEqual(50);
    }
    const code = read("bellwire.js").toString();
    expect(code).not.toMatch(/sourceMappingURL|\bimport\s*[{*"']/);
    expect(code.match(/export\s*\{([^}]*)\}/)[1]).toMatch(/^\s*\w+ as init\s*$/);
  });

  it("loads the diagnosis on demand", () => {
    for (const name of ["bellwire.js", "index.js"]) {
      expect(
        new Set(
          read(name)
            .toString()
            .match(/import\(.*?\)/g),
        ),
      ).toEqual(new Set([`import("./diagnose.js")`]));
    }
    expect(read("diagnose.d.ts").toString()).toContain("function diagnose(client: Client");
  });

  it("loads one language and the preferences on demand", () => {
    const code = read("ui.js").toString();
    const loaded = code.match(/import\(.*?\)/g).map((call) => call.match(/"\.\/(ui\/\w+\.js)"/)[1]);
    const languages = loaded.filter((name) => name !== "ui/preferences.js");
    expect([loaded.length, languages.length]).toEqual([13, 12]);
    for (const name of languages) expect(gzipSync(read(name)).length, name).toBeLessThan(1_200);
    expect(read("ui/preferences.js").toString()).not.toMatch(/\bimport\b|indexedDB|adoptedStyleSheets/);
    for (const name of ["ui.js", "ui/preferences.js"])
      expect(read(name).toString()).not.toMatch(/\.innerHTML|\.cssText|setAttribute\("style/);
    for (const name of ["react.js", "vue.js"]) expect(read(name).toString()).toContain('import("./ui.js")');
  });

  it("reads no module address in the bundle build", async () => {
    expect(read("index.js").toString()).not.toContain("import.meta");
    expect(read("bellwire.js").toString()).toContain("import.meta.url");
    const { exports } = JSON.parse(read("../package.json"));
    expect(exports["."].default).toBe("./dist/index.js");
    // As an esbuild user gets it in a classic script.
    const entry = `import { init } from "./dist/index.js"; globalThis.client = init({ app: "shop" });`;
    const stdin = { contents: entry, resolveDir: new URL("..", import.meta.url).pathname };
    const { outputFiles, warnings } = await build({ stdin, bundle: true, format: "iife", write: false });
    expect(warnings).toEqual([]);
    const errors = [];
    const context = vm.createContext({
      URL,
      document: {},
      location: new URL("https://shop.example/"),
      console: { error: (text) => errors.push(text) },
    });
    vm.runInContext(outputFiles[0].text, context);
    expect(await context.client.ready).toEqual({ state: "invalid-options" });
    expect(errors[0]).toContain("`server` is undefined");
  });

  it("gives bundlers the elements and what they load", async () => {
    const resolveDir = new URL("..", import.meta.url).pathname;
    const stdin = { contents: `import { ui } from "./dist/ui.js"; globalThis.ui = ui;`, resolveDir };
    const options = { stdin, bundle: true, splitting: true, format: "esm", write: false, outdir: "out" };
    const { outputFiles, warnings } = await build(options);
    expect(warnings).toEqual([]);
    const names = outputFiles.map(({ path }) => path.replace(/.*\/|-\w+\.js$/g, "")).sort();
    expect(names).toEqual(expect.arrayContaining(["de", "en", "preferences", "zh"]));
    expect(outputFiles).toHaveLength(14);
  });

  it("is harmless without a window", () => {
    const script = `
      import { init } from ${JSON.stringify(new URL("../dist/bellwire.js", import.meta.url))};
      const bellwire = init({ app: "shop", userId: null });
      const off = bellwire.on("change", () => {});
      const told = [await bellwire.ready, await bellwire.subscribe(), await bellwire.login("ann", "signed"), await bellwire.logout()];
      told.push(await bellwire.setTopics([]), await bellwire.prompt(), await bellwire.credentials(), off(), await bellwire.track("viewed"), await bellwire.converted("signup"));
      console.log(JSON.stringify(told));`;
    const told = JSON.parse(
      execFileSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8" }),
    );
    const state = { state: "no-window" };
    const failed = { ok: false, status: state, reason: "no-window", message: expect.any(String), retrying: false };
    expect(told).toEqual([state, failed, failed, failed, failed, { answer: "not-needed" }, null, null, failed, failed]);
  });

  it("is a classic worker script with one global", () => {
    const listeners = [];
    const self = {
      location: new URL("https://shop.example/sw.js?app=shop"),
      registration: { scope: "https://shop.example/", showNotification() {} },
      addEventListener: (type) => listeners.push(type),
    };
    const context = vm.createContext({ self, URL, Map, Set, Promise });
    const before = Object.keys(context);
    const script = new vm.Script(read("service-worker.js").toString());
    script.runInContext(context);
    script.runInContext(context);
    expect(Object.keys(context)).toEqual(before);
    expect(Object.keys(self)).toEqual(["location", "registration", "addEventListener", "bellwire"]);
    const events = ["push", "notificationclick", "notificationclose", "pushsubscriptionchange", "message", "sync"];
    expect(listeners).toEqual(events);
  });

  it("packs one reproducible file for npm", () => {
    const file = new URL("../dist/bellwire-web.tgz", import.meta.url).pathname;
    const tar = (...options) =>
      execFileSync("tar", [...options], { encoding: "utf8", env: { ...process.env, TZ: "UTC" } });
    const rows = tar("-tvzf", file, "--full-time", "--numeric-owner")
      .trim()
      .split("\n")
      .map((row) => row.split(/\s+/));
    expect(new Set(rows.map(([mode, owner, , ...time]) => [mode, owner, time.slice(0, 2)].join()))).toHaveLength(1);
    expect([...read("bellwire-web.tgz").subarray(4, 10)]).toEqual([0, 0, 0, 0, 2, 255]); // no time of the build, no name of its system

    const packed = rows.map((row) => row.at(-1).replace(/^package\//, ""));
    expect(packed).toEqual(
      expect.arrayContaining(["LICENSE", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "package.json"]),
    );
    const manifest = JSON.parse(tar("-xzOf", file, "package/package.json"));
    const [, version] = read("../../../Cargo.toml")
      .toString()
      .match(/^version = "(.+)"$/m);
    expect(manifest).toMatchObject({
      name: "@bellwire/web",
      version,
      license: "MIT OR Apache-2.0",
      repository: { directory: "static/sdk" },
    });
    expect(manifest.engines.node).toMatch(/^>=\d+$/);
    expect([manifest.scripts, manifest.devDependencies]).toEqual([undefined, undefined]);
    expect(Object.keys(manifest.peerDependenciesMeta)).toEqual(Object.keys(manifest.peerDependencies));
    const named = Object.values(manifest.exports)
      .flatMap((entry) => Object.values(entry))
      .filter((path) => path.startsWith("./dist/"));
    expect(named.length).toBeGreaterThanOrEqual(8);
    for (const path of named) expect(packed).toContain(path.slice(2));
    expect(tar("-xzOf", file, "package/dist/react.js")).toMatch(/^"use client";/);
  });

  it("names the types that it ships", () => {
    expect(read("bellwire.d.ts").toString()).toContain("function init(options: Options): Client");
    expect(read("api.d.ts").toString()).toContain("./types.js");
    expect(read("worker/api.d.ts").toString()).toContain("interface Bellwire");
    expect(read("worker/global.d.ts").toString()).toContain("var bellwire: Bellwire");
  });
});
