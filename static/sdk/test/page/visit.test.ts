// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Client, Options } from "../../src/bellwire";
import { KEYS, problem } from "../shared/server";
import { FakeSubscription } from "../shared/browser";
import { Browser } from "./support";

let browser: Browser;
let first: Client;

async function subscribed(options: Partial<Options> = {}): Promise<void> {
  browser = new Browser();
  first = await browser.visit(options);
  expect(await first.subscribe({ topics: ["news"], tags: ["vip"] })).toMatchObject({ ok: true });
  browser.server.asked = [];
  browser.asked = 0;
}

describe("a visit", () => {
  beforeEach(() => subscribed());

  it("compares and changes nothing where all is well", async () => {
    const client = await browser.visit();
    expect(browser.server.asked.map(({ method, path }) => `${method} ${path}`)).toEqual([
      "GET /v1/apps/shop/config",
      "GET /v1/apps/shop/subscriptions/sub_1",
    ]);
    expect(browser.server.asked[1]!.token).toBe("bt_1");
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_1" });
  });

  it("trusts a young agreement", async () => {
    await browser.visit({ checkEvery: 300 });
    expect(browser.server.asked).toEqual([]);
    browser.now += 300_000;
    await browser.visit({ checkEvery: 300 });
    expect(browser.server.asked).toHaveLength(2);
  });

  it("silently replaces the subscription after key rotation", async () => {
    const old = browser.push.subscription!;
    browser.server.keyNumber = 1;
    const client = await browser.visitTwice();
    expect(browser.push.subscription).not.toBe(old);
    expect(browser.push.subscribe).toHaveBeenLastCalledWith({ userVisibleOnly: true, applicationServerKey: KEYS[1] });
    const [request] = browser.server.requests("POST");
    expect(request!.body).toMatchObject({ vapid_key_id: "vapid_1", replaces: { id: "sub_1", token: "bt_1" } });
    expect(browser.server.row("sub_1").state).toBe("replaced");
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_2", topics: ["news"], tags: ["vip"] });
    expect(browser.asked).toBe(0);
  });

  it("keeps a rotated subscription until its queue drained", async () => {
    const old = browser.push.subscription!;
    browser.server.keyNumber = 1;
    const client = await browser.visit({ checkEvery: 300 });
    expect(browser.push.subscription).toBe(old);
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_1" });
    // What the person wishes meanwhile is told at once, under the former key.
    expect(await client.setTopics(["offers"])).toMatchObject({ ok: true, status: { id: "sub_1", topics: ["offers"] } });
    expect(browser.server.requests("POST").at(-1)!.body.vapid_key_id).toBe("vapid_0");
    browser.now += 1_999;
    await browser.visit({ checkEvery: 300 });
    expect(browser.push.subscription).toBe(old);
    browser.now += 60_000;
    browser.planned.find(({ ms }) => ms === 60_000)!.work(); // a minute online
    await vi.waitFor(() => expect(browser.server.row("sub_1").state).toBe("replaced"));
    await vi.waitFor(async () => expect(await client.status()).toMatchObject({ id: "sub_2", topics: ["offers"] }));
    expect(browser.server.row("sub_2").vapid_key_id).toBe("vapid_1");
    await browser.visit();
    expect(browser.server.rows).toHaveLength(2);
  });

  it("assumes the given key if none is reported", async () => {
    Object.assign(browser.push.subscription!.options, { applicationServerKey: null });
    await browser.visit();
    expect(browser.server.requests("POST")).toEqual([]);
    browser.server.keyNumber = 1;
    await browser.visitTwice();
    expect(browser.server.row("sub_2").vapid_key_id).toBe("vapid_1");
  });

  it("subscribes anew when the browser lost its subscription", async () => {
    browser.push.subscription = null;
    const client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_2", topics: ["news"] });
    expect(browser.server.row("sub_1").state).toBe("replaced");
  });

  it("registers an endpoint that the browser changed", async () => {
    browser.push.subscription = new FakeSubscription(browser.push, KEYS[0]);
    await browser.visit();
    expect(browser.server.requests("POST")[0]!.body.replaces).toEqual({ id: "sub_1", token: "bt_1" });
    expect(browser.server.active().map(({ endpoint }) => endpoint)).toEqual([browser.push.subscription.endpoint]);
  });

  it("registers again when the server lost it", async () => {
    browser.server.rows = [];
    const client = await browser.visit();
    const [request] = browser.server.requests("POST");
    expect(request!.body.replaces).toBeUndefined();
    expect(browser.server.active()).toMatchObject([{ topics: ["news"], tags: ["vip"] }]);
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_1" });
  });

  it.each(["suspended", "expired", "replaced"])("brings back one that is %s", async (state) => {
    browser.server.row("sub_1").state = state;
    const { endpoint } = browser.push.subscription!;
    await browser.visit();
    expect(browser.server.row("sub_1")).toMatchObject({ state: "active", endpoint });
  });

  it("gets a new endpoint with its topics", async () => {
    browser.server.lose("sub_1");
    const { endpoint } = browser.push.subscription!;
    const client = await browser.visit();
    expect(browser.push.subscription!.endpoint).not.toBe(endpoint);
    expect(browser.server.active()).toMatchObject([{ id: "sub_2", topics: ["news"] }]);
    expect(await client.status()).toMatchObject({ topics: ["news"] });
  });

  it("sends its topics when it cannot replace", async () => {
    browser.server.lose("sub_1");
    browser.server.instead = ({ body }) =>
      body?.replaces ? problem(422, "invalid", [{ pointer: "/replaces" }]) : undefined;
    const client = await browser.visit();
    expect(browser.server.active()).toMatchObject([{ id: "sub_2", topics: ["news"], tags: ["vip"] }]);
    expect(await client.status()).toMatchObject({ topics: ["news"], tags: ["vip"] });
  });

  it("keeps topics of a lost subscription until registered", async () => {
    browser.server.lose("sub_1");
    browser.server.instead = ({ method }) => (method === "POST" ? new Response(null, { status: 503 }) : undefined);
    await browser.visit();
    browser.server.rows = []; // and the server has cleared it away meanwhile
    browser.server.instead = () => undefined;
    await browser.visit();
    expect(browser.server.active()).toMatchObject([{ topics: ["news"], tags: ["vip"] }]);
  });

  it("respects an end that another client caused", async () => {
    browser.server.row("sub_1").state = "unsubscribed";
    const client = await browser.visit();
    expect(await client.status()).toEqual({ state: "unsubscribed", permission: "granted" });
    expect(browser.push.subscription).toBeNull();
    expect(browser.server.requests("POST")).toEqual([]);
    expect(await client.subscribe()).toMatchObject({ ok: true });
    expect(browser.asked).toBe(0);
  });

  it("never asks: without permission it waits for it", async () => {
    browser.push.subscription = null;
    browser.permission = "default";
    let client = await browser.visit();
    expect(await client.status()).toEqual({ state: "unsubscribed", permission: "default" });
    expect(browser.asked).toBe(0);
    expect(browser.server.asked).toEqual([]);
    browser.permission = "granted";
    client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_2" });
  });

  it("replaces an endpoint that the server refuses", async () => {
    Object.assign(browser.server.row("sub_1"), { token: "somebody else's", proven: true });
    browser.push.subscription!.p256dh = "other";
    const client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_2", topics: ["news"] });
    expect(browser.server.row("sub_2").endpoint).toBe(browser.push.subscription!.endpoint);
  });

  it("reclaims its endpoint from invented keys", async () => {
    Object.assign(browser.server.row("sub_1"), { token: "a stranger's", p256dh: "made up", topics: [], tags: [] });
    const { endpoint, p256dh } = browser.push.subscription!;
    const client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_2", topics: ["news"], tags: ["vip"] });
    expect(browser.server.row("sub_2")).toMatchObject({ endpoint, p256dh });
    expect(browser.server.active()).toHaveLength(1);
  });

  it.each([
    ["confirmed by a receipt", { proven: true }],
    ["vouched for", { vouched: true }],
    ["unproven", {}],
  ])("recovers by token when keys are %s", async (_, rank) => {
    Object.assign(browser.server.row("sub_1"), rank);
    browser.push.subscription!.p256dh = "changed";
    await first.setTopics(["news", "offers"]);
    const client = await browser.visit();
    const { endpoint, p256dh } = browser.push.subscription!;
    const [row] = browser.server.active();
    expect(row).toMatchObject({ endpoint, p256dh });
    const saved = { state: "subscribed", id: row!.id, topics: ["news", "offers"], tags: ["vip"] };
    expect(await client.status()).toMatchObject(saved);
  });

  it("recovers its unproven endpoint from a stranger", async () => {
    browser.server.lose("sub_1");
    browser.server.row("sub_1").endpoint = "";
    browser.server.rows.push({
      ...browser.server.row("sub_1"),
      id: "sub_0",
      token: "theirs",
      p256dh: "made up",
      state: "active",
      endpoint: browser.push.subscription!.endpoint,
      former: [],
      tags: [],
    });
    const client = await browser.visit();
    const { endpoint } = browser.push.subscription!;
    const row = browser.server.active().find((row) => row.endpoint === endpoint)!;
    expect(await client.status()).toMatchObject({ state: "subscribed", id: row.id, topics: ["news"], tags: ["vip"] });
  });

  it("keeps its endpoint on other refusals", async () => {
    const { endpoint } = browser.push.subscription!;
    browser.server.instead = ({ method }) => (method === "POST" ? problem(409, "too_many_topics") : undefined);
    expect(await first.setTopics(["one more"])).toMatchObject({
      ok: false,
      reason: "refused",
      code: "too_many_topics",
    });
    expect(browser.push.subscription!.endpoint).toBe(endpoint);
  });

  it("begins anew when it may not replace", async () => {
    browser.push.subscription = null;
    browser.server.instead = ({ method, body }) =>
      method === "POST" && body.replaces ? problem(422, "invalid", [{ pointer: "/replaces" }]) : undefined;
    const client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_2" });
    browser.server.instead = ({ token }) => (token ? problem(401, "unauthorized") : undefined);
    browser.server.asked = [];
    expect(await first.setTags(["x"])).toMatchObject({ ok: true, status: { id: "sub_2", tags: ["x"] } });
  });

  it("does not change while the server is away", async () => {
    browser.server.online = false;
    const client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_1" });
    expect(browser.planned.map(({ ms }) => ms)).toContain(5000);
  });

  it("adopts server topics and sends a locale once", async () => {
    browser.server.row("sub_1").topics = ["other"];
    const client = await browser.visit({ locale: "fr" });
    expect(await client.status()).toMatchObject({ topics: ["other"] });
    expect(browser.server.row("sub_1").locale).toBe("fr");
    browser.server.row("sub_1").locale = "it"; // the backend knows better
    await browser.visit({ locale: "fr" });
    expect(browser.server.row("sub_1").locale).toBe("it");
  });

  it("wakes the worker for what waits there", async () => {
    await browser.visit();
    expect(browser.registration!.active!.postMessage).toHaveBeenCalledWith("bellwire:flush");
  });

  it("begins anew after an interrupted end", async () => {
    const { load, save, end } = await import("../../src/shared/saved");
    const saved = (await load("https://shop.example/", "shop"))!;
    end(saved);
    await save(saved); // and the tab is closed here
    const client = await browser.visit();
    expect(browser.push.subscription).toBeNull();
    expect(browser.server.row("sub_1").state).toBe("unsubscribed");
    expect(await client.status()).toMatchObject({ state: "unsubscribed" });
  });
});

