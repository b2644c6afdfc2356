// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/news/today"}
import { beforeEach, expect, it, vi } from "vitest";
import { checkManifest } from "../../src/page/manifest";

const GOOD = {
  id: "/",
  name: "Shop",
  display: "standalone",
  start_url: "/",
  icons: [
    { src: "icon.svg", sizes: "any", type: "image/svg+xml" },
    { src: "icon.png", sizes: "96x96 192x192", type: "image/png" },
  ],
};
const LINK = '<link rel="manifest" href="/app/site.webmanifest">';
const HREF = "https://shop.example/app/site.webmanifest";

const fetched = vi.fn(async (_url: string, _init: RequestInit): Promise<Response> => Response.json(GOOD));

beforeEach(() => {
  document.head.innerHTML = LINK;
  vi.stubGlobal("fetch", fetched);
  fetched.mockClear();
});

function serve(changes: object) {
  fetched.mockResolvedValueOnce(Response.json({ ...GOOD, ...changes }));
}

it("accepts a complete manifest with one request", async () => {
  const findings = await checkManifest("https://shop.example/");
  expect(findings).toEqual({ found: `${HREF}: display standalone`, faults: [], hints: [] });
  expect(fetched.mock.calls).toEqual([[HREF, expect.objectContaining({ credentials: "omit" })]]);
});

it("sends cookies if the link demands it", async () => {
  document.head.innerHTML = '<link rel="manifest" crossorigin="use-credentials" href="/app/site.webmanifest">';
  await checkManifest();
  expect(fetched.mock.calls[0]![1]).toMatchObject({ credentials: "include" });
});

it("requires a link", async () => {
  document.head.innerHTML = '<link rel="icon" href="/icon.png">';
  expect(await checkManifest()).toMatchObject({ found: "No link.", faults: [expect.stringContaining("<link")] });
  expect(fetched).not.toHaveBeenCalled();
});

it.each<[string, () => Promise<Response>, string, string]>([
  ["a status", async () => new Response("{}", { status: 404 }), "HTTP 404", "linked address"],
  ["a page instead", async () => new Response("<!doctype html>"), "no JSON object", "JSON object"],
  ["an array", async () => Response.json([GOOD]), "no JSON object", "JSON object"],
  ["null", async () => Response.json(null), "no JSON object", "JSON object"],
  ["no answer", () => Promise.reject(new TypeError("network")), "no answer", "connect-src"],
])("reports %s in place of a manifest", async (_, answer, found, fault) => {
  fetched.mockImplementationOnce(answer);
  const findings = await checkManifest();
  expect(findings.found).toBe(`${HREF}: ${found}`);
  expect(findings.faults).toEqual([expect.stringContaining(fault)]);
});

it.each<[string, object, string]>([
  ["no name", { name: " " }, 'Set "name" or "short_name".'],
  ["display browser", { display: "browser" }, 'Set "display" to "standalone" or "fullscreen".'],
  ["display minimal-ui", { display: "minimal-ui" }, 'Set "display"'],
  ["display_override alone", { display: undefined, display_override: ["standalone"] }, 'ignore "display_override"'],
  ["no icons", { icons: undefined }, "192 pixels"],
  ["a broken list of icons", { icons: [null, 1, {}] }, "192 pixels"],
  ["small icons", { icons: [{ src: "i.png", sizes: "96x96" }] }, "192 pixels"],
  ["icons in SVG", { icons: [{ src: "i.svg", sizes: "512x512" }] }, "192 pixels"],
  ["maskable icons", { icons: [{ src: "i.png", sizes: "192x192", purpose: "maskable" }] }, "192 pixels"],
  ["a start elsewhere", { start_url: "https://other.example/" }, 'Set "start_url" to a page of https://shop.example.'],
  ["an invalid start", { start_url: "https://" }, 'Set "start_url"'],
  ["a start outside the scope", { start_url: "/start", scope: "/news/" }, "covers https://shop.example/start"],
  ["this page outside the scope", { start_url: "/app/" }, "covers https://shop.example/news/today"],
  ["a scope elsewhere", { scope: "https://other.example/" }, "covers https://shop.example/ and https://shop.example/n"],
])("has one advice for %s", async (_, changes, fault) => {
  serve(changes);
  expect((await checkManifest()).faults).toEqual([expect.stringContaining(fault)]);
});

it("requires a scope that covers the worker's", async () => {
  serve({ start_url: "/news/" });
  expect((await checkManifest("https://shop.example/news/")).faults).toEqual([]);
  serve({ start_url: "/news/" });
  const { faults } = await checkManifest("https://shop.example/");
  expect(faults).toEqual(['Set a "scope" that covers https://shop.example/.']);
});

it.each<[string, object]>([
  ["a short name", { name: undefined, short_name: "Shop" }],
  ["display fullscreen", { display: "fullscreen" }],
  ["no start", { start_url: undefined }],
  ["a scope of its own", { start_url: "/news/", scope: "../" }],
  ["an icon for several purposes", { icons: [{ src: "i.png", sizes: "512x512", purpose: "maskable any" }] }],
])("accepts %s", async (_, changes) => {
  serve(changes);
  expect((await checkManifest()).faults).toEqual([]);
});

it.each([
  ["apple-touch-icon", "/icon.png", []],
  ["apple-touch-icon-precomposed", "/icon.png", []],
  ["apple-touch-icon", "/icon.svg", [expect.stringContaining("192 pixels")]],
])("takes %s %s in place of icons", async (rel, href, faults) => {
  document.head.innerHTML = `${LINK}<link rel="${rel}" href="${href}">`;
  serve({ icons: [] });
  expect((await checkManifest()).faults).toEqual(faults);
});

it("recommends an id", async () => {
  serve({ id: undefined });
  expect(await checkManifest()).toMatchObject({ faults: [], hints: [expect.stringContaining('"id"')] });
});

it("lists all faults", async () => {
  fetched.mockResolvedValueOnce(Response.json({ start_url: "https://other.example/" }));
  const { faults, hints } = await checkManifest();
  expect(faults.map((fault) => fault.match(/"(\w+)"/)?.[1])).toEqual(["name", "display", "icons", "start_url"]);
  expect([...faults, ...hints].join(" ").length).toBeLessThan(450);
});
