import { beforeEach, describe, expect, it, vi } from "vitest";
import { load, loadFor, save, type Saved } from "../../src/shared/saved";
import { forgetConnection, noteSeen, within } from "../../src/shared/database";
import { FakeSubscription } from "../shared/browser";
import { KEYS, ORIGIN } from "../shared/server";
import { declarative, FakeClient, FakeWorker, RECEIPT, SCOPE } from "./support";

let worker: FakeWorker;
beforeEach(async () => {
  forgetConnection();
  worker = await new FakeWorker().start();
});

const kinds = () => worker.server.receipts.map(({ kind, action }) => (action ? `${kind} ${action}` : kind));
const waiting = () => within(["receipts"], "readonly", (store) => store("receipts").count());

describe("a click", () => {
  const actions = [
    { action: "later", title: "Later", navigate: "/later" },
    { action: "odd", title: "Odd" },
  ];
  beforeEach(() => worker.push(declarative({ actions })));

  it("opens the URL, absolute, and is reported", async () => {
    await worker.click(worker.last);
    expect(worker.opened).toEqual(["https://shop.example/x"]);
    expect(worker.last.closed).toBe(true);
    await worker.fire("notificationclose", { notification: worker.last }); // as Firefox does
    expect(kinds()).toEqual(["displayed", "clicked"]);
  });

  it("opens the URL of its button", async () => {
    await worker.click(worker.last, "later");
    await worker.click(worker.last, "odd");
    expect(worker.opened).toEqual(["https://shop.example/later", "https://shop.example/x"]);
    expect(kinds().slice(1)).toEqual(["clicked later", "clicked odd"]);
  });

  it("focuses the tab that shows the page already", async () => {
    worker.pages = [new FakeClient(`${SCOPE}other`), new FakeClient(`${SCOPE}x`)];
    await worker.click(worker.last);
    expect(worker.pages.map(({ focused }) => focused)).toEqual([false, true]);
    expect(worker.opened).toEqual([]);
  });

  it("leaves other tabs as they are", async () => {
    worker.pages = [new FakeClient(`${SCOPE}form`), Object.assign(new FakeClient(`${SCOPE}x/y`), { answers: false })];
    await worker.click(worker.last);
    expect(worker.pages).toMatchObject([
      { url: `${SCOPE}form`, focused: false },
      { url: `${SCOPE}x/y`, focused: false },
    ]);
    expect(worker.opened).toEqual([`${SCOPE}x`]);
  });

  it("goes to the page that has a router", async () => {
    await worker.push(declarative({ actions, data: { order: 7 } }, {}, "2"));
    const router = Object.assign(new FakeClient(`${SCOPE}app`), { clicks: [] });
    worker.pages = [new FakeClient(`${SCOPE}form`), router, new FakeClient("https://elsewhere.example/")];
    await worker.click(worker.last, "later");
    expect(router.clicks).toEqual([{ url: `${SCOPE}later`, action: "later", data: { order: 7 } }]);
    expect(worker.pages.map(({ focused }) => focused)).toEqual([false, true, false]);
    expect(worker.opened).toEqual([]);
    await worker.push(declarative({ navigate: "https://elsewhere.example/y" }, {}, "3"));
    await worker.click(worker.last); // which is not the router's to show
    expect(worker.opened).toEqual(["https://elsewhere.example/y"]);
  });

  it.each([
    ["nothing", () => undefined, []],
    ["a window", async () => ({ url: "/mine" }), []],
    ["another URL", async () => "/mine", [`${SCOPE}mine`]],
    ["false", () => false, [`${SCOPE}x`]],
    [
      "an error",
      () => {
        throw new Error("no");
      },
      [`${SCOPE}x`],
    ],
  ])("follows a handler that returns %s", async (_, answer, opened) => {
    vi.spyOn(console, "error").mockImplementation(() => {});
    await worker.push(declarative({ data: { order: 7 } }, {}, "2"));
    const handler = vi.fn<(click: object) => unknown>(answer);
    worker.bellwire.onClick(handler);
    await worker.click(worker.last);
    expect(handler).toHaveBeenCalledWith({ url: `${SCOPE}x`, action: "", data: { order: 7 } });
    expect(worker.opened).toEqual(opened);
    expect(worker.last.closed).toBe(true);
    expect(kinds().at(-1)).toBe("clicked");
  });

  it("reuses another tab if the worker says so", async () => {
    worker.bellwire.reuseTab = true;
    worker.pages = [new FakeClient("https://elsewhere.example/"), new FakeClient(`${SCOPE}other`)];
    await worker.click(worker.last);
    expect(worker.pages[1]).toMatchObject({ url: `${SCOPE}x`, focused: true });
    expect(worker.opened).toEqual([]);
  });

  it("opens a tab if it cannot navigate", async () => {
    worker.bellwire.reuseTab = true;
    worker.pages = [Object.assign(new FakeClient(`${SCOPE}other`), { controlled: false })];
    await worker.click(worker.last);
    expect(worker.pages[0]).toMatchObject({ url: `${SCOPE}other`, focused: false });
    expect(worker.opened).toEqual(["https://shop.example/x"]);
  });

  it("opens other sites in a new tab", async () => {
    worker.pages = [new FakeClient(`${SCOPE}other`)];
    await worker.push(declarative({ navigate: "https://elsewhere.example/y" }, {}, "2"));
    await worker.click(worker.last);
    expect(worker.opened).toEqual(["https://elsewhere.example/y"]);
    worker.pages = [];
    for (const [n, navigate] of ["javascript:alert(1)", "data:text/html,x", "http://["].entries()) {
      await worker.push(declarative({ navigate }, {}, `odd ${n}`));
      await worker.click(worker.last);
    }
    expect(worker.opened.slice(1)).toEqual([SCOPE, SCOPE, SCOPE]);
  });

  it("on site notifications is left to the site", async () => {
    await worker.registration.showNotification("own", { data: { bell: 1 } });
    await worker.click(worker.last);
    expect(worker.last.closed).toBe(false);
    expect(kinds()).toEqual(["displayed"]);
  });
});

