import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it, vi } from "vitest";

const sdk = fileURLToPath(new URL("..", import.meta.url));
const root = join(sdk, "../..");
const pages = ["browser", "opt-in", "frameworks", "user-tokens"];
const guide = pages.map((page) => readFileSync(join(root, `docs/${page}.md`), "utf8")).join("\n");

/** Fenced blocks of code: language, side (page, worker or backend) and the recipe's file that has the same lines. */
const blocks = [...guide.matchAll(/^( *)```(js|ts|tsx|vue)\b(.*)\n([^]*?)^ *```$/gm)].map(
  ([, indent, language, info, text], n) => {
    const words = info.trim().split(" ").filter(Boolean);
    const code = text
      .split("\n")
      .map((line) => line.replace(indent, ""))
      .join("\n");
    return {
      name: `block-${n}`,
      language,
      code,
      file: words.find((word) => word.includes("/")),
      side: words.find((word) => !word.includes("/")),
    };
  },
);

/** Names that a snippet uses from the site around it. */
const AROUND = {
  page: `declare const bellwire: import("@bellwire/web").Client;
    declare const router: { push(path: string): void };
    declare function explain(reason: string): void;`,
  worker: `declare const trustedTypes: { createPolicy(name: string, rules: Rules): Rules };
    interface Rules { createScriptURL(url: string): string }`,
  backend: `declare const user: { id: string };
    declare const process: { env: { SECRET: string } };
    declare const jwt: { sign(claims: object, secret: string, options: object): string };
    declare const crypto: { createHmac(hash: string, key: string): { update(text: string): { digest(form: string): string } } };`,
};
const LIBRARIES = { page: ["es2022", "dom", "dom.iterable"], worker: ["es2022", "webworker"], backend: ["es2022"] };
/** Packages of the site's own, by the recipes that are compiled with them. */
const OF_RECIPES = /from "(workbox-|@angular\/)/;

vi.setConfig({ testTimeout: 60_000 }); // a compiler runs
const directories = [];
afterAll(() => directories.forEach((directory) => rmSync(directory, { recursive: true })));

/** A project with the packed package, as `npm i` leaves it. */
function project(packages = []) {
  const directory = mkdtempSync(join(tmpdir(), "bellwire-snippets-"));
  directories.push(directory);
  const installed = join(directory, "node_modules/@bellwire/web");
  mkdirSync(installed, { recursive: true });
  execFileSync("tar", ["-xzf", join(sdk, "dist/bellwire-web.tgz"), "-C", installed, "--strip-components=1"]);
  for (const name of packages) {
    mkdirSync(dirname(join(directory, "node_modules", name)), { recursive: true });
    symlinkSync(join(sdk, "node_modules", name), join(directory, "node_modules", name));
  }
  return directory;
}

