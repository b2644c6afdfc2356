// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { IDBFactory } from "fake-indexeddb";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Client } from "../../src/bellwire";
import { newsChannel } from "../../src/shared/news";
import { load } from "../../src/shared/saved";
import { Browser, SCOPE } from "./support";

let browser: Browser;
let client: Client;

beforeEach(async () => {
  browser = new Browser();
  client = await browser.visit({ userId: "ann", userToken: "signed ann" });
  await client.subscribe({ topics: ["news"], tags: ["vip"] });
  browser.server.asked = [];
});

describe("who is logged in", () => {
  it("is told with the signature, once", async () => {
    expect(await client.status()).toMatchObject({ state: "subscribed", userId: "ann" });
    await browser.visit({ userId: "ann", userToken: "signed ann" });
    expect(browser.server.requests("POST")).toEqual([]);
  });

  it("may have a number as id", async () => {
    client = await browser.visit({ userId: 42, userToken: "signed 42" });
    await client.subscribe({ topics: ["news"] });
    const { endpoint } = browser.push.subscription!;
    const kept = { ok: true, status: { userId: "42", topics: ["news"] } };
    expect(await client.login(42, "signed 42")).toMatchObject(kept);
    client = await browser.visit({ userId: 42, userToken: "signed 42" });
    expect(await client.login("42", "signed 42")).toMatchObject(kept);
    expect(browser.push.subscription!.endpoint).toBe(endpoint);
  });

  it("is not believed without one", async () => {
    browser = new Browser();
    client = await browser.visit({ userId: "ann", userToken: "forged" });
    const refused = { ok: false, reason: "refused", code: "user_token_invalid" };
    expect(await client.subscribe()).toMatchObject({ ...refused, status: { state: "pending" } });
    expect(browser.server.rows).toEqual([]);
    expect(await client.login("ann", "signed ann")).toMatchObject({ ok: true, status: { userId: "ann" } });
  });

  describe("after nobody was", () => {
    let endpoint: string;
    beforeEach(async () => {
      browser = new Browser();
      client = await browser.visit();
      await client.subscribe({ topics: ["news"] });
      endpoint = browser.push.subscription!.endpoint;
    });
    const login = () => client.login("ann", "signed ann");
    const active = () =>
      browser.server.active().map(({ endpoint, user_id, topics }) => ({ endpoint, user_id, topics }));

    it("begins with a new endpoint and the topics", async () => {
      expect(await login()).toMatchObject({ ok: true, status: { id: "sub_2", topics: ["news"], userId: "ann" } });
      expect(browser.push.subscription!.endpoint).not.toBe(endpoint);
      expect(active()).toEqual([{ endpoint: browser.push.subscription!.endpoint, user_id: "ann", topics: ["news"] }]);
      const { endpoint: theirs } = browser.push.subscription!;
      await browser.visit({ userId: "ann", userToken: "signed ann" });
      expect(browser.push.subscription!.endpoint).toBe(theirs);
    });

    it("changes nothing if the server refuses the user", async () => {
      expect(await client.login("ann", "forged")).toMatchObject({ ok: false, reason: "refused" });
      expect(browser.push.subscription!.endpoint).toBe(endpoint);
      expect(active()).toEqual([{ endpoint, user_id: null, topics: ["news"] }]);
    });

    it("keeps the endpoint if unsubscribing fails, without token", async () => {
      const { token } = browser.server.row("sub_1");
      browser.push.subscription!.unsubscribe = async () => {
        throw new DOMException("no", "AbortError");
      };
      expect(await login()).toMatchObject({ ok: true, status: { id: "sub_1", userId: "ann" } });
      expect(active()).toEqual([{ endpoint, user_id: "ann", topics: ["news"] }]);
      expect((await client.credentials())!.token).not.toBe(token);
    });

    it("gets a new endpoint at the next visit", async () => {
      browser.push.failure = new DOMException("no", "AbortError");
      expect(await login()).toMatchObject({ ok: false, reason: "push-service", retrying: true });
      expect(browser.push.subscription).toBeNull();
      browser.push.failure = undefined;
      client = await browser.visit({ userId: "ann", userToken: "signed ann" });
      expect(await client.status()).toMatchObject({
        state: "subscribed",
        id: "sub_2",
        topics: ["news"],
        userId: "ann",
      });
      expect(active()).toHaveLength(1);
    });

    it("is completed by the visit after an outage", async () => {
      let posts = 0;
      browser.server.instead = ({ method }) =>
        method === "POST" && ++posts > 1 ? new Response(null, { status: 503 }) : undefined;
      expect(await login()).toMatchObject({ ok: false, reason: "offline" });
      browser.server.instead = () => undefined;
      client = await browser.visit({ userId: "ann", userToken: "signed ann" });
      expect(await client.status()).toMatchObject({
        state: "subscribed",
        id: "sub_2",
        topics: ["news"],
        userId: "ann",
      });
      expect(active()).toEqual([{ endpoint: browser.push.subscription!.endpoint, user_id: "ann", topics: ["news"] }]);
    });
  });

  it("is repeated for a replacement of their subscription", async () => {
    browser.server.keyNumber = 1;
    client = await browser.visitTwice({ userId: "ann", userToken: "signed ann" });
    expect(browser.server.row("sub_1").state).toBe("replaced");
    expect(await client.status()).toMatchObject({ id: "sub_2", topics: ["news"], userId: "ann" });
  });

  it("begins with a new endpoint after another user", async () => {
    const { endpoint } = browser.push.subscription!;
    browser.server.assign("sub_1", null); // by keys that were kept
    client = await browser.visit({ userId: "ann", userToken: "signed ann" });
    expect(browser.push.subscription!.endpoint).not.toBe(endpoint);
    expect(await client.status()).toMatchObject({ id: "sub_2", topics: ["news"], userId: "ann" });
  });

  it("passes nothing from one user to the next", async () => {
    const { endpoint } = browser.push.subscription!;
    const result = await client.login("bob", "signed bob");
    expect(result).toMatchObject({ ok: true, status: { id: "sub_2", topics: [], tags: [], userId: "bob" } });
    expect(browser.push.subscription!.endpoint).not.toBe(endpoint);
    expect(browser.server.row("sub_1").state).toBe("unsubscribed");
    expect(browser.server.requests("POST")[0]!.body.replaces).toBeUndefined();
  });

  it("restores no former user's values on refusal", async () => {
    browser.server.online = false;
    await client.setTopics(["ann's"]);
    browser.server.online = true;
    expect(await client.login("bob", "forged")).toMatchObject({ ok: false, reason: "refused" });
    expect(await client.login("bob", "signed bob")).toMatchObject({ ok: true, status: { topics: [], userId: "bob" } });
  });

  it("depends on whether the page knows the user", async () => {
    client = await browser.visit();
    expect(await client.status()).toMatchObject({ userId: "ann" });
    client = await browser.visit({ userId: null });
    expect(await client.status()).toEqual({ state: "unsubscribed", permission: "granted" });
    expect(browser.push.subscription).toBeNull();
    expect(browser.server.row("sub_1").state).toBe("unsubscribed");
  });
});

