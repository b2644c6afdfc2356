// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Browser } from "./support";

const fail = (): never => {
  throw new DOMException("The operation is insecure.", "SecurityError");
};

let browser: Browser;
beforeEach(() => void (browser = new Browser()));

describe.each([
  ["indexedDB.open", () => vi.stubGlobal("indexedDB", { open: fail })],
  ["indexedDB", () => Object.defineProperty(globalThis, "indexedDB", { get: fail, configurable: true })],
  ["BroadcastChannel", () => vi.stubGlobal("BroadcastChannel", fail)],
  ["navigator.locks", () => Object.defineProperty(navigator, "locks", { get: fail, configurable: true })],
  ["navigator.locks.request", () => browser.define("locks", { request: fail })],
  ["getRegistration", () => void browser.container.getRegistration.mockImplementation(fail)],
  [
    "navigator.serviceWorker",
    () => Object.defineProperty(navigator, "serviceWorker", { get: fail, configurable: true }),
  ],
])("where storage is blocked, so that %s throws", (_, block) => {
  afterEach(() => Reflect.deleteProperty(globalThis, "indexedDB"));
  it("reports private mode and throws nothing", async () => {
    browser.permission = "granted";
    block();
    const client = await browser.visit({ userId: "ann", userToken: "signed ann" });
    const told = { ok: false, reason: "private-mode", retrying: false };
    expect(await client.subscribe()).toMatchObject(told);
    expect(await client.login("bob", "signed bob")).toMatchObject({ ok: expect.any(Boolean) });
    expect(await client.logout()).toMatchObject({ ok: expect.any(Boolean) });
    expect(await client.unsubscribe()).toMatchObject({ ok: expect.any(Boolean) });
    expect(await client.setTopics(["news"])).toMatchObject({ ok: false });
    expect(await client.credentials()).toBeNull();
    expect(["private-mode", "unsubscribed"]).toContain((await client.status()).state);
    expect(browser.server.rows).toEqual([]);
  });
});
