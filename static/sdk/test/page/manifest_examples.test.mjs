// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/example/"}
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, expect, it, vi } from "vitest";
import { checkManifest } from "../../src/page/manifest";

const root = join(import.meta.dirname, "../../../..");
const read = (path) => readFileSync(join(root, path), "utf8");
const fetched = vi.fn();
beforeEach(() => void vi.stubGlobal("fetch", fetched));

const guide = () => read("docs/opt-in.md").match(/```json\n([^`]*"display"[^`]*)```/)[1];

it.each([
  ["the guide", guide, '<link rel="manifest" href="/manifest.webmanifest">', "/"],
  ...[
    ["the plain site", "examples/plain-site/index.html", "examples/plain-site/manifest.webmanifest", "/"],
    ["the React site", "examples/react-site/index.html", "examples/react-site/public/manifest.webmanifest", "/"],
    ["the example page", "static/example/index.html", "static/example/manifest.webmanifest", "/example/"],
  ].map(([name, page, manifest, scope]) => [name, () => read(manifest), read(page), scope]),
])("accepts the manifest of %s", async (_, text, page, scope) => {
  document.head.innerHTML = page.match(/<link rel="(apple-touch-icon|manifest)".*>/g).join("");
  fetched.mockResolvedValueOnce(new Response(text()));
  expect(await checkManifest(`https://shop.example${scope}`)).toEqual({
    found: `https://shop.example${scope}manifest.webmanifest: display standalone`,
    faults: [],
    hints: [],
  });
});
