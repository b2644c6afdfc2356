// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Client, Options } from "../../src/bellwire";
import { within } from "../../src/shared/database";
import { loadAll } from "../../src/shared/saved";
import { FakeRegistration } from "../shared/browser";
import { Browser, SCOPE } from "./support";

let browser: Browser;
let shop: Client;
let warnings: string[];

beforeEach(async () => {
  browser = new Browser();
  browser.server.apps.push("blog");
  warnings = [];
  vi.spyOn(console, "warn").mockImplementation((...words) => void warnings.push(words.join(" ")));
  shop = await browser.visit();
  await shop.subscribe({ topics: ["news"] });
  browser.server.asked = [];
});

const visit = (app: string, options: Partial<Options> = {}) => browser.visit({ app, ...options });

describe("a second app in the same scope", () => {
  it("leaves the first one's subscription alone", async () => {
    const { endpoint } = browser.push.subscription!;
    const blog = await visit("blog");
    expect(await blog.status()).toEqual({ state: "unsubscribed", permission: "granted" });
    await blog.logout();
    await blog.unsubscribe();
    await visit("blog", { userId: null });
    expect(browser.server.asked).toEqual([]);
    expect(browser.push.subscription!.endpoint).toBe(endpoint);
    expect(await (await visit("shop")).status()).toMatchObject({ state: "subscribed", id: "sub_1", topics: ["news"] });
  });

  it.each(["granted", "default"] as const)("is refused with the remedy while permission is %s", async (permission) => {
    browser.permission = permission;
    browser.asked = 0;
    const blog = await visit("blog");
    const message = "this scope belongs to app shop: set serviceWorker.scope";
    expect(await blog.subscribe()).toMatchObject({ ok: false, reason: "worker", message, retrying: false });
    expect(await blog.prompt()).toEqual({ answer: "not-needed" });
    expect(warnings).toContain(`Bellwire: ${message}`);
    expect(browser.asked).toBe(0);
    expect(await (await visit("blog")).status()).toEqual({ state: "unsubscribed", permission });
    expect(browser.server.active()).toMatchObject([{ id: "sub_1" }]);
  });

  it("keeps what it shows from the other's pages", async () => {
    await browser.registration!.showNotification("S", {
      data: { bellwire: { app: "https://push.example/v1/apps/shop" } },
    });
    const blog = await visit("blog");
    const heard: unknown[] = [];
    blog.on("message", (message) => heard.push(message));
    await blog.logout();
    expect(browser.registration!.displayed()).toHaveLength(1);
    const channel = new BroadcastChannel("bellwire");
    const message = (title: string, app: string) => ({
      scope: SCOPE,
      app: `https://push.example/v1/apps/${app}`,
      type: "message",
      message: { title },
    });
    channel.postMessage(message("shop's", "shop"));
    channel.postMessage(message("blog's", "blog"));
    await vi.waitFor(() => expect(heard).toEqual([{ title: "blog's" }]));
    channel.close();
  });

  it("is not blocked by a refused, mistyped app", async () => {
    await shop.unsubscribe();
    const mistyped = await visit("shpo");
    expect(await mistyped.subscribe()).toMatchObject({ ok: false, reason: "refused", code: "not_found" });
    expect(await (await visit("shop")).subscribe()).toMatchObject({ ok: true, status: { state: "subscribed" } });
    const { endpoint } = browser.push.subscription!;
    browser.server.apps.push("shpo"); // and the refused wish does not replace it later
    await visit("shpo");
    expect(browser.push.subscription!.endpoint).toBe(endpoint);
    expect(await (await visit("shop")).status()).toMatchObject({ state: "subscribed" });
  });

  it("may subscribe in a scope of its own", async () => {
    const root = browser.registration;
    const blog = await visit("blog", { serviceWorker: { scope: "/blog/" } });
    browser.registration = undefined;
    expect(await blog.subscribe()).toMatchObject({ ok: true, status: { state: "subscribed", id: "sub_2" } });
    browser.registration = root;
    expect(await (await visit("shop")).status()).toMatchObject({ state: "subscribed", id: "sub_1" });
    expect(browser.server.active().map(({ id }) => id)).toEqual(["sub_1", "sub_2"]);
  });

  it("may subscribe after the first one ended", async () => {
    const { endpoint } = browser.push.subscription!;
    browser.push.getSubscription.mockRejectedValueOnce(new DOMException("not now", "AbortError"));
    await shop.unsubscribe(); // and the browser keeps its subscription for now
    expect(browser.push.subscription).not.toBeNull();
    const blog = await visit("blog");
    expect(await blog.subscribe()).toMatchObject({ ok: true, status: { id: "sub_2" } });
    const blogs = browser.push.subscription!;
    expect(blogs.endpoint).not.toBe(endpoint);
    expect(await (await visit("shop")).status()).toMatchObject({ state: "unsubscribed" });
    expect(browser.push.subscription).toBe(blogs);
    expect(browser.server.row("sub_1").state).toBe("unsubscribed");
    expect(await shop.subscribe()).toMatchObject({
      message: "this scope belongs to app blog: set serviceWorker.scope",
    });
  });
});

it("takes over the record of an earlier version", async () => {
  const [record] = await loadAll(SCOPE);
  await within(["saved"], "readwrite", (store) => {
    store("saved").clear();
    store("saved").put(record);
  });
  const again = await visit("shop");
  expect(await again.status()).toMatchObject({ state: "subscribed", id: "sub_1" });
  await again.setTopics(["offers"]);
  expect(await within(["saved"], "readonly", (store) => store("saved").getAllKeys())).toEqual([`${SCOPE} shop`]);
  expect(await again.status()).toMatchObject({ id: "sub_1", topics: ["offers"] });
  expect(browser.registration).toBeInstanceOf(FakeRegistration);
});
