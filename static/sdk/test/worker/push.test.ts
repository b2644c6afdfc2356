import { beforeEach, describe, expect, it, vi } from "vitest";
import { newsChannel } from "../../src/shared/news";
import { ORIGIN } from "../shared/server";
import { declarative, FakeWorker, ID, RECEIPT, SCOPE, stamp } from "./support";

const APP = `${ORIGIN}/v1/apps/shop`;

let worker: FakeWorker;
beforeEach(async () => {
  worker = await new FakeWorker().start();
  vi.spyOn(console, "error").mockImplementation(() => {});
});

describe("a push", () => {
  it("shows a declarative notification completely", async () => {
    const actions = [
      { action: "a", title: "A", icon: "/ai", navigate: "/a" },
      { action: "b", title: "B", navigate: "/x" },
    ];
    const notification = {
      body: "B",
      icon: "/i",
      image: "/m",
      badge: "/b",
      tag: "t",
      dir: "ltr",
      lang: "en",
      requireInteraction: true,
      silent: true,
      renotify: true,
      timestamp: 1_700_000_000_000,
      actions,
      data: { mine: { deep: [1] } },
    };
    await worker.push(declarative(notification, { app_badge: 3 }));
    expect(worker.registration.shown).toHaveLength(1);
    expect(worker.last.title).toBe("T");
    expect(worker.last.options).toEqual({
      body: "B",
      icon: "/i",
      image: "/m",
      badge: "/b",
      tag: "t",
      dir: "ltr",
      lang: "en",
      requireInteraction: true,
      silent: true,
      renotify: true,
      timestamp: 1_700_000_000_000,
      actions: [
        { action: "a", title: "A", icon: "/ai" },
        { action: "b", title: "B" },
      ],
      data: { mine: { deep: [1] }, bellwire: { ...stamp(), app: APP, url: "/x", actions: { a: "/a", b: "/x" } } },
    });
    expect(worker.badges).toEqual([3]);
    expect(worker.server.receipts).toEqual([{ receipt: RECEIPT, kind: "displayed" }]);
    expect(worker.server.asked[0]).toMatchObject({ path: "/v1/apps/shop/receipts", type: "text/plain" });
  });

  it.each([
    ["a pattern", { vibrate: [200, 100] }, { vibrate: [200, 100] }],
    ["one number", { vibrate: 200 }, { vibrate: [200] }],
    ["no pattern", { vibrate: "long" }, { vibrate: undefined }],
    ["a pattern of a silent one", { vibrate: [200], silent: true }, { vibrate: undefined }],
    ["renotify without a tag", { renotify: true }, { renotify: undefined }],
    ["a time that is none", { timestamp: -1 }, { timestamp: undefined }],
  ])("shows %s only where browsers take it", async (_, notification, wanted) => {
    await worker.push(declarative(notification));
    expect(worker.last.options).toMatchObject(wanted);
    await worker.push(declarative(notification)); // a repeat is silent
    expect(worker.last.options).toMatchObject({ silent: true, vibrate: undefined });
  });

  it("shows one that the browser has read itself", async () => {
    const { notification } = declarative({ body: "B" });
    await worker.fire("push", { data: null, notification, appBadge: 0 });
    expect(worker.last).toMatchObject({ title: "T", body: "B" });
    expect(worker.badges).toEqual([null]);
    expect(worker.server.receipts).toHaveLength(1);
  });

  it("reads the badge where Safari wants it written", async () => {
    await worker.push(declarative({ app_badge: "7" }));
    await worker.push(declarative({ app_badge: "many" }, {}, "other"));
    expect(worker.badges).toEqual([7]);
  });

  it.each([
    ["nothing", undefined],
    ["no octets", ""],
    ["octets that are no text", Uint8Array.of(0xff, 0xfe, 0)],
    ["JSON that says nothing", { hello: 1 }],
    ["a list", "[1, 2]"],
    ["JSON that is cut off", '{"web_push": 8030, "notif'],
    ["a declarative push without a title", { web_push: 8030, notification: { navigate: "/" } }],
    ["an envelope with nothing readable", { bellwire: stamp(), payload: { base64: "%%%" } }],
  ])("shows the fallback for %s", async (_, payload) => {
    await worker.push(payload);
    expect(worker.registration.displayed()).toMatchObject([{ title: "shop.example", body: "There is something new." }]);
  });

  it("shows the site's fallback once at a time", async () => {
    worker.bellwire.fallback = { title: "Shop", body: "Come and see", url: "/inbox" };
    await worker.push();
    await worker.push();
    expect(worker.registration.displayed()).toMatchObject([{ title: "Shop", data: { bellwire: { url: "/inbox" } } }]);
  });

  it("shows text and JSON with a title unhandled", async () => {
    await worker.push("Just words");
    expect(worker.last).toMatchObject({ title: "shop.example", body: "Just words" });
    await worker.push({ bellwire: stamp(), payload: JSON.stringify({ title: "From JSON", body: "b", url: "/j" }) });
    expect(worker.last).toMatchObject({ title: "From JSON", body: "b", data: { bellwire: { id: ID, url: "/j" } } });
    await worker.push("x".repeat(500));
    expect(worker.last.body).toHaveLength(200);
  });

  it("shows the texts when options are rejected", async () => {
    worker.registration.objectsTo = (_, options) => !!options.icon;
    await worker.push(declarative({ icon: "http://", body: "B" }));
    expect(worker.last).toMatchObject({ title: "T", body: "B" });
    expect(worker.server.receipts).toHaveLength(1);
  });

  it("reports no failed notification and shows its repeat", async () => {
    worker.registration.objectsTo = () => true;
    await worker.push(declarative());
    expect(worker.server.receipts).toEqual([]);
    worker.registration.objectsTo = () => false;
    await worker.push(declarative());
    expect(worker.titles()).toEqual(["T"]);
    expect(worker.server.receipts).toHaveLength(1);
  });

  it("notifies open pages without internal data", async () => {
    const channel = newsChannel();
    const heard: unknown[] = [];
    channel.onmessage = ({ data }) => heard.push(data);
    await worker.push(declarative({ body: "B", data: { mine: 1 } }));
    await worker.push({ bellwire: stamp("other"), payload: "raw" });
    await vi.waitFor(() => expect(heard).toHaveLength(2));
    expect(heard[0]).toEqual({
      scope: SCOPE,
      app: APP,
      type: "message",
      message: { id: ID, title: "T", body: "B", url: "/x", data: { mine: 1 }, payload: undefined },
    });
    expect(heard[1]).toMatchObject({ message: { id: "other", payload: "raw" } });
    channel.close();
  });
});

