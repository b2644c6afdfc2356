import { beforeEach, describe, expect, it, vi } from "vitest";
import { forgetConnection, within } from "../../src/shared/database";
import { declarative, FakeClient, FakeWorker, ID, SCOPE } from "./support";

const UPDATE = "____________________AA";
const tagsFor = (campaign: string) => ({ hosts: ["shop.example"], parameters: { utm_campaign: campaign } });
const query = "?utm_campaign=spring";
const actions = [{ action: "later", title: "Later", navigate: "/later?a=b%20c&x#/y?z" }];

let worker: FakeWorker;
beforeEach(async () => {
  forgetConnection();
  worker = await new FakeWorker().start();
  worker.server.linkTags = tagsFor("spring");
});

const waiting = () => within(["receipts"], "readonly", (store) => store("receipts").count());

/** Push that updates the delivery `ID`. */
const update = (id = UPDATE) => {
  const push = declarative({ title: "New", tag: `bellwire:${ID}` }, {}, id);
  Object.assign(push.notification.data.bellwire, { updates: ID });
  return push;
};

describe("a click with link tags", () => {
  beforeEach(() => worker.push(declarative({ actions, data: { order: 7 } })));

  it("opens the tagged URL", async () => {
    await worker.click(worker.last);
    expect(worker.opened).toEqual([`${SCOPE}x${query}`]);
    expect(worker.server.receipts.map(({ kind }) => kind)).toEqual(["displayed", "clicked"]);
  });

  it("opens the tagged URL of its button", async () => {
    await worker.click(worker.last, "later");
    expect(worker.opened).toEqual([`${SCOPE}later?a=b%20c&x&utm_campaign=spring#/y?z`]);
  });

  it("opens another host's URL without tags", async () => {
    await worker.push(declarative({ navigate: "https://elsewhere.example/y" }, {}, "2"));
    await worker.click(worker.last);
    expect(worker.opened).toEqual(["https://elsewhere.example/y"]);
  });

  it.each([
    ["false", () => false, [`${SCOPE}x${query}`]],
    ["the URL", ({ url }: { url: string }) => url, [`${SCOPE}x${query}`]],
    ["a URL of its own", () => "/mine", [`${SCOPE}mine`]],
    ["nothing", () => undefined, []],
  ])("passes the tagged URL to a handler: %s", async (_, answer, opened) => {
    const handler = vi.fn<(click: any) => unknown>(answer);
    worker.bellwire.onClick(handler);
    await worker.click(worker.last);
    expect(handler).toHaveBeenCalledWith({ url: `${SCOPE}x${query}`, action: "", data: { order: 7 } });
    expect(worker.opened).toEqual(opened);
  });

  it("passes the tagged URL to a router", async () => {
    const router = Object.assign(new FakeClient(`${SCOPE}app`), { clicks: [] });
    worker.pages = [router];
    await worker.click(worker.last);
    expect(router.clicks).toEqual([{ url: `${SCOPE}x${query}`, action: "", data: { order: 7 } }]);
    expect(worker.opened).toEqual([]);
  });

  it("navigates a reused tab to the tagged URL", async () => {
    worker.bellwire.reuseTab = true;
    worker.pages = [new FakeClient(`${SCOPE}other`)];
    await worker.click(worker.last);
    expect(worker.pages).toMatchObject([{ url: `${SCOPE}x${query}`, focused: true }]);
  });

  it("focuses only a tab with the tagged URL", async () => {
    worker.pages = [new FakeClient(`${SCOPE}x`)];
    await worker.click(worker.last);
    expect(worker.opened).toEqual([`${SCOPE}x${query}`]);
    worker.pages.push(new FakeClient(`${SCOPE}x${query}`));
    await worker.click(worker.last);
    expect(worker.opened).toHaveLength(1);
    expect(worker.pages.map(({ focused }) => focused)).toEqual([false, true]);
  });

  it("finds the tags after a restart", async () => {
    await worker.restart();
    await worker.click(worker.last);
    expect(worker.opened).toEqual([`${SCOPE}x${query}`]);
  });

  it("finds the tags of a notification shown again", async () => {
    worker.server.linkTags = undefined;
    await worker.push(declarative({ actions }));
    await worker.restart();
    await worker.push(declarative({ actions }));
    await worker.click(worker.last);
    await worker.restart();
    await worker.click(worker.last);
    expect(worker.opened).toEqual(Array(2).fill(`${SCOPE}x${query}`));
  });

  it("opens the URL while the database hangs", async () => {
    const receipts = worker.server.receipts.length;
    vi.stubGlobal("indexedDB", { open: () => ({}) });
    await worker.restart();
    void worker.click(worker.last);
    await vi.waitFor(() => expect(worker.opened).toEqual([`${SCOPE}x`]));
    expect(worker.server.receipts).toHaveLength(receipts);
  });
});

