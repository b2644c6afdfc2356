// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { beforeEach, expect, it, vi } from "vitest";
import type { Options } from "../../src/bellwire";
import { ORIGIN } from "../shared/server";
import { Browser } from "./support";

let browser: Browser;
let script: Response | undefined;

beforeEach(() => {
  browser = new Browser();
  browser.permission = "granted";
  browser.container.register.mockRejectedValue(new TypeError("raw message"));
  vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.stubGlobal("fetch", async (url: string, init?: RequestInit) => {
    if (!String(url).startsWith("https://shop.example/")) return browser.server.fetch(url, init);
    if (script) return script;
    throw new TypeError("network");
  });
});

const served = (status: number, headers: Record<string, string> = {}) =>
  new Response("", { status, headers: { "Content-Type": "text/javascript; charset=utf-8", ...headers } });
const policy = (value: string) => served(200, { "Content-Security-Policy": value });
const push = { serviceWorker: { url: "/push/sw.js", scope: "/" } };

it.each<[string, () => Response | undefined, Partial<Options>, string[]]>([
  [
    "a script that is not there",
    () => served(404),
    {},
    ["HTTP 404, Content-Type: text/javascript", "Needed: 200, text/javascript, scope /,"],
  ],
  [
    "a page in its place",
    () => served(200, { "Content-Type": "text/html" }),
    {},
    ["HTTP 200, Content-Type: text/html,"],
  ],
  [
    "a redirect",
    () => Object.defineProperties(served(200), { redirected: { value: true } }),
    {},
    ["HTTP 200 redirected"],
  ],
  ["a scope above it", () => served(200), push, ["Service-Worker-Allowed: none", "scope /,"]],
  [
    "a scope that is not allowed",
    () => served(200, { "Service-Worker-Allowed": "/push/" }),
    push,
    ["Service-Worker-Allowed: /push/"],
  ],
  [
    "Trusted Types",
    () => policy("require-trusted-types-for 'script'"),
    {},
    ["Content-Security-Policy: require-trusted-types-for 'script'"],
  ],
  [
    "a policy without the server",
    () => policy("default-src 'self'"),
    {},
    ["Content-Security-Policy: default-src 'self'", `access to ${ORIGIN}`],
  ],
  ["a script that throws", () => served(200), {}, ["TypeError: raw message"]],
  ["no network", () => undefined, {}, ["TypeError: raw message"]],
])("a worker that is refused is explained: %s", async (_, response, options, said) => {
  script = response();
  const result = await (await browser.visit(options)).subscribe();
  expect(result).toMatchObject({ ok: false, reason: "worker", message: expect.stringContaining("raw message") });
  for (const part of said) expect(result).toMatchObject({ message: expect.stringContaining(part) });
  expect(result).toMatchObject({
    message: expect.stringMatching(/^https:\/\/shop\.example\/(push\/sw|service-worker)\.js/),
  });
});