describe("beside a site's own listeners", () => {
  let clicks: number;
  beforeEach(() => {
    clicks = 0;
    worker.listen("push", (event) => {
      const { title, body } = JSON.parse(new TextDecoder().decode(event.data.arrayBuffer()));
      event.waitUntil(worker.registration.showNotification(String(title), { body }));
    });
    worker.listen("notificationclick", () => clicks++);
    worker.listen("notificationclose", () => clicks++);
  });

  it.each([
    ["content", declarative()],
    ["a payload", { bellwire: stamp(), payload: JSON.stringify({ title: "T" }) }],
  ])("%s with our envelope is hidden from others", async (_, push) => {
    await worker.push(push);
    expect(worker.titles()).toEqual(["T"]);
    await worker.click(worker.last);
    await worker.fire("notificationclose", { notification: worker.last });
    expect(clicks).toBe(0);
    expect(worker.server.receipts.map(({ kind }) => kind)).toEqual(["displayed", "clicked"]);
  });

  it("everything else is the site's alone", async () => {
    const { notification } = declarative();
    await worker.push({ title: "Plain" });
    await worker.push({ web_push: 8030, title: "Declared", notification: { ...notification, data: {} } });
    expect(worker.registration.shown.map(({ title }) => title)).toEqual(["Plain", "Declared"]);
    await worker.click(worker.last);
    expect(clicks).toBe(1);
    expect(worker.server.asked).toEqual([]);
  });

  const read = (event: any): { title: string } => JSON.parse(new TextDecoder().decode(event.data.arrayBuffer()));
  const later = () => new Promise((resolve) => setTimeout(resolve, 5));
  const showing = (event: any) => worker.registration.showNotification(read(event).title);

  it.each<[string, (event: any) => unknown]>([
    ["without waitUntil", showing],
    ["after an await, without waitUntil", async (event) => (await later(), showing(event))],
    ["in a promise that it hands over", (event) => event.waitUntil(later().then(() => showing(event)))],
    [
      "in a promise that it hands over late",
      async (event) => (await later(), event.waitUntil(later().then(() => showing(event)))),
    ],
  ])("shows a site push once for %s", async (_, listener) => {
    const warned = vi.spyOn(console, "warn").mockImplementation(() => {});
    for (const above of [false, true]) {
      worker.above = () => (above ? worker.add("push", listener) : undefined);
      await worker.restart();
      const { clock } = await import("../../src/shared/clock");
      clock.wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms / 20));
      if (!above) worker.listen("push", listener);
      for (const title of ["One", "Two"]) await worker.push({ title: `${title} ${above}` });
      await later();
    }
    expect(worker.registration.shown.map(({ title }) => title)).toEqual([
      "One false",
      "Two false",
      "One true",
      "Two true",
    ]);
    const isNoticed = !_.startsWith("after") && !_.endsWith("late"); // what comes later comes after ours
    expect(warned.mock.calls.flat().filter((text) => text.includes("Move the line to the top"))).toHaveLength(
      isNoticed ? 1 : 0,
    );
  });

  it("is shown by the fallback or site handler", async () => {
    await worker.restart();
    worker.listen("push", () => {});
    await worker.push({ title: "Plain" });
    expect(worker.titles()).toEqual(["Plain"]);
    const heard = vi.fn();
    worker.listen("push", heard);
    worker.bellwire.onPush(() => ({ title: "Handled" }));
    await worker.push("text");
    expect(worker.titles()).toEqual(["Plain", "Handled"]);
    expect(heard).not.toHaveBeenCalled();
  });
});

