import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { expect, it } from "vitest";

const root = resolve(import.meta.dirname, "../src");
const names = readdirSync(root, { recursive: true }).filter((name) => /\.(tsx?|css)$/.test(name));
const sources = new Map(names.map((name) => [join(root, name), readFileSync(join(root, name), "utf8")]));

/** Files that a file imports, as far as they are loaded with it. */
function importsOf(file) {
  const found = [...sources.get(file).matchAll(/(?:from|import) "(\.[^"]+)"/g)].map(([, path]) =>
    resolve(dirname(file), path),
  );
  return found.flatMap((path) => [path, `${path}.ts`, `${path}.tsx`].filter((one) => sources.has(one)));
}

function loadedWith(file, seen = new Set()) {
  if (!seen.has(file)) importsOf(seen.add(file) && file).forEach((one) => loadedWith(one, seen));
  return seen;
}

/** Classes that begin a selector of a style sheet. */
function classesOf(sheet) {
  const selectors = sources
    .get(sheet)
    .replace(/\/\*[^]*?\*\//g, "")
    .matchAll(/([^{};]+)\{/g);
  return [...selectors].flatMap(([, list]) =>
    list.split(",").flatMap((selector) =>
      [
        ...selector
          .trim()
          .split(/[\s>+~]/)[0]
          .matchAll(/\.([a-z][\w-]*)/g),
      ].map(([, name]) => name),
    ),
  );
}

const sheets = [...sources.keys()]
  .filter((file) => file.endsWith(".css"))
  .map((file) => ({ file, classes: classesOf(file) }));
const shell = join(root, "shell/shell.tsx");
const always = [join(root, "main.tsx"), shell, join(root, "shell/admin.tsx")].flatMap((file) => [...loadedWith(file)]);
const pages = [...sources.get(shell).matchAll(/import\("(\.[^"]+)"\)/g)].map(([, path]) => path);

it.each(pages)("loads the styles of its classes: %s", (page) => {
  const loaded = new Set([...always, ...loadedWith(`${resolve(dirname(shell), page)}.tsx`)]);
  const used = [...loaded].flatMap((file) =>
    [...sources.get(file).matchAll(/class="([^"]+)"/g)].flatMap(([, list]) => list.split(" ")),
  );
  const missing = [...new Set(used)].filter((name) => {
    const of = sheets.filter(({ classes }) => classes.includes(name));
    return of.length > 0 && !of.some(({ file }) => loaded.has(file));
  });
  expect(missing).toEqual([]);
});
