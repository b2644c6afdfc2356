// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Options } from "../../src/bellwire";
import { optionsFault, serverOf } from "../../src/page/options";
import { Browser } from "./support";

let browser: Browser;
let errors: unknown[];

beforeEach(() => {
  browser = new Browser();
  browser.permission = "granted";
  errors = [];
  vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.spyOn(console, "error").mockImplementation((error) => void errors.push(error));
});

describe("options that cannot work", () => {
  it.each([
    ["no app", { app: undefined }, "`app`"],
    ["an empty app", { app: "" }, "`app`"],
    ["no server in a bundle", { server: undefined }, "`server` is undefined: give the origin"],
    ["a server without scheme", { server: "push.example" }, '"push.example"'],
    ["a file as server", { server: "file:///home/ci/dist" }, "file:///home/ci/dist"],
    ["a worker elsewhere", { serviceWorker: { url: "https://cdn.example/sw.js" } }, "`serviceWorker` is {"],
    ["a scope elsewhere", { serviceWorker: { scope: "https://cdn.example/" } }, "`serviceWorker` is {"],
    ["a worker that is no URL", { serviceWorker: { url: "https://[" } }, "`serviceWorker` is {"],
  ])("are named: %s", async (_, options, named) => {
    const client = await browser.visit(options as Partial<Options>);
    expect(await client.status()).toEqual({ state: "invalid-options" });
    const failure = { ok: false, reason: "invalid-options", message: expect.stringContaining(named), retrying: false };
    expect(await client.subscribe()).toMatchObject(failure);
    expect(await client.logout()).toMatchObject(failure);
    expect(errors).toEqual([expect.stringContaining(named)]);
    expect(browser.server.asked).toEqual([]);
  });

  it("make init throw nothing, even without any", async () => {
    const { init } = await import("../../src/bellwire");
    expect(await init({} as never).ready).toEqual({ state: "invalid-options" });
    expect(await (init as () => ReturnType<typeof init>)().ready).toEqual({ state: "invalid-options" });
  });
});

it.each([
  ["https://push.example/sdk/bellwire.js", "https://push.example"],
  ["https://push.example/sdk/bellwire.js?v=2", "https://push.example"],
  ["http://localhost:8787/sdk/bellwire.js", "http://localhost:8787"],
  ["https://shop.example/assets/index-4711.js", undefined],
  ["file:///home/ci/node_modules/@bellwire/web/sdk/bellwire.js", undefined],
  ["", undefined],
  [undefined, undefined],
])("reads from module %s the server %s", (url, server) => {
  expect(serverOf({ app: "shop" }, url)).toBe(server);
  expect(serverOf({ app: "shop", server: "https://given.example/push//" }, url)).toBe("https://given.example/push");
  expect(optionsFault({ app: "shop" }, server) === undefined).toBe(server !== undefined);
});

describe("an error that is no private window", () => {
  const html = (status = 200) =>
    new Response("<!doctype html><title>Shop</title>", { status, headers: { "Content-Type": "text/html" } });

  it.each([
    ["HTML with 200", () => html(), "HTTP 200"],
    ["HTML with 404", () => html(404), "HTTP 404"],
    ["JSON of something else", () => Response.json({ hello: 1 }), "HTTP 200"],
    ["a list", () => Response.json([]), "HTTP 200"],
    ["null", () => Response.json(null), "HTTP 200"],
  ])("is a server that answers %s", async (_, response, said) => {
    browser.server.instead = response;
    const result = await (await browser.visit()).subscribe();
    expect(result).toMatchObject({
      ok: false,
      reason: "refused",
      retrying: false,
      message: expect.stringContaining(said),
    });
    expect(result).toMatchObject({ message: expect.stringContaining("`server`") });
  });

  it("is a registration that a proxy answers", async () => {
    browser.server.instead = ({ method }) => (method === "POST" ? html() : undefined);
    const client = await browser.visit();
    expect(await client.subscribe()).toMatchObject({ ok: false, reason: "refused" });
    expect(await client.credentials()).toBeNull();
  });

  it("keeps an existing subscription at a visit", async () => {
    await (await browser.visit()).subscribe({ topics: ["news"] });
    browser.server.instead = () => html();
    const client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_1", topics: ["news"] });
    browser.server.instead = () => undefined;
    expect(await client.setTopics(["offers"])).toMatchObject({ ok: true, status: { id: "sub_1" } });
  });

  it("is a value that cannot be stored", async () => {
    const client = await browser.visit();
    const attributes = { plan: (() => {}) as never };
    expect(await client.subscribe({ attributes })).toMatchObject({
      ok: false,
      reason: "unexpected",
      message: expect.stringContaining("cloned"),
    });
    expect(errors).toHaveLength(1);
    expect(await client.status()).toEqual({ state: "unsubscribed", permission: "granted" });
  });

  it("is not a storage that fails", async () => {
    const client = await browser.visit();
    vi.stubGlobal("indexedDB", {
      open: () => {
        throw new DOMException("no", "SecurityError");
      },
    });
    expect(await (await browser.visit()).subscribe()).toMatchObject({ ok: false, reason: "private-mode" });
    expect(await client.status()).toMatchObject({ state: expect.any(String) });
  });
});
