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
    const active = () => browser.server.active().map(({ endpoint, user_id, topics }) => ({ endpoint, user_id, topics }));

    it("begins with another endpoint, since the one before may have been kept, and takes the topics along", async () => {
      expect(await login()).toMatchObject({ ok: true, status: { id: "sub_2", topics: ["news"], userId: "ann" } });
      expect(browser.push.subscription!.endpoint).not.toBe(endpoint);
      expect(active()).toEqual([{ endpoint: browser.push.subscription!.endpoint, user_id: "ann", topics: ["news"] }]);
      const { endpoint: theirs } = browser.push.subscription!;
      await browser.visit({ userId: "ann", userToken: "signed ann" });
      expect(browser.push.subscription!.endpoint).toBe(theirs);
    });

    it("changes nothing here if the server does not believe it", async () => {
      expect(await client.login("ann", "forged")).toMatchObject({ ok: false, reason: "refused" });
      expect(browser.push.subscription!.endpoint).toBe(endpoint);
      expect(active()).toEqual([{ endpoint, user_id: null, topics: ["news"] }]);
    });

    it("keeps the endpoint where the browser cannot let go of it, but not the token", async () => {
      const { token } = browser.server.row("sub_1");
      browser.push.subscription!.unsubscribe = async () => { throw new DOMException("no", "AbortError"); };
      expect(await login()).toMatchObject({ ok: true, status: { id: "sub_1", userId: "ann" } });
      expect(active()).toEqual([{ endpoint, user_id: "ann", topics: ["news"] }]);
      expect((await client.credentials())!.token).not.toBe(token);
    });

    it("is made good by the next visit where the browser gives no new endpoint at first", async () => {
      browser.push.failure = new DOMException("no", "AbortError");
      expect(await login()).toMatchObject({ ok: false, reason: "push-service", retrying: true });
      expect(browser.push.subscription).toBeNull();
      browser.push.failure = undefined;
      client = await browser.visit({ userId: "ann", userToken: "signed ann" });
      expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_2", topics: ["news"], userId: "ann" });
      expect(active()).toHaveLength(1);
    });

    it("is made good by the next visit where the server was lost in between", async () => {
      let posts = 0;
      browser.server.instead = ({ method }) => (method === "POST" && ++posts > 1 ? new Response(null, { status: 503 }) : undefined);
      expect(await login()).toMatchObject({ ok: false, reason: "offline" });
      browser.server.instead = () => undefined;
      client = await browser.visit({ userId: "ann", userToken: "signed ann" });
      expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_2", topics: ["news"], userId: "ann" });
      expect(active()).toEqual([{ endpoint: browser.push.subscription!.endpoint, user_id: "ann", topics: ["news"] }]);
    });
  });

  it("is said again with a subscription that replaces theirs", async () => {
    browser.server.keyNumber = 1;
    client = await browser.visit({ userId: "ann", userToken: "signed ann" });
    expect(browser.server.row("sub_1").state).toBe("replaced");
    expect(await client.status()).toMatchObject({ id: "sub_2", topics: ["news"], userId: "ann" });
  });

  it("begins with another endpoint when somebody else has used its own", async () => {
    const { endpoint } = browser.push.subscription!;
    browser.server.assign("sub_1", null); // by keys that were kept
    client = await browser.visit({ userId: "ann", userToken: "signed ann" });
    expect(browser.push.subscription!.endpoint).not.toBe(endpoint);
    expect(await client.status()).toMatchObject({ id: "sub_2", topics: ["news"], userId: "ann" });
  });

  it("changes with a clean slate: no endpoint, waiting message, topic or tag of the other comes along", async () => {
    const { endpoint } = browser.push.subscription!;
    const result = await client.login("bob", "signed bob");
    expect(result).toMatchObject({ ok: true, status: { id: "sub_2", topics: [], tags: [], userId: "bob" } });
    expect(browser.push.subscription!.endpoint).not.toBe(endpoint);
    expect(browser.server.row("sub_1").state).toBe("unsubscribed");
    expect(browser.server.requests("POST")[0]!.body.replaces).toBeUndefined();
  });

  it("does not bring back the other's wishes when the new one is refused", async () => {
    browser.server.online = false;
    await client.setTopics(["ann's"]);
    browser.server.online = true;
    expect(await client.login("bob", "forged")).toMatchObject({ ok: false, reason: "refused" });
    expect(await client.login("bob", "signed bob")).toMatchObject({ ok: true, status: { topics: [], userId: "bob" } });
  });

  it("stays on pages that do not know, and ends on pages that know nobody is", async () => {
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

  it("stays linked on pages that do not know, which may change nothing", async () => {
    client = await browser.visit({ locale: "fr" });
    expect(await client.status()).toMatchObject({ state: "subscribed", id: "sub_1" });
    expect(await client.credentials()).toBeNull();
    expect(await client.setTopics(["mine"])).toMatchObject({ ok: false, reason: "refused", code: "belongs_to_user" });
    await browser.visit({ locale: "fr" });
    expect(browser.server.active()).toMatchObject([{ id: "sub_1", user_id: "ann", topics: ["news"] }]);
  });

  it("is cut off by a page that knows nobody is", async () => {
    await browser.visit();
    client = await browser.visit({ userId: null });
    expect(await client.status()).toEqual({ state: "unsubscribed", permission: "granted" });
    expect(browser.push.subscription).toBeNull();
  });

  it("goes on as themselves once the page knows them", async () => {
    await browser.visit();
    client = await browser.visit({ userId: "ann", userToken: "signed ann" });
    expect(await client.status()).toMatchObject({ state: "subscribed", userId: "ann", topics: ["news"] });
    expect(await client.setTopics(["mine"])).toMatchObject({ ok: true });
  });

  it("leaves nothing to somebody who subscribes after the site's data were cleared", async () => {
    vi.stubGlobal("indexedDB", new IDBFactory());
    client = await browser.visit();
    expect(await client.subscribe({ topics: ["x"] })).toMatchObject({ ok: true, status: { id: "sub_2", topics: ["x"], userId: null } });
    expect(browser.server.row("sub_2").endpoint).toBe(browser.push.subscription!.endpoint);
  });
});

