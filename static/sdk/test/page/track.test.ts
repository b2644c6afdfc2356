// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Client } from "../../src/bellwire";
import { ORIGIN } from "../shared/server";
import { Browser } from "./support";

let browser: Browser;
let client: Client;
const reports = () => browser.server.requests("POST", "/events");

beforeEach(async () => {
  browser = new Browser();
  browser.server.browsersMay = ["track_events"];
  client = await browser.visit({ userId: "ann", userToken: "signed ann" });
  await client.subscribe();
  browser.server.asked = [];
});

describe("track", () => {
  it("reports an event with the subscription's token", async () => {
    const result = await client.track("cart_added", { total: 59.5 });
    expect(result).toMatchObject({ ok: true, status: { state: "subscribed", userId: "ann" } });
    expect(browser.server.asked).toEqual([
      {
        method: "POST",
        path: "/v1/apps/shop/subscriptions/sub_1/events",
        token: "bt_1",
        type: "application/json",
        body: { id: expect.stringMatching(/^[!-~]{1,64}$/), name: "cart_added", properties: { total: 59.5 } },
      },
    ]);
  });

  it("gives each call an id of its own", async () => {
    await client.track("viewed");
    await client.track("viewed");
    await client.track("bought", undefined, { id: "order-7" });
    const ids = reports().map(({ body }) => body.id);
    expect(new Set(ids).size).toBe(3);
    expect(ids[2]).toBe("order-7");
  });

  it("repeats a lost response with the same id", async () => {
    browser.server.instead = () => (reports().length < 2 ? new Response(null, { status: 502 }) : undefined);
    expect(await client.track("cart_added")).toMatchObject({ ok: true });
    const [first, second] = reports();
    expect([reports().length, second!.body]).toEqual([2, first!.body]);
  });

  it("reports nothing later", async () => {
    browser.server.instead = () => new Response(null, { status: 503 });
    const failure = { ok: false, reason: "offline", retrying: false };
    expect(await client.track("cart_added")).toMatchObject(failure);
    expect([reports().length, browser.planned]).toEqual([3, []]);
  });

  it("fails without the permission and warns developers", async () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    browser.server.browsersMay = [];
    expect(await client.track("cart_added")).toMatchObject({ ok: false, reason: "refused", code: "forbidden" });
    expect(warn).toHaveBeenCalledWith(expect.stringContaining(`Bellwire: ${ORIGIN}/v1/apps/shop/subscriptions/sub_1/`));
  });

  it("sends nothing without a subscription", async () => {
    await client.unsubscribe();
    browser.server.asked = [];
    expect(await client.track("cart_added")).toMatchObject({ ok: false, reason: "not-subscribed" });
    expect(browser.server.asked).toEqual([]);
  });

  it("waits for the change of the user", async () => {
    client = await browser.tab({ userId: "bea", userToken: "signed bea" });
    expect(await client.track("cart_added")).toMatchObject({ ok: true, status: { userId: "bea" } });
    const { id, token } = browser.server.active()[0]!;
    expect(reports()).toMatchObject([{ path: `/v1/apps/shop/subscriptions/${id}/events`, token }]);
  });
});