describe("two tabs", () => {
  it("register once", async () => {
    browser = new Browser();
    browser.permission = "granted";
    const tabs = [await browser.visit(), await browser.visit()];
    const results = await Promise.all(tabs.map((tab) => tab.subscribe({ topics: ["news"] })));
    expect(results.map(({ ok }) => ok)).toEqual([true, true]);
    expect(browser.server.rows).toHaveLength(1);
    expect(browser.push.subscribe).toHaveBeenCalledTimes(1);
  });

  it("rotate once", async () => {
    await subscribed();
    browser.server.keyNumber = 1;
    const tabs = [await browser.tab(), await browser.tab(), await browser.tab()];
    await Promise.all(tabs.map((tab) => tab.ready));
    expect(browser.server.rows).toHaveLength(1); // tabs that the browser restores are one visit
    browser.now += 2_000;
    await Promise.all([await browser.tab(), await browser.tab()].map((tab) => tab.ready));
    expect(browser.server.rows).toHaveLength(2);
    expect(browser.server.requests("POST")).toHaveLength(1);
  });

  it("do without Web Locks, one after the other", async () => {
    await subscribed();
    browser.define("locks", undefined);
    const results = await Promise.all([first.setTopics(["a"]), first.setTags(["b"]), first.setTopics(["c"])]);
    expect(results.map(({ ok }) => ok)).toEqual([true, true, true]);
    expect(browser.server.row("sub_1")).toMatchObject({ topics: ["c"], tags: ["b"] });
  });

  it("hear of each other's changes", async () => {
    await subscribed();
    const other = await browser.visit();
    const heard: string[] = [];
    other.on("change", ({ state }) => heard.push(state));
    await first.unsubscribe();
    await vi.waitFor(() => expect(heard).toEqual(["unsubscribed"]));
  });
});
