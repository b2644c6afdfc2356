// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Client } from "../../src/bellwire";
import { Browser } from "./support";

const DAY_MS = 86_400_000;

let browser: Browser;
let client: Client;

beforeEach(async () => {
  browser = new Browser();
  client = await browser.visit();
  await client.subscribe({ topics: ["news"] });
  browser.server.asked = [];
});

const inDays = (days: number) => new Date(browser.now + days * DAY_MS);

describe("mute", () => {
  it("is null at first", async () => {
    expect(await client.status()).toMatchObject({ state: "subscribed", muted: null });
  });

  it.each<[string, () => { until?: string | Date | null }, () => string | null]>([
    ["no member", () => ({}), () => null],
    ["null", () => ({ until: null }), () => null],
    ["a date", () => ({ until: inDays(7) }), () => inDays(7).toISOString()],
    ["a text", () => ({ until: inDays(7).toISOString() }), () => inDays(7).toISOString()],
  ])("ends as `until` says: %s", async (_, given, until) => {
    const status = { state: "subscribed", topics: ["news"], muted: { until: until() } };
    expect(await client.setMuted(given())).toMatchObject({ ok: true, status });
    expect(browser.server.requests("POST")).toHaveLength(1);
    expect(browser.server.row("sub_1").muted).toEqual({ until: until() });
    expect(await client.setMuted(null)).toMatchObject({ ok: true, status: { muted: null } });
    expect(browser.server.row("sub_1").muted).toBeNull();
  });

  it("refuses an invalid date", async () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    expect(await client.setMuted({ until: new Date("soon") })).toMatchObject({ ok: false, reason: "refused" });
    expect(browser.server.requests("POST")[0]!.body.muted).toEqual({ until: "Invalid Date" });
    expect(await client.status()).toMatchObject({ state: "subscribed", muted: null });
    expect(warn).toHaveBeenCalledOnce();
  });

  it("needs a subscription", async () => {
    await client.unsubscribe();
    expect(await client.setMuted({})).toMatchObject({ ok: false, reason: "not-subscribed" });
    expect(browser.server.requests("POST")).toEqual([]);
  });

  it("waits for a connection", async () => {
    browser.server.online = false;
    const until = inDays(7);
    expect(await client.setMuted({ until })).toMatchObject({ ok: false, reason: "offline", retrying: true });
    expect(await client.status()).toEqual({ state: "pending" });
    browser.server.online = true;
    client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", muted: { until: until.toISOString() } });
  });

  it("is forgotten once it ended without a connection", async () => {
    browser.server.online = false;
    await client.setMuted({ until: inDays(7) });
    browser.now += 7 * DAY_MS + 1;
    browser.server.online = true;
    client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", muted: null });
    expect(browser.server.row("sub_1").muted).toBeNull();
  });

  it("ends without a request", async () => {
    await client.setMuted({ until: inDays(7) });
    browser.now += 7 * DAY_MS + 1;
    browser.server.online = false;
    expect(await client.status()).toMatchObject({ state: "subscribed", muted: null });
  });

  it("is read from the server", async () => {
    browser.server.row("sub_1").muted = { until: null };
    client = await browser.visit();
    expect(await client.status()).toMatchObject({ muted: { until: null } });
  });

  it("is registered again with a lost subscription", async () => {
    await client.setMuted({});
    browser.server.rows = [];
    client = await browser.visit();
    expect(browser.server.active()).toMatchObject([{ topics: ["news"], muted: { until: null } }]);
  });

  it("lets a lost subscription return after its end", async () => {
    await client.setMuted({ until: inDays(1) });
    browser.server.rows = [];
    browser.now += 2 * DAY_MS;
    client = await browser.visit();
    expect(browser.server.active()).toMatchObject([{ topics: ["news"], muted: null }]);
  });

  it("survives a replaced key", async () => {
    await client.setMuted({});
    browser.server.keyNumber = 1;
    client = await browser.visitTwice();
    expect(await client.status()).toMatchObject({ id: "sub_2", muted: { until: null } });
  });

  it("is refused for a subscription bound elsewhere", async () => {
    browser.server.assign("sub_1", "ann");
    vi.spyOn(console, "warn").mockImplementation(() => {});
    client = await browser.visit();
    expect(await client.setMuted(null)).toMatchObject({ ok: false, code: "belongs_to_user" });
  });
});