describe("receipts", () => {
  it("tell of a notification that was closed", async () => {
    await worker.push(declarative());
    worker.last.close();
    await worker.fire("notificationclose", { notification: worker.last });
    expect(kinds()).toEqual(["displayed", "closed"]);
  });

  it.each([
    ["a timeout", {}, ["displayed"]],
    ["a person", { requireInteraction: true }, ["displayed", "closed"]],
  ])("in Firefox needs no timeout: %s", async (_, notification, wanted) => {
    Object.assign(navigator, { userAgent: "Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0" });
    await worker.push(declarative(notification));
    worker.last.close();
    await worker.fire("notificationclose", { notification: worker.last });
    expect(kinds()).toEqual(wanted);
  });

  it("does not report removal by logout as closed", async () => {
    await worker.push(declarative());
    await noteSeen([RECEIPT, undefined]);
    worker.last.close();
    await worker.fire("notificationclose", { notification: worker.last });
    expect(kinds()).toEqual(["displayed"]);
  });

  it("does not report replacement as closed", async () => {
    const closedBy = async (replace: () => Promise<void>) => {
      const replaced = worker.last;
      await Promise.all([replace(), worker.fire("notificationclose", { notification: replaced })]);
    };
    await worker.push(declarative({ tag: "t" }, {}, "1"));
    await closedBy(() => worker.push(declarative({ tag: "t" }, {}, "1")));
    await closedBy(() => worker.push(declarative({ tag: "t" }, {}, "2")));
    expect(kinds()).toEqual(["displayed", "displayed"]);
  });

  it("wait offline and are sent as one list", async () => {
    worker.server.online = false;
    await worker.push(declarative());
    worker.now += 3_600_500;
    await worker.click(worker.last);
    expect(worker.registration.sync!.register).toHaveBeenCalledWith("bellwire");
    await worker.restart();
    worker.server.online = true;
    await worker.fire("sync", { tag: "bellwire" });
    expect(worker.server.asked).toHaveLength(1);
    expect(worker.server.asked[0]!.body).toEqual([
      { receipt: RECEIPT, kind: "displayed", age: 3_600 },
      { receipt: RECEIPT, kind: "clicked" },
    ]);
    expect(await waiting()).toBe(0);
  });

  it("make the browser retry a failed sync", async () => {
    worker.server.online = false;
    await worker.push(declarative());
    await expect(worker.fire("sync", { tag: "bellwire" })).rejects.toThrow("later");
    await worker.fire("sync", { tag: "the site's own" });
  });

  it("are sent with the next event without sync", async () => {
    worker.registration.sync = undefined;
    worker.server.online = false;
    await worker.push(declarative());
    worker.server.online = true;
    await worker.push(declarative({}, {}, "2"));
    expect(kinds()).toEqual(["displayed", "displayed"]);
    worker.server.online = false;
    await worker.push(declarative({}, {}, "3"));
    worker.server.online = true;
    await worker.fire("message", { data: "bellwire:flush" });
    expect(kinds()).toHaveLength(3);
  });

  it("are kept on 429 and dropped when refused", async () => {
    for (const status of [429, 503]) {
      worker.server.instead = () => new Response(null, { status });
      await worker.push(declarative({}, {}, `at ${status}`));
    }
    expect(await waiting()).toBe(2);
    worker.server.instead = () => new Response(null, { status: 404 });
    await worker.fire("message", { data: "bellwire:flush" });
    expect(await waiting()).toBe(0);
  });

  it("are sent by the hundred, a thousand wait", async () => {
    const { remember, WAITING_MAX } = await import("../../src/worker/memory");
    const { receiptOf } = await import("../../src/worker/receipts");
    const url = `${ORIGIN}/v1/apps/shop/receipts`;
    for (let n = 0; n < WAITING_MAX + 50; n++)
      await remember([undefined], receiptOf(url, String(n).padStart(64, "0"), "displayed"));
    expect(await waiting()).toBe(WAITING_MAX);
    await worker.fire("message", { data: "bellwire:flush" });
    expect(worker.server.asked.map(({ body }) => body.length)).toEqual(Array(10).fill(100));
    expect(worker.server.receipts[0].receipt).toBe("50".padStart(64, "0"));
  });

  it("are sent to the registration's server", async () => {
    await save({ ...(await loadFor(SCOPE, "shop", "https://moved.example")), wanted: true });
    const fetched = vi.fn(worker.server.fetch);
    vi.stubGlobal("fetch", fetched);
    await worker.push(declarative());
    expect(fetched.mock.calls[0]![0]).toBe("https://moved.example/v1/apps/shop/receipts");
  });

  it("are sent to the address that workers set", async () => {
    worker.script = `${SCOPE}service-worker.js`;
    await worker.restart();
    worker.bellwire.appUrl = `${ORIGIN}/v1/apps/shop/`;
    await worker.push(declarative());
    await worker.click(worker.last);
    expect(worker.server.asked[0]!.path).toBe("/v1/apps/shop/receipts");
    expect(kinds()).toEqual(["displayed", "clicked"]);
  });

  it("go to the app that sent the message", async () => {
    const wanted = async (app: string, wanted: boolean) => save({ ...(await loadFor(SCOPE, app, ORIGIN)), wanted });
    await wanted("shop", true);
    await worker.push(declarative());
    await wanted("shop", false);
    await wanted("blog", true);
    await worker.click(worker.last); // shown for shop, clicked after blog has taken the scope over
    await worker.fire("notificationclose", { notification: worker.last });
    await worker.push(declarative({}, {}, "2"));
    worker.last.close();
    await worker.fire("notificationclose", { notification: worker.last });
    expect(
      worker.server.requests("POST", "/receipts").map(({ path, body }) => `${path.split("/")[3]} ${body.kind}`),
    ).toEqual(["shop displayed", "shop clicked", "blog displayed", "blog closed"]);
  });

  it("are impossible without an app, which is logged", async () => {
    const warned = vi.spyOn(console, "warn").mockImplementation(() => {});
    worker.script = `${SCOPE}service-worker.js`;
    await worker.restart();
    await worker.push(declarative());
    expect(worker.titles()).toEqual(["T"]);
    expect(worker.server.asked).toEqual([]);
    expect(warned.mock.calls[0]![0]).toContain("bellwire.appUrl");
  });
});