describe("whom the server has linked", () => {
  beforeEach(async () => {
    browser = new Browser();
    client = await browser.visit();
    await client.subscribe({ topics: ["news"] });
    browser.server.assign("sub_1", "ann");
  });

  it("stays linked on pages without a user", async () => {
    client = await browser.visit({ locale: "fr" });
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_1" });
    expect(await client.credentials()).toBeNull();
    expect(await client.setTopics(["mine"])).toMatchObject({ ok: false, reason: "refused", code: "belongs_to_user" });
    await browser.visit({ locale: "fr" });
    expect(browser.server.active()).toMatchObject([{ id: "sub_1", user_id: "ann", topics: ["news"] }]);
  });

  it("ends on pages that know no user", async () => {
    await browser.visit();
    client = await browser.visit({ userId: null });
    expect(await client.status()).toEqual({ state: "unsubscribed", permission: "granted" });
    expect(browser.push.subscription).toBeNull();
  });

  it("continues once the page knows the user", async () => {
    await browser.visit();
    client = await browser.visit({ userId: "ann", userToken: "signed ann" });
    expect(await client.status()).toMatchObject({ state: "subscribed", userId: "ann", topics: ["news"] });
    expect(await client.setTopics(["mine"])).toMatchObject({ ok: true });
  });

  it("leaves nothing to a subscriber after cleared storage", async () => {
    vi.stubGlobal("indexedDB", new IDBFactory());
    client = await browser.visit();
    expect(await client.subscribe({ topics: ["x"] })).toMatchObject({
      ok: true,
      status: { id: "sub_2", topics: ["x"], userId: null },
    });
    expect(browser.server.row("sub_2").endpoint).toBe(browser.push.subscription!.endpoint);
  });
});