/** Output of `tsc --strict` about files. Empty without errors. */
function compile(files, options = {}, packages = []) {
  const directory = project(packages);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
  const compilerOptions = {
    target: "es2022",
    module: "esnext",
    moduleResolution: "bundler",
    types: [],
    strict: true,
    noEmit: true,
    ...options,
  };
  writeFileSync(join(directory, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*"] }));
  try {
    execFileSync(process.execPath, [join(sdk, "node_modules/typescript/bin/tsc"), "-p", directory], {
      encoding: "utf8",
    });
    return "";
  } catch ({ stdout }) {
    return stdout;
  }
}

/** The options that the guide gives to users of TypeScript. */
const told = [...guide.matchAll(/^```json\n([^]*?)^```$/gm)].map(([, text]) => JSON.parse(text).compilerOptions);
const { types } = told.find((options) => options?.types);
const { paths } = told.find((options) => options?.paths);

describe("snippets of the guides", () => {
  it("name the side that they are for", () => {
    expect(blocks.length).toBeGreaterThan(12);
    const sides = blocks.filter(({ language }) => language !== "vue").map(({ side }) => side);
    expect(new Set(sides)).toEqual(new Set(["page", "worker", "backend"]));
  });

  it.each(["page", "worker", "backend"])("compile by tsc --strict: %s", (side) => {
    const compiled = blocks.filter((block) => block.side === side && !OF_RECIPES.test(block.code));
    // As modules, whose own `bellwire` hides the one around them.
    const files = compiled.map(({ name, language, code }) => [
      `${name}.${language.replace("js", "ts")}`,
      `${code}\nexport {};\n`,
    ]);
    expect(files.length).toBeGreaterThan(0);
    const options = { lib: LIBRARIES[side], paths, jsx: "react-jsx", ...(side === "worker" ? { types } : {}) };
    expect(
      compile({ ...Object.fromEntries(files), "around.ts": AROUND[side] }, options, [
        "react",
        "@types/react",
        "csstype",
      ]),
    ).toBe("");
  });

  it.each(blocks.filter(({ file }) => file).map(({ file, code }) => [file, code]))(
    "quote the recipe %s",
    (file, code) => {
      const lines = (text) =>
        text
          .split("\n")
          .map((line) => line.trim())
          .join("\n");
      expect(lines(readFileSync(join(root, "examples", file), "utf8"))).toContain(lines(code).trim());
    },
  );

  it("cover every recipe with the guide's line", () => {
    const recipes = join(root, "examples/recipes");
    const names = readdirSync(recipes).filter((name) => statSync(join(recipes, name)).isDirectory());
    expect(names.length).toBeGreaterThanOrEqual(6);
    expect(new Set(blocks.filter(({ file }) => file).map(({ file }) => file.split("/")[1]))).toEqual(new Set(names));
    const line = blocks.find(({ side }) => side === "worker").code.trim();
    const workers = names
      .map((name) => join(recipes, name, name === "plain" ? "" : "public", "service-worker.js"))
      .filter(existsSync);
    expect(workers.length).toBeGreaterThanOrEqual(5);
    for (const worker of workers) expect(readFileSync(worker, "utf8").startsWith(line), worker).toBe(true);
  });
});

describe("types of the package", () => {
  const WORKER = `
    self.bellwire.onPush(({ payload, retried }) => ({ title: String(payload), body: String(retried) }));
    bellwire.onClick(({ url, action }) => (action ? url : false));
    bellwire.appUrl = "https://push.example.com/v1/apps/shop";`;
  const worker = { lib: LIBRARIES.worker };

  it.each([
    ["a classic worker", WORKER, { ...worker, types }],
    ["a bundled worker", `import "@bellwire/web/service-worker";${WORKER}`, worker],
    [
      "a worker with its own self",
      `import "@bellwire/web/service-worker";\ndeclare const self: ServiceWorkerGlobalScope;${WORKER}`,
      worker,
    ],
    ["a reference", `/// <reference types="@bellwire/web/service-worker" />${WORKER}`, worker],
    [
      "a worker that imports an address",
      `import "https://push.example.com/sdk/service-worker.js";${WORKER}`,
      { ...worker, paths },
    ],
    [
      "a page that imports an address",
      `import { init } from "https://push.example.com/sdk/bellwire.js";\nexport const client: import("@bellwire/web").Client = init({ app: "shop" });`,
      { lib: LIBRARIES.page, paths },
    ],
    [
      "named types",
      `import type { Bellwire, RawHandler } from "@bellwire/web/service-worker";\nexport type Both = [Bellwire, RawHandler];`,
      worker,
    ],
    [
      "a page",
      `import { init, type Result } from "@bellwire/web";\nexport const asked: Promise<Result> = init({ app: "shop" }).subscribe();`,
      { lib: LIBRARIES.page },
    ],
  ])("serve %s, for bundlers and for Node", (_, code, options) => {
    expect(compile({ "code.ts": code }, options)).toBe("");
    expect(compile({ "code.mts": code }, { ...options, module: "nodenext", moduleResolution: "nodenext" })).toBe("");
  });

  it("serve the hooks of React and Vue", () => {
    const uses = (
      framework,
    ) => `import { init } from "@bellwire/web";\nimport { usePush } from "@bellwire/web/${framework}";
      export const { status, problem, subscribe } = usePush(init({ app: "shop" }));`;
    const files = {
      "react.ts": `${uses("react")}\nexport const state: string | undefined = status?.state;`,
      "vue.ts": `${uses("vue")}\nexport const state: string | undefined = status.value?.state;`,
    };
    expect(
      compile(files, { lib: LIBRARIES.page, skipLibCheck: true }, ["react", "@types/react", "csstype", "vue"]),
    ).toBe("");
  });

  it("serve the components of React with ref", () => {
    const code = `import { init } from "@bellwire/web";
      import { BellwireBell, BellwirePreferences, BellwirePrompt } from "@bellwire/web/react";
      import type { BellwirePromptElement } from "@bellwire/web/ui";
      import { createElement, createRef } from "react";
      const client = init({ app: "shop" });
      const ref = createRef<BellwirePromptElement>();
      createElement(BellwirePrompt, { client, ref, layout: "bar", page: "/cart", className: "wide", style: { margin: 0 } });
      createElement(BellwirePreferences, { client, id: "mine", page: "/account", ref: (element) => void element?.client });
      createElement(BellwireBell, { client, corner: "top-start", lang: "de" });
      export const shown: Promise<boolean> | undefined = ref.current?.show();`;
    const options = { lib: LIBRARIES.page, skipLibCheck: true };
    const packages = ["react", "@types/react", "csstype"];
    expect(compile({ "code.ts": code }, options, packages)).toBe("");
    const wrong = code.replace('corner: "top-start"', "corner: 1").replace('layout: "bar"', 'layout: "popup"');
    expect(compile({ "code.ts": wrong }, options, packages).match(/error TS\d+/g)).toHaveLength(2);
  });

  it("refuse what the worker's bellwire does not have", () => {
    const wrong = compile(
      { "code.ts": `self.bellwire.onPush(({ payload }) => payload.toUpperCase());\nself.bellwire.subscribe();` },
      { ...worker, types },
    );
    expect(wrong).toMatch(/TS2339.*toUpperCase/);
    expect(wrong).toMatch(/TS2339.*subscribe/);
  });
});
