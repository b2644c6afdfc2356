// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { beforeEach, describe, expect, it, vi } from "vitest";
import { FakeRegistration, FakeSubscription } from "../shared/browser";
import { KEYS, ORIGIN } from "../shared/server";
import { Browser, SCOPE } from "./support";

let browser: Browser;
beforeEach(() => void (browser = new Browser()));

describe("subscribe", () => {
  it("registers subscription, values, locale and time zone", async () => {
    const client = await browser.visit({ locale: "de-CH" });
    expect(await client.status()).toEqual({ state: "unsubscribed", permission: "default" });
    const result = await client.subscribe({
      topics: ["news"],
      tags: ["vip"],
      attributes: { plan: "pro" },
      consentSource: "footer",
    });
    expect(result).toEqual({
      ok: true,
      status: { state: "subscribed", id: "sub_1", topics: ["news"], tags: ["vip"], userId: null, muted: null },
    });
    const [request] = browser.server.requests("POST");
    expect(request!.body).toMatchObject({
      subscription: browser.push.subscription!.toJSON(),
      vapid_key_id: "vapid_0",
      topics: ["news"],
      tags: ["vip"],
      attributes: { plan: "pro" },
      consent: { source: "footer" },
      locale: "de-CH",
      timezone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    });
    expect(request!.body).not.toHaveProperty("consentSource");
    expect(browser.push.subscribe).toHaveBeenCalledWith({ userVisibleOnly: true, applicationServerKey: KEYS[0] });
    expect(await client.credentials()).toEqual({ id: "sub_1", token: "bt_1" });
  });

  it("asks the server nothing before anybody wants anything", async () => {
    await browser.visit();
    expect(browser.server.asked).toEqual([]);
    expect(browser.container.register).not.toHaveBeenCalled();
  });

  it("asks for permission first", async () => {
    const client = await browser.visit();
    void client.subscribe();
    expect(browser.asked).toBe(1); // still in the same turn
  });

  it.each([
    ["denied", "denied"],
    ["default", "dismissed"],
  ] as const)("tells when the person's answer is %s", async (answer, reason) => {
    browser.answer = answer;
    const client = await browser.visit();
    const state = answer === "denied" ? { state: "denied" } : { state: "unsubscribed", permission: "default" };
    expect(await client.subscribe()).toMatchObject({ ok: false, reason, retrying: false, status: state });
    expect(browser.server.asked).toEqual([]);
  });

  it("does not ask outside a gesture", async () => {
    browser.gesture = false;
    const client = await browser.visit();
    expect(await client.subscribe()).toMatchObject({ ok: false, reason: "no-gesture" });
    expect(browser.asked).toBe(0);
    browser.permission = "granted";
    expect(await client.subscribe()).toMatchObject({ ok: true });
  });

  it("reports the obstacle on this page", async () => {
    vi.stubGlobal("isSecureContext", false);
    let client = await browser.visit();
    expect(await client.subscribe()).toMatchObject({ ok: false, reason: "insecure", status: { state: "insecure" } });
    expect(await client.unsubscribe()).toMatchObject({ ok: false, reason: "insecure" });
    expect(await client.prompt()).toEqual({ answer: "not-needed" });

    vi.stubGlobal("isSecureContext", true);
    delete (navigator as { serviceWorker?: unknown }).serviceWorker;
    client = await browser.visit();
    expect(await client.subscribe()).toMatchObject({ ok: false, reason: "private-mode" });

    Reflect.deleteProperty(globalThis, "PushManager");
    client = await browser.visit();
    expect(await client.subscribe()).toMatchObject({ ok: false, reason: "unsupported" });

    browser.define("userAgent", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X)");
    client = await browser.visit();
    expect(await client.status()).toEqual({ state: "not-installed" });
    browser.define("standalone", true);
    client = await browser.visit();
    expect(await client.status()).toEqual({ state: "unsupported" });
    browser.define("standalone", undefined);
    browser.define("userAgent", "Test");
  });

  it("reports a failing worker and retries on request", async () => {
    browser.container.register.mockRejectedValueOnce(new TypeError("404"));
    const client = await browser.visit();
    const status = { state: "unsubscribed", permission: "granted" };
    expect(await client.subscribe()).toMatchObject({
      ok: false,
      reason: "worker",
      message: expect.stringContaining("TypeError: 404"),
      status,
    });
    expect(await client.subscribe()).toMatchObject({ ok: true });
  });

  it("tells that the push service does not answer", async () => {
    browser.registration = new FakeRegistration(SCOPE, `${SCOPE}service-worker.js`);
    browser.push.failure = new DOMException("no service", "AbortError");
    const client = await browser.visit();
    const message = "The browser's own push service: AbortError: no service";
    const refused = { ok: false, reason: "push-service", message, retrying: true };
    expect(await client.subscribe()).toMatchObject({ ...refused, status: { state: "pending" } });
  });

  it("aborts in a private window of Chromium", async () => {
    browser.registration = new FakeRegistration(SCOPE, `${SCOPE}service-worker.js`);
    browser.push.failure = new DOMException("Registration failed - permission denied", "AbortError");
    const client = await browser.visit();
    const status = { state: "unsubscribed", permission: "granted" };
    expect(await client.subscribe()).toMatchObject({ ok: false, reason: "private-mode", retrying: false, status });
    expect(browser.planned).toEqual([]);
    browser.push.failure = undefined;
    await browser.visit();
    expect(browser.push.subscription).toBeNull();
  });

  it("does not wait forever for the push service", async () => {
    browser.permission = "granted";
    browser.registration = new FakeRegistration(SCOPE, `${SCOPE}service-worker.js`);
    const answered = browser.push.subscribe.getMockImplementation()!;
    browser.push.subscribe.mockImplementationOnce(() => new Promise(() => {}));
    const client = await browser.visit();
    const changes: string[] = [];
    client.on("change", ({ state }) => changes.push(state));
    const result = client.subscribe();
    await vi.waitFor(() => expect(browser.planned.map(({ ms }) => ms)).toEqual([20_000]));
    expect(changes).toEqual(["pending"]);
    browser.planned.pop()!.work();
    expect(await result).toMatchObject({
      ok: false,
      reason: "push-service",
      retrying: true,
      status: { state: "pending" },
    });
    await answered({ applicationServerKey: KEYS[0] });
    browser.planned.pop()!.work();
    await vi.waitFor(() => expect(changes).toEqual(["pending", "subscribed"]));
    expect(browser.push.subscribe).toHaveBeenCalledTimes(1);
  });

  it("reports a refusal and does not repeat it", async () => {
    const client = await browser.visit();
    const errors: unknown[] = [];
    client.on("error", (error) => errors.push(error));
    const refused = {
      reason: "refused",
      code: "invalid",
      message: expect.stringMatching(/^https:.*: Refused: invalid$/),
      retrying: false,
    };
    expect(await client.subscribe({ topics: ["bad"] })).toMatchObject({ ok: false, ...refused });
    expect(errors).toEqual([refused]);
    expect(await client.subscribe({ topics: ["good"] })).toMatchObject({ ok: true, status: { topics: ["good"] } });
    expect(await client.setTopics(["bad"])).toMatchObject({ ok: false, reason: "refused" });
    expect(await client.setTags(["t"])).toMatchObject({ ok: true, status: { topics: ["good"], tags: ["t"] } });
  });

  it("keeps unsent values and retries", async () => {
    const client = await browser.visit();
    browser.server.online = false;
    const changes: unknown[] = [];
    client.on("change", ({ state }) => changes.push(state));
    const result = await client.subscribe({ topics: ["news"] });
    expect(result).toMatchObject({ ok: false, reason: "offline", retrying: true, status: { state: "pending" } });
    expect(browser.waits).toEqual([1000, 2000]);
    browser.server.online = true;
    dispatchEvent(new Event("online"));
    await vi.waitFor(() => expect(changes).toEqual(["pending", "subscribed"]));
    expect(browser.server.row("sub_1").topics).toEqual(["news"]);
  });

  it("tries again by itself, in growing intervals", async () => {
    const client = await browser.visit();
    browser.server.online = false;
    await client.subscribe();
    for (const ms of [5_000, 10_000, 20_000]) {
      await vi.waitFor(() => expect(browser.planned.map((plan) => plan.ms)).toEqual([ms]));
      browser.planned.pop()!.work();
    }
    await vi.waitFor(() => expect(browser.planned).toHaveLength(1));
    browser.server.online = true;
    browser.planned.pop()!.work();
    await vi.waitFor(async () => expect(await client.status()).toMatchObject({ state: "subscribed" }));
    expect(browser.planned).toEqual([]);
  });

  it("honours Retry-After and defers long ones", async () => {
    browser.permission = "granted";
    const client = await browser.visit();
    let left = 1;
    browser.server.instead = () =>
      left-- > 0 ? new Response(null, { status: 429, headers: { "Retry-After": "7" } }) : undefined;
    expect(await client.subscribe()).toMatchObject({ ok: true });
    expect(browser.waits).toEqual([7000]);
    browser.server.instead = () => new Response(null, { status: 503, headers: { "Retry-After": "120" } });
    expect(await client.setTags(["a"])).toMatchObject({
      ok: false,
      reason: "offline",
      message: "https://push.example/v1/apps/shop/config: HTTP 503",
    });
    expect(browser.waits).toEqual([7000]);
  });

  it("warns before replacing another sender's subscription", async () => {
    const warned = vi.spyOn(console, "warn").mockImplementation(() => {});
    browser.permission = "granted";
    browser.registration = new FakeRegistration(SCOPE, `${SCOPE}service-worker.js`);
    browser.push.subscription = new FakeSubscription(browser.push, KEYS[1]);
    const client = await browser.visit();
    expect(warned).not.toHaveBeenCalled();
    expect(await client.subscribe()).toMatchObject({ ok: true });
    expect(warned.mock.calls.flat()).toEqual([expect.stringContaining("import its VAPID key")]);
    browser.server.keyNumber = 1; // a key of our own replaces ours in silence
    await browser.visitTwice();
    expect(browser.server.row("sub_2").vapid_key_id).toBe("vapid_1");
    expect(warned).toHaveBeenCalledTimes(1);
  });

  it("leaves another worker of the site alone", async () => {
    browser.permission = "granted";
    browser.registration = new FakeRegistration(SCOPE, `${SCOPE}pwa.js`);
    let client = await browser.visit();
    expect(await client.subscribe()).toMatchObject({ ok: false, reason: "worker", status: { state: "unsubscribed" } });
    expect(browser.container.register).not.toHaveBeenCalled();
    client = await browser.visit({ serviceWorker: { url: "/pwa.js" } });
    expect(await client.subscribe()).toMatchObject({ ok: true });
    expect(browser.container.register).not.toHaveBeenCalled();
  });

  it("registers a worker with app and server", async () => {
    const client = await browser.visit({ serviceWorker: { url: "/push/sw.js", scope: "/push/", type: "module" } });
    await client.subscribe();
    const [url, options] = browser.container.register.mock.calls[0]!;
    expect(url).toBe(`https://shop.example/push/sw.js?app=shop&server=${encodeURIComponent(ORIGIN)}`);
    expect(options).toEqual({ scope: "https://shop.example/push/", type: "module" });
  });

  it("passes a Trusted Types policy", async () => {
    const createPolicy = vi.fn((_: string, rules: object) => rules);
    vi.stubGlobal("trustedTypes", { createPolicy });
    await (await browser.visit()).subscribe();
    expect(createPolicy.mock.calls.map(([name]) => name)).toEqual(["bellwire"]);
    expect(browser.container.register.mock.calls[0]![0]).toMatch(/^https:\/\/shop\.example\/service-worker\.js\?/);
  });

  it("takes a registration that the site made", async () => {
    browser.registration = new FakeRegistration(SCOPE, `${SCOPE}own.js`);
    const registration = Promise.resolve(browser.registration as never);
    const client = await browser.visit({ serviceWorker: { registration } });
    expect(await client.subscribe()).toMatchObject({ ok: true });
  });

  it("waits until a new worker is active", async () => {
    const worker = Object.assign(new EventTarget(), { state: "installing", scriptURL: "x" });
    const registration = new FakeRegistration(SCOPE, "x");
    Object.assign(registration, { active: null, installing: worker });
    browser.container.register.mockImplementation(async () => (browser.registration = registration));
    const client = await browser.visit();
    const result = client.subscribe();
    await vi.waitFor(() => expect(browser.container.register).toHaveBeenCalled());
    expect(registration.pushManager.subscribe).not.toHaveBeenCalled();
    worker.state = "activated";
    worker.dispatchEvent(new Event("statechange"));
    expect(await result).toMatchObject({ ok: true });
  });
});