describe("what is on display", () => {
  const displayed = () => browser.registration!.displayed().map(({ title }) => title);
  beforeEach(async () => {
    await browser.registration!.showNotification("For Ann", { data: { bellwire: { receipt: "r" } } });
    await browser.registration!.showNotification("The site's own");
  });

  it("goes at once on logout", async () => {
    browser.server.fetch = () => new Promise(() => {});
    vi.stubGlobal("fetch", browser.server.fetch);
    const { alone } = await import("../../src/shared/alone");
    void alone(SCOPE, () => new Promise(() => {})); // another tab that waits for the server
    void client.logout();
    await vi.waitFor(() => expect(displayed()).toEqual(["The site's own"]));
    expect((await load(SCOPE, "shop"))!.wanted).toBe(true);
  });

  it("goes on login and on pages without user", async () => {
    await client.login("bob", "signed bob");
    expect(displayed()).toEqual(["The site's own"]);
    await browser.registration!.showNotification("For Bob", { data: { bellwire: {} } });
    await browser.visit({ userId: "bob", userToken: "signed bob" });
    await browser.visit();
    expect(displayed()).toEqual(["The site's own", "For Bob"]);
    await browser.visit({ userId: null });
    expect(displayed()).toEqual(["The site's own"]);
  });

  it("goes if only the server knew the user", async () => {
    await client.logout({ stayAnonymous: true });
    browser.server.assign(browser.server.active()[0]!.id, "carl");
    await browser.registration!.showNotification("For Carl", { data: { bellwire: {} } });
    await browser.visit({ userId: null });
    expect(displayed()).toEqual(["The site's own"]);
  });
});

describe("logout", () => {
  it("ends the subscription and clears displayed notifications", async () => {
    await browser.registration!.showNotification("For Ann", { data: { bellwire: {} } });
    await browser.registration!.showNotification("The site's own");
    expect(await client.logout()).toMatchObject({ ok: true, status: { state: "unsubscribed" } });
    expect(browser.push.subscription).toBeNull();
    expect(browser.server.row("sub_1").state).toBe("unsubscribed");
    expect(browser.registration!.displayed().map(({ title }) => title)).toEqual(["The site's own"]);
    expect(await client.credentials()).toBeNull();
  });

  it("holds at once offline and is reported later", async () => {
    browser.server.online = false;
    expect(await client.logout()).toMatchObject({
      ok: false,
      reason: "offline",
      retrying: true,
      status: { state: "unsubscribed" },
    });
    expect(browser.push.subscription).toBeNull();
    browser.server.online = true;
    const next = await browser.visit({ userId: "bob", userToken: "signed bob" });
    expect(browser.server.row("sub_1").state).toBe("unsubscribed");
    expect(await next.status()).toMatchObject({ state: "unsubscribed" });
    expect(await next.subscribe()).toMatchObject({ status: { id: "sub_2", userId: "bob", topics: [], tags: [] } });
  });

  it("reaches the server before the browser can unsubscribe", async () => {
    const subscription = browser.push.subscription!;
    const letGo = subscription.unsubscribe;
    subscription.unsubscribe = async () => {
      throw new DOMException("no", "AbortError");
    };
    expect(await client.logout()).toMatchObject({
      ok: false,
      reason: "push-service",
      status: { state: "unsubscribed" },
    });
    expect(browser.server.row("sub_1").state).toBe("unsubscribed");
    subscription.unsubscribe = letGo;
    await browser.visit();
    expect(browser.push.subscription).toBeNull();
  });

  it("can leave an anonymous subscription behind", async () => {
    const { endpoint } = browser.push.subscription!;
    expect(await client.logout({ stayAnonymous: true })).toMatchObject({
      status: { id: "sub_2", userId: null, topics: [] },
    });
    expect(browser.push.subscription!.endpoint).not.toBe(endpoint);
  });

  it("subscribes nobody who was not", async () => {
    await client.unsubscribe();
    expect(await client.logout({ stayAnonymous: true })).toMatchObject({ status: { state: "unsubscribed" } });
  });
});