describe("pushsubscriptionchange", () => {
  let old: FakeSubscription;
  beforeEach(async () => {
    const { pushManager } = worker.registration;
    old = await pushManager.subscribe({ applicationServerKey: KEYS[0] });
    const body = JSON.stringify({ subscription: old, vapid_key_id: "vapid_0", topics: ["news"] });
    await worker.server.fetch(`${ORIGIN}/v1/apps/shop/subscriptions`, { method: "POST", headers: {}, body });
    const { id, token } = worker.server.row("sub_1");
    const registered = { wanted: true, id, token, endpoint: old.endpoint, key: KEYS[0] };
    await save({ ...(await loadFor(SCOPE, "shop", ORIGIN)), ...registered });
    worker.server.asked = [];
  });
  const saved = async () => (await load(SCOPE, "shop")) as Saved;

  it("registers what the browser put in its place", async () => {
    const fresh = new FakeSubscription(worker.registration.pushManager, KEYS[0]);
    worker.registration.pushManager.subscription = fresh;
    await worker.fire("pushsubscriptionchange");
    expect(worker.server.row("sub_1").state).toBe("replaced");
    expect(worker.server.active()).toMatchObject([{ id: "sub_2", endpoint: fresh.endpoint, topics: ["news"] }]);
    expect(await saved()).toMatchObject({ id: "sub_2", token: "bt_2", endpoint: fresh.endpoint });
  });

  it("replaces an absent new subscription with today's key", async () => {
    worker.registration.pushManager.subscription = null;
    worker.server.keyNumber = 1;
    await worker.fire("pushsubscriptionchange");
    expect(worker.server.active()).toMatchObject([{ id: "sub_2", vapid_key_id: "vapid_1" }]);
  });

  it("is made up for later when offline", async () => {
    worker.registration.pushManager.subscription = null;
    worker.server.online = false;
    await worker.fire("pushsubscriptionchange");
    expect(worker.registration.sync!.register).toHaveBeenCalledWith("bellwire");
    await worker.restart();
    worker.server.online = true;
    await worker.fire("sync", { tag: "bellwire" });
    expect(worker.server.active()).toMatchObject([{ id: "sub_2" }]);
  });

  it("does nothing for somebody who left", async () => {
    await save({ ...(await saved()), wanted: false });
    worker.registration.pushManager.subscription = null;
    await worker.fire("pushsubscriptionchange");
    expect(worker.server.asked).toEqual([]);
  });
});