describe("what is on display", () => {
  const displayed = () => browser.registration!.displayed().map(({ title }) => title);
  beforeEach(async () => {
    await browser.registration!.showNotification("For Ann", { data: { bellwire: { receipt: "r" } } });
    await browser.registration!.showNotification("The site's own");
  });

  it("goes at once on logout, whatever server and other tabs are doing", async () => {
    browser.server.fetch = () => new Promise(() => {});
    vi.stubGlobal("fetch", browser.server.fetch);
    const { alone } = await import("../../src/shared/alone");
    void alone(SCOPE, () => new Promise(() => {})); // another tab that waits for the server
    void client.logout();
    await vi.waitFor(() => expect(displayed()).toEqual(["The site's own"]));
    expect((await load(SCOPE))!.wanted).toBe(true);
  });

  it("goes when somebody else logs in, or when the page knows that nobody is here", async () => {
    await client.login("bob", "signed bob");
    expect(displayed()).toEqual(["The site's own"]);
    await browser.registration!.showNotification("For Bob", { data: { bellwire: {} } });
    await browser.visit({ userId: "bob", userToken: "signed bob" });
    await browser.visit();
    expect(displayed()).toEqual(["The site's own", "For Bob"]);
    await browser.visit({ userId: null });
    expect(displayed()).toEqual(["The site's own"]);
  });

  it("goes, too, where only the server knew whose it was", async () => {
    await client.logout({ stayAnonymous: true });
    browser.server.assign(browser.server.active()[0]!.id, "carl");
    await browser.registration!.showNotification("For Carl", { data: { bellwire: {} } });
    await browser.visit({ userId: null });
    expect(displayed()).toEqual(["The site's own"]);
  });
});

describe("logout", () => {
  it("ends the subscription here and there, and clears what is on display", async () => {
    await browser.registration!.showNotification("For Ann", { data: { bellwire: {} } });
    await browser.registration!.showNotification("The site's own");
    expect(await client.logout()).toMatchObject({ ok: true, status: { state: "unsubscribed" } });
    expect(browser.push.subscription).toBeNull();
    expect(browser.server.row("sub_1").state).toBe("unsubscribed");
    expect(browser.registration!.displayed().map(({ title }) => title)).toEqual(["The site's own"]);
    expect(await client.credentials()).toBeNull();
  });

  it("holds at once when offline; the server is told later", async () => {
    browser.server.online = false;
    expect(await client.logout()).toMatchObject({ ok: false, reason: "offline", retrying: true, status: { state: "unsubscribed" } });
    expect(browser.push.subscription).toBeNull();
    browser.server.online = true;
    const next = await browser.visit({ userId: "bob", userToken: "signed bob" });
    expect(browser.server.row("sub_1").state).toBe("unsubscribed");
    expect(await next.status()).toMatchObject({ state: "unsubscribed" });
    expect(await next.subscribe()).toMatchObject({ status: { id: "sub_2", userId: "bob", topics: [], tags: [] } });
  });

  it("is told to the server even where the browser cannot let go yet, and made good on the next visit", async () => {
    const subscription = browser.push.subscription!;
    const letGo = subscription.unsubscribe;
    subscription.unsubscribe = async () => { throw new DOMException("no", "AbortError"); };
    expect(await client.logout()).toMatchObject({ ok: false, reason: "push-service", status: { state: "unsubscribed" } });
    expect(browser.server.row("sub_1").state).toBe("unsubscribed");
    subscription.unsubscribe = letGo;
    await browser.visit();
    expect(browser.push.subscription).toBeNull();
  });

  it("can leave an anonymous subscription behind, at another endpoint", async () => {
    const { endpoint } = browser.push.subscription!;
    expect(await client.logout({ stayAnonymous: true })).toMatchObject({ status: { id: "sub_2", userId: null, topics: [] } });
    expect(browser.push.subscription!.endpoint).not.toBe(endpoint);
  });

  it("subscribes nobody who was not", async () => {
    await client.unsubscribe();
    expect(await client.logout({ stayAnonymous: true })).toMatchObject({ status: { state: "unsubscribed" } });
  });
});

describe("unsubscribe", () => {
  it("ends it here and there, and the next visit leaves it so", async () => {
    expect(await client.unsubscribe()).toEqual({ ok: true, status: { state: "unsubscribed", permission: "granted" } });
    expect(browser.server.requests("DELETE")[0]).toMatchObject({ path: "/v1/apps/shop/subscriptions/sub_1", token: "bt_1" });
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

  it("leaves nothing to say topics, tags and attributes of, which is told and not kept", async () => {
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
  it("hand on messages of this scope, and one listener's mistake is nobody else's", async () => {
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

  it("asks in the site's words, labelled, without inline style, and subscribes inside the click", async () => {
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

  it("respects \"later\" for as long as the site says", async () => {
    const answer = client.prompt({ againAfterDays: 2 });
    await shown();
    button(0).click();
    expect(await answer).toEqual({ answer: "later" });
    expect(await client.prompt()).toEqual({ answer: "not-needed" });
    browser.now += 2 * 86_400_000;
    const again = client.prompt();
    await shown();
    box()!.dispatchEvent(new Event("cancel")); // the Escape key
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
});