describe("unsubscribe", () => {
  it("ends it and stays ended", async () => {
    expect(await client.unsubscribe()).toEqual({ ok: true, status: { state: "unsubscribed", permission: "granted" } });
    expect(browser.server.requests("DELETE")[0]).toMatchObject({
      path: "/v1/apps/shop/subscriptions/sub_1",
      token: "bt_1",
    });
    expect(browser.push.subscription).toBeNull();
    browser.server.asked = [];
    await browser.visit();
    expect(browser.server.asked).toEqual([]);
  });

  it("also ends one whose registration was never answered", async () => {
    browser = new Browser();
    client = await browser.visit();
    browser.server.instead = ({ method }) => (method === "POST" ? new Response(null, { status: 503 }) : undefined);
    expect(await client.subscribe()).toMatchObject({ ok: false, status: { state: "pending" } });
    expect(browser.push.subscription).not.toBeNull();
    await client.unsubscribe();
    expect(browser.push.subscription).toBeNull();
  });

  it("stores no topics, tags or attributes afterwards", async () => {
    await client.unsubscribe();
    const told = { ok: false, reason: "not-subscribed", retrying: false, status: { state: "unsubscribed" } };
    expect(await client.setTopics(["later"])).toMatchObject(told);
    expect(await client.setTags(["t"])).toMatchObject(told);
    expect(await client.setAttributes({ a: 1 })).toMatchObject(told);
    expect(browser.server.active()).toEqual([]);
    expect(await client.subscribe()).toMatchObject({ ok: true, status: { topics: [], tags: [] } });
  });
});

describe("events", () => {
  it("pass messages of this scope despite failing listeners", async () => {
    const quiet = vi.spyOn(console, "error").mockImplementation(() => {});
    const heard: unknown[] = [];
    client.on("message", () => {
      throw new Error("the site's");
    });
    const off = client.on("message", (message) => heard.push(message));
    const worker = newsChannel();
    worker.postMessage({ scope: "https://shop.example/elsewhere/", type: "message", message: { title: "no" } });
    worker.postMessage({ scope: SCOPE, type: "message", message: { id: "1", title: "yes" } });
    await vi.waitFor(() => expect(heard).toEqual([{ id: "1", title: "yes" }]));
    expect(quiet).toHaveBeenCalledTimes(1);
    off();
    worker.postMessage({ scope: SCOPE, type: "message", message: { title: "again" } });
    await vi.waitFor(() => expect(quiet).toHaveBeenCalledTimes(2));
    expect(heard).toHaveLength(1);
    worker.close();
  });
});