describe("a raw payload", () => {
  it("shows the result of the page's handler", async () => {
    const handler = vi.fn(() => ({ title: "Mine", body: "b", url: "/mine", data: { k: 1 } }));
    worker.bellwire.onPush(handler);
    await worker.push({ bellwire: stamp(ID, 2), payload: "a\nb" });
    expect(handler).toHaveBeenCalledWith({ id: ID, retried: 2, payload: "a\nb" });
    expect(worker.last).toMatchObject({
      title: "Mine",
      tag: `bellwire:${ID}`,
      data: { k: 1, bellwire: { url: "/mine" } },
    });
    expect(worker.server.receipts).toHaveLength(1);
  });

  it("arrives as bytes if sent as bytes", async () => {
    const handler = vi.fn(() => true as const);
    worker.bellwire.onPush(handler);
    await worker.push({ bellwire: stamp(), payload: { base64: "AP8" } });
    await worker.push(Uint8Array.of(0, 255));
    expect(handler).toHaveBeenNthCalledWith(1, { id: ID, retried: 0, payload: Uint8Array.of(0, 255) });
    expect(handler).toHaveBeenNthCalledWith(2, { id: undefined, retried: 0, payload: Uint8Array.of(0, 255) });
    expect(worker.registration.shown).toEqual([]); // the handler says that it has shown something
    expect(worker.server.receipts).toHaveLength(1);
  });

  it.each([
    [
      "throws",
      () => {
        throw new Error("no");
      },
    ],
    [
      "rejects",
      async () => {
        throw new Error("no");
      },
    ],
    ["returns nothing", () => undefined],
    ["returns no title", () => ({}) as never],
    ["never answers", () => new Promise<never>(() => {})],
  ])("is followed by the fallback when handler %s", async (_, handler) => {
    worker.bellwire.onPush(handler);
    await worker.push({ bellwire: stamp(), payload: "{}" });
    expect(worker.titles()).toEqual(["shop.example"]);
    expect(worker.server.receipts).toHaveLength(1);
  });

  it("is not handed on twice", async () => {
    const handler = vi.fn(() => ({ title: "Mine", body: "b" }));
    worker.bellwire.onPush(handler);
    await worker.push({ bellwire: stamp(), payload: "x" });
    await worker.push({ bellwire: stamp(), payload: "x" });
    expect(handler).toHaveBeenCalledTimes(1);
    expect(worker.registration.displayed()).toMatchObject([{ title: "Mine", body: "b", options: { silent: true } }]);
  });
});

