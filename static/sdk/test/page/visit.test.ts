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

  it("subscribes anew in silence when the key was rotated, in the place of the old one", async () => {
    const old = browser.push.subscription!;
    browser.server.keyNumber = 1;
    const client = await browser.visit();
    expect(browser.push.subscription).not.toBe(old);
    expect(browser.push.subscribe).toHaveBeenLastCalledWith({ userVisibleOnly: true, applicationServerKey: KEYS[1] });
    const [request] = browser.server.requests("POST");
    expect(request!.body).toMatchObject({ vapid_key_id: "vapid_1", replaces: { id: "sub_1", token: "bt_1" } });
    expect(browser.server.row("sub_1").state).toBe("replaced");
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_2", topics: ["news"], tags: ["vip"] });
    expect(browser.asked).toBe(0);
  });

  it("goes by what it was given where the browser does not tell its key", async () => {
    Object.assign(browser.push.subscription!.options, { applicationServerKey: null });
    await browser.visit();
    expect(browser.server.requests("POST")).toEqual([]);
    browser.server.keyNumber = 1;
    await browser.visit();
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

  it("registers anew, with what it knows, when the server lost it", async () => {
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

  it("gets a new endpoint when the push service has dropped the old one, and is in its topics again", async () => {
    browser.server.lose("sub_1");
    const { endpoint } = browser.push.subscription!;
    const client = await browser.visit();
    expect(browser.push.subscription!.endpoint).not.toBe(endpoint);
    expect(browser.server.active()).toMatchObject([{ id: "sub_2", topics: ["news"] }]);
    expect(await client.status()).toMatchObject({ topics: ["news"] });
  });

  it("says the topics of one that was lost itself, where it may not take that one's place", async () => {
    browser.server.lose("sub_1");
    browser.server.instead = ({ body }) => (body?.replaces ? problem(422, "invalid", [{ pointer: "/replaces" }]) : undefined);
    const client = await browser.visit();
    expect(browser.server.active()).toMatchObject([{ id: "sub_2", topics: ["news"], tags: ["vip"] }]);
    expect(await client.status()).toMatchObject({ topics: ["news"], tags: ["vip"] });
  });

  it("does not forget the topics of one that was lost while it cannot be registered", async () => {
    browser.server.lose("sub_1");
    browser.server.instead = ({ method }) => (method === "POST" ? new Response(null, { status: 503 }) : undefined);
    await browser.visit();
    browser.server.rows = []; // and the server has cleared it away meanwhile
    browser.server.instead = () => undefined;
    await browser.visit();
    expect(browser.server.active()).toMatchObject([{ topics: ["news"], tags: ["vip"] }]);
  });

  it("respects an end that was decided elsewhere, until the person asks again", async () => {
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

  it("gives up an endpoint that the server will not have from us", async () => {
    Object.assign(browser.server.row("sub_1"), { token: "somebody else's", proven: true });
    browser.push.subscription!.p256dh = "other";
    const client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_2", topics: ["news"] });
    expect(browser.server.row("sub_2").endpoint).toBe(browser.push.subscription!.endpoint);
  });

  it("takes its endpoint back from a stranger who registered it with made-up keys", async () => {
    Object.assign(browser.server.row("sub_1"), { token: "a stranger's", p256dh: "made up", topics: [], tags: [] });
    const { endpoint, p256dh } = browser.push.subscription!;
    const client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_1", topics: ["news"], tags: ["vip"] });
    expect(browser.server.row("sub_1")).toMatchObject({ endpoint, p256dh });
    expect(browser.server.row("sub_1").token).not.toBe("a stranger's");
  });

  it("keeps its endpoint when the server refuses something else", async () => {
    const { endpoint } = browser.push.subscription!;
    browser.server.instead = ({ method }) => (method === "POST" ? problem(409, "too_many_topics") : undefined);
    expect(await first.setTopics(["one more"])).toMatchObject({ ok: false, reason: "refused", code: "too_many_topics" });
    expect(browser.push.subscription!.endpoint).toBe(endpoint);
  });

  it("begins anew when its right to replace is not accepted", async () => {
    browser.push.subscription = null;
    browser.server.instead = ({ method, body }) =>
      method === "POST" && body.replaces ? problem(422, "invalid", [{ pointer: "/replaces" }]) : undefined;
    const client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_2" });
    browser.server.instead = ({ token }) => (token ? problem(401, "unauthorized") : undefined);
    browser.server.asked = [];
    expect(await first.setTags(["x"])).toMatchObject({ ok: true, status: { id: "sub_2", tags: ["x"] } });
  });

  it("stays as it is while the server is away", async () => {
    browser.server.online = false;
    const client = await browser.visit();
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_1" });
    expect(browser.planned.map(({ ms }) => ms)).toContain(5000);
  });

  it("takes up topics that the server changed, and tells a new locale once", async () => {
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

  it("begins anew after an end that was cut off in the middle", async () => {
    const { load, save, end } = await import("../../src/shared/saved");
    const saved = (await load("https://shop.example/"))!;
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
