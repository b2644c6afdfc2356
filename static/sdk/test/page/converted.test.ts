// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Client } from "../../src/bellwire";
import { problem } from "../shared/server";
import { Browser } from "./support";

let browser: Browser;
let client: Client;
const reports = () => browser.server.requests("POST", "/conversions");

beforeEach(async () => {
  browser = new Browser();
  browser.server.browsersMay = ["report_conversions"];
  client = await browser.visit({ userId: "ann", userToken: "signed ann" });
  await client.subscribe();
  browser.server.asked = [];
});

describe("converted", () => {
  it("reports a conversion with the subscription's token", async () => {
    const conversion = { value: 59.5, currency: "EUR", id: "order-7", properties: { items: 2 } };
    const result = await client.converted("purchase", conversion);
    expect(result).toMatchObject({ ok: true, status: { state: "subscribed", userId: "ann" } });
    expect(browser.server.asked).toEqual([
      {
        method: "POST",
        path: "/v1/apps/shop/subscriptions/sub_1/conversions",
        token: "bt_1",
        type: "application/json",
        body: { name: "purchase", ...conversion },
      },
    ]);
  });

  it("needs only a name", async () => {
    await client.converted("signup");
    await client.converted("signup", { properties: { plan: "free" } });
    const [first, second] = reports().map(({ body }) => body);
    expect(first).toEqual({ id: expect.stringMatching(/^[!-~]{1,64}$/), name: "signup" });
    expect(second).toEqual({ id: expect.any(String), name: "signup", properties: { plan: "free" } });
    expect(second.id).not.toBe(first.id);
  });

  it("repeats a lost response with the same id", async () => {
    browser.server.instead = () => (reports().length < 2 ? new Response(null, { status: 502 }) : undefined);
    expect(await client.converted("purchase")).toMatchObject({ ok: true });
    const [first, second] = reports();
    expect([reports().length, second!.body]).toEqual([2, first!.body]);
  });

  it("reports nothing later", async () => {
    browser.server.instead = () => new Response(null, { status: 503 });
    const failure = { ok: false, reason: "offline", retrying: false };
    expect(await client.converted("purchase")).toMatchObject(failure);
    expect([reports().length, browser.planned]).toEqual([3, []]);
  });

  it("fails without the permission", async () => {
    vi.spyOn(console, "warn").mockImplementation(() => {});
    browser.server.browsersMay = ["track_events"];
    expect(await client.converted("purchase")).toMatchObject({ ok: false, reason: "refused", code: "forbidden" });
  });

  it("passes the server's refusal on and warns developers", async () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    browser.server.instead = () => problem(422, "invalid", [{ pointer: "/currency" }]);
    const untyped = { value: 5 } as object;
    expect(await client.converted("purchase", untyped)).toMatchObject({
      ok: false,
      reason: "refused",
      code: "invalid",
    });
    expect(reports()).toHaveLength(1);
    expect(warn).toHaveBeenCalledWith(expect.stringMatching(/\/conversions: Refused: invalid$/));
  });

  it("sends nothing without a subscription", async () => {
    await client.unsubscribe();
    browser.server.asked = [];
    expect(await client.converted("purchase")).toMatchObject({ ok: false, reason: "not-subscribed" });
    expect(browser.server.asked).toEqual([]);
  });

  it("waits for the change of the user", async () => {
    client = await browser.tab({ userId: "bea", userToken: "signed bea" });
    expect(await client.converted("purchase")).toMatchObject({ ok: true, status: { userId: "bea" } });
    const { id, token } = browser.server.active()[0]!;
    expect(reports()).toMatchObject([{ path: `/v1/apps/shop/subscriptions/${id}/conversions`, token }]);
  });
});
