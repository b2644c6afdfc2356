import { beforeEach, describe, expect, it, vi } from "vitest";
import { declarative, FakeWorker, ID, SCOPE } from "./support";

const OTHER = "____________________AA";

let worker: FakeWorker;
beforeEach(async () => {
  worker = await new FakeWorker().start();
});

/** Push that withdraws the delivery `ID`. */
const removal = (id = OTHER) => {
  const push = declarative({ title: "Shop", body: "Not available", silent: true, tag: `bellwire:${ID}` }, {}, id);
  Object.assign(push.notification.data.bellwire, { withdraws: ID });
  return push;
};
const kinds = () => worker.server.receipts.map(({ kind }: any) => kind);
const nothingIsShown = () => vi.waitFor(() => expect(worker.titles()).toEqual([]));

describe("a withdrawal", () => {
  it("closes the notification on display", async () => {
    await worker.push(declarative({ tag: "price" }));
    await worker.push(removal());
    await nothingIsShown();
    expect(worker.last).toMatchObject({ title: "Shop", options: { tag: "price", silent: true } });
    expect(kinds()).toEqual(["displayed", "removed"]);
  });

  it("prevents that a later push shows its content", async () => {
    await worker.push(removal());
    await worker.push(declarative({ body: "Secret" }));
    await nothingIsShown();
    expect(worker.registration.shown.map(({ options }) => options.body)).not.toContain("Secret");
    expect(kinds()).toEqual(["prevented"]);
  });

  it("prevents it after a restart, too", async () => {
    await worker.push(removal());
    await worker.restart();
    await worker.push(declarative({ body: "Secret" }));
    await nothingIsShown();
    expect(worker.registration.shown.map(({ options }) => options.body)).not.toContain("Secret");
  });

  it("reports that it comes too late", async () => {
    await worker.push(declarative());
    await worker.click(worker.last);
    worker.last.close();
    await worker.push(removal());
    await nothingIsShown();
    expect(kinds()).toEqual(["displayed", "clicked", "missed"]);
  });

  it("leaves a later notification with the same tag", async () => {
    await worker.push(declarative({ tag: "score" }));
    await worker.push(declarative({ title: "2:0", tag: "score" }, {}, "____________________BB"));
    await worker.push(removal());
    await vi.waitFor(() => expect(worker.titles()).toEqual(["2:0"]));
    expect(kinds()).toContain("missed");
  });

  it("leaves a notification with the same tag", async () => {
    await worker.push(declarative({ tag: "price" }));
    await Promise.all([
      worker.push(removal()),
      worker.push(declarative({ title: "New price", tag: "price" }, {}, "____________________BB")),
    ]);
    await vi.waitFor(() => expect(worker.titles()).toEqual(["New price"]));
  });

  it("reports once, even if it is repeated", async () => {
    await worker.push(declarative());
    await worker.push(removal());
    await nothingIsShown();
    await worker.push(removal());
    await nothingIsShown();
    expect(kinds()).toEqual(["displayed", "removed"]);
  });

  it("waits for a push that is being shown", async () => {
    let show = (_: { title: string }) => {};
    worker.bellwire.onPush(() => new Promise((resolve) => (show = resolve)));
    const { data } = declarative().notification;
    const shown = worker.push({ ...data, payload: "x" });
    const withdrawn = worker.push(removal());
    await vi.waitFor(() => expect(worker.server.receipts).toEqual([]));
    show({ title: "Late" });
    await Promise.all([shown, withdrawn]);
    await nothingIsShown();
    expect(kinds()).toEqual(["displayed", "removed"]);
  });

  it("clears a tag", async () => {
    await worker.push(declarative({ tag: "chat-7" }));
    await worker.push(declarative({ title: "Other", tag: "chat-8" }, {}, "____________________BB"));
    const clear = declarative({ title: "Shop", silent: true, tag: "chat-7" }, {}, OTHER);
    Object.assign(clear.notification.data.bellwire, { withdraws: OTHER });
    await worker.push(clear);
    await vi.waitFor(() => expect(worker.titles()).toEqual(["Other"]));
    expect(kinds().at(-1)).toBe("removed");
  });

  it("leaves its text where Safari cannot close it", async () => {
    const userAgent =
      "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148";
    Object.assign(navigator, { userAgent });
    await worker.push(declarative());
    await worker.push(removal());
    expect(worker.titles()).toEqual(["Shop"]);
    await worker.click(worker.last);
    expect(worker.opened).toEqual([`${SCOPE}x`]);
  });
});

/** Push that updates the delivery `ID`. */
const update = (more: object = {}, id = OTHER) => {
  const push = declarative({ title: "New", tag: `bellwire:${ID}`, silent: true, ...more }, {}, id);
  Object.assign(push.notification.data.bellwire, { updates: ID });
  return push;
};

describe("an update", () => {
  it("replaces the notification silently", async () => {
    await worker.push(declarative({ title: "Old", tag: "price" }));
    await worker.push(update());
    expect(worker.titles()).toEqual(["New"]);
    expect(worker.last.options).toMatchObject({ tag: "price", silent: true });
    expect(kinds()).toEqual(["displayed", "displayed"]);
    await worker.push(update({ title: "Newer" }, "____________________CC"));
    expect(worker.titles()).toEqual(["Newer"]);
  });

  it("alerts on request", async () => {
    await worker.push(declarative({ title: "Old" }));
    await worker.push(update({ silent: undefined }));
    expect(worker.last.options).toMatchObject({ renotify: true });
    expect(worker.titles()).toEqual(["New"]);
  });

  it("shows nothing after a click or a withdrawal", async () => {
    await worker.push(declarative());
    worker.last.close();
    await worker.push(update());
    await nothingIsShown();
    expect(kinds()).toEqual(["displayed", "missed"]);
    await worker.push(removal("____________________CC"));
    await worker.push(update({}, "____________________DD"));
    await nothingIsShown();
  });

  it("comes before the message itself", async () => {
    await worker.push(update());
    await worker.push(declarative({ body: "Secret" }));
    await vi.waitFor(() => expect(worker.titles()).toEqual(["New"]));
    expect(worker.registration.shown.map(({ options }) => options.body)).not.toContain("Secret");
  });

  it("is withdrawn with its message", async () => {
    await worker.push(declarative());
    await worker.push(update());
    await worker.push(removal("____________________CC"));
    await nothingIsShown();
    expect(kinds()).toEqual(["displayed", "displayed", "removed"]);
  });
});