describe("the soft prompt", () => {
  beforeEach(async () => {
    browser = new Browser();
    client = await browser.visit();
    HTMLDialogElement.prototype.showModal ??= () => {};
  });
  const box = () => document.querySelector<HTMLElement>(".bellwire-prompt");
  const shown = () => vi.waitFor(() => expect(box()).not.toBeNull());
  const button = (index: number) => box()!.querySelectorAll("button")[index]!;

  it("shows labelled site texts and subscribes on click", async () => {
    const answer = client.prompt({ title: "T", body: "B", accept: "Yes", later: "No", topics: ["news"] });
    await shown();
    expect(box()!.tagName).toBe("DIALOG");
    expect(document.getElementById(box()!.getAttribute("aria-labelledby")!)!.textContent).toBe("T");
    expect(document.getElementById(box()!.getAttribute("aria-describedby")!)!.textContent).toBe("B");
    expect(box()!.outerHTML).not.toMatch(/style=|<style|onclick/);
    expect(document.adoptedStyleSheets).toHaveLength(1);
    expect([button(0).textContent, button(1).textContent]).toEqual(["No", "Yes"]);
    expect(browser.asked).toBe(0);
    button(1).click();
    expect(browser.asked).toBe(1);
    expect(await answer).toMatchObject({ answer: "accepted", result: { ok: true, status: { topics: ["news"] } } });
    expect(box()).toBeNull();
    expect(await client.prompt()).toEqual({ answer: "not-needed" });
  });

  it('respects "later" for the configured days', async () => {
    const answer = client.prompt({ againAfterDays: 2 });
    await shown();
    button(0).click();
    expect(await answer).toEqual({ answer: "later" });
    expect(await client.prompt()).toEqual({ answer: "not-needed" });
    browser.now += 2 * 86_400_000;
    const again = client.prompt();
    await shown();
    box()!.dispatchEvent(new Event("close")); // as the Escape key does
    expect(await again).toEqual({ answer: "later" });
  });

  it("gives the focus back to where it was", async () => {
    const opener = document.body.appendChild(document.createElement("button"));
    opener.focus();
    const answer = client.prompt();
    await shown();
    button(0).focus();
    button(0).click();
    await answer;
    expect(document.activeElement).toBe(opener);
  });

  it("stands inside the page if told", async () => {
    const into = document.body.appendChild(document.createElement("main"));
    const answer = client.prompt({ into });
    await shown();
    expect(into.contains(box())).toBe(true);
    expect(box()!.tagName).toBe("SECTION");
    button(0).click();
    await answer;
  });

  it("is shown once, however often it is called", async () => {
    const first = client.prompt({ title: "One" });
    const second = client.prompt({ title: "Two" });
    await vi.waitFor(() => expect(box()).not.toBeNull());
    expect(document.querySelectorAll(".bellwire-prompt")).toHaveLength(1);
    box()!.querySelectorAll("button")[1]!.click();
    expect(await first).toMatchObject({ answer: "accepted", result: { ok: true } });
    expect(await second).toEqual(await first);
  });

  it("settles when the page removes it", async () => {
    for (const remove of [(into: Element) => (into.innerHTML = ""), (into: Element) => into.remove()]) {
      const into = document.createElement("div");
      document.body.append(into);
      const answer = client.prompt({ into });
      await vi.waitFor(() => expect(into.firstChild).not.toBeNull());
      remove(into);
      expect(await answer).toEqual({ answer: "not-needed" });
    }
    const again = client.prompt();
    await vi.waitFor(() => expect(box()).not.toBeNull());
    box()!.querySelectorAll("button")[0]!.click();
    expect(await again).toEqual({ answer: "later" });
  });

  it("names the language of its own words alone", async () => {
    void client.prompt({ title: "Mitteilungen?", accept: "Ja" });
    await vi.waitFor(() => expect(box()).not.toBeNull());
    const langs = [...box()!.querySelectorAll("h2, p, button")].map((one) => `${one.getAttribute("lang")}`);
    expect(langs).toEqual(["null", "en", "en", "null"]);
    box()!.querySelectorAll("button")[0]!.click();
  });
});