describe("link tags", () => {
  it("are not waited for", async () => {
    vi.stubGlobal("fetch", () => new Promise(() => {}));
    void worker.push(declarative());
    await vi.waitFor(() => expect(worker.titles()).toEqual(["T"]));
    void worker.click(worker.last);
    await vi.waitFor(() => expect(worker.opened).toEqual([`${SCOPE}x`]));
  });

  it("arrive with a receipt sent later", async () => {
    worker.server.online = false;
    await worker.push(declarative());
    await worker.restart();
    worker.server.online = true;
    await worker.fire("sync", { tag: "bellwire" });
    await worker.restart();
    await worker.click(worker.last);
    expect(worker.opened).toEqual([`${SCOPE}x${query}`]);
  });

  it("are absent after a list of receipts", async () => {
    worker.server.online = false;
    await worker.push(declarative());
    await worker.push(declarative({}, {}, "2"));
    worker.server.online = true;
    await worker.fire("sync", { tag: "bellwire" });
    expect(worker.server.receipts).toHaveLength(2);
    for (const shown of worker.registration.displayed()) await worker.click(shown);
    expect(worker.opened).toEqual([`${SCOPE}x`, `${SCOPE}x`]);
  });

  it("belong to one delivery", async () => {
    await worker.push(declarative());
    worker.server.linkTags = tagsFor("summer");
    await worker.push(declarative({}, {}, "2"));
    worker.server.linkTags = undefined;
    await worker.push(declarative({}, {}, "3"));
    for (const shown of worker.registration.displayed()) await worker.click(shown);
    expect(worker.opened).toEqual([`${SCOPE}x${query}`, `${SCOPE}x?utm_campaign=summer`, `${SCOPE}x`]);
  });

  it("are ignored if malformed", async () => {
    worker.server.linkTags = { hosts: "shop.example", parameters: { utm_campaign: 1 } };
    await worker.push(declarative());
    await worker.click(worker.last);
    expect(worker.opened).toEqual([`${SCOPE}x`]);
    expect(worker.server.receipts).toHaveLength(2);
    expect(await waiting()).toBe(0);
  });

  it("work without a database until a restart", async () => {
    vi.stubGlobal("indexedDB", {
      open: () => {
        throw new DOMException("no", "SecurityError");
      },
    });
    await worker.restart();
    vi.spyOn(console, "error").mockImplementation(() => {});
    await worker.push(declarative());
    worker.server.linkTags = undefined;
    await worker.push(update());
    await worker.click(worker.last);
    await worker.restart();
    await worker.click(worker.last);
    expect(worker.opened).toEqual([`${SCOPE}x${query}`, `${SCOPE}x`]);
  });

  it("are forgotten with their delivery", async () => {
    const { remember, tagsOf, SEEN_MAX, KEPT_MS, forgetMemory } = await import("../../src/worker/memory");
    const kept = () => within(["seen"], "readonly", (store) => store("seen").count());
    await remember(["tagged"], undefined, tagsFor("spring"));
    for (let n = 1; n < SEEN_MAX; n++) {
      worker.now++;
      await remember([`id ${n}`], undefined);
    }
    forgetMemory();
    expect(await tagsOf("tagged")).toEqual(tagsFor("spring"));
    worker.now++;
    await remember(["one", "more"], undefined);
    forgetMemory();
    expect([await tagsOf("tagged"), await kept()]).toEqual([undefined, SEEN_MAX]);
    await remember(["tagged"], undefined, tagsFor("spring"));
    worker.now += KEPT_MS;
    await remember(["much later"], undefined);
    forgetMemory();
    expect([await tagsOf("tagged"), await kept()]).toEqual([undefined, 1]);
  });
});

describe("link tags of an updated notification", () => {
  beforeEach(() => worker.push(declarative()));

  it("are those of the update", async () => {
    worker.server.linkTags = tagsFor("summer");
    await worker.push(update());
    await worker.restart();
    await worker.click(worker.last);
    expect(worker.opened).toEqual([`${SCOPE}x?utm_campaign=summer`]);
  });

  it.each([false, true])("stay if the update has none, restarted: %s", async (restarted) => {
    if (restarted) await worker.restart();
    worker.server.linkTags = undefined;
    await worker.push(update());
    await worker.push(update()); // a repeat
    if (restarted) await worker.restart();
    await worker.click(worker.last);
    expect(worker.last.title).toBe("New");
    expect(worker.opened).toEqual([`${SCOPE}x${query}`]);
  });
});