describe("a repeat", () => {
  it("silently replaces the displayed notification", async () => {
    await worker.push(declarative({ body: "B", tag: "t" }));
    await worker.push(declarative({ body: "B", tag: "t" }));
    expect(worker.registration.shown).toHaveLength(2);
    expect(worker.registration.displayed()).toMatchObject([
      { title: "T", body: "B", tag: "t", options: { silent: true } },
    ]);
    expect(worker.server.receipts).toHaveLength(1);
  });

  it("stays hidden after it was handled", async () => {
    await worker.push(declarative());
    await worker.click(worker.last);
    await worker.push(declarative());
    expect(worker.registration.shown).toHaveLength(2);
    expect(worker.last.options.silent).toBe(true);
    expect(worker.registration.displayed()).toEqual([]);
  });

  it("does not cover a later tagged notification", async () => {
    await worker.push(declarative({ title: "old", tag: "t" }, {}, "1"));
    await worker.push(declarative({ title: "new", tag: "t" }, {}, "2"));
    await worker.push(declarative({ title: "old", tag: "t" }, {}, "1"));
    expect(worker.titles()).toEqual(["new"]);
  });

  it("is noticed by another worker too", async () => {
    await worker.push(declarative());
    await worker.restart();
    await worker.push(declarative());
    expect(worker.titles()).toEqual(["T"]);
    expect(worker.server.receipts).toHaveLength(1);
  });

  it("is noticed when both race", async () => {
    await Promise.all([worker.push(declarative()), worker.push(declarative()), worker.push(declarative())]);
    expect(worker.titles()).toEqual(["T"]);
    expect(worker.registration.shown.filter(({ options }) => !options.silent)).toHaveLength(1);
    expect(worker.server.receipts).toHaveLength(1);
  });

  it("is shown after the worker was killed", async () => {
    worker.registration.show.mockImplementationOnce(() => new Promise(() => {}));
    void worker.push(declarative());
    await worker.restart();
    await worker.push(declarative());
    expect(worker.titles()).toEqual(["T"]);
    expect(worker.last.options.silent).toBeUndefined();
  });

  it("is detected without a database", async () => {
    vi.stubGlobal("indexedDB", {
      open: () => {
        throw new DOMException("no", "SecurityError");
      },
    });
    await worker.restart();
    await worker.push(declarative());
    await worker.push(declarative());
    expect(worker.titles()).toEqual(["T"]);
    expect(worker.server.receipts).toHaveLength(1);
  });

  it("is remembered for 500 deliveries or a week", async () => {
    const { remember, wasSeen, SEEN_MAX, KEPT_MS, forgetMemory } = await import("../../src/worker/memory");
    const { within } = await import("../../src/shared/database");
    const kept = () => within(["seen"], "readonly", (store) => store("seen").count());
    for (let n = 0; n < SEEN_MAX + 5; n++) {
      worker.now++;
      await remember([`id ${n}`], undefined);
    }
    forgetMemory();
    expect(await kept()).toBe(SEEN_MAX);
    expect(await wasSeen("id 4")).toBe(false);
    expect(await wasSeen("id 5")).toBe(true);
    worker.now += KEPT_MS;
    await remember(["much later"], undefined);
    forgetMemory();
    expect(await kept()).toBe(1);
    expect(await wasSeen(`id ${SEEN_MAX}`)).toBe(false);
  });
});
