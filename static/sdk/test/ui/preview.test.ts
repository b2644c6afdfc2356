// @vitest-environment happy-dom
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Status } from "../../src/api";
import { click, find, page, SUBSCRIBED, settle, text, UNSUBSCRIBED } from "./support";

beforeEach(() => {
  localStorage.clear();
});

const SETTINGS = {
  texts: { en: { preferences: "Your choice" } },
  topics: [{ name: "drops", title: "Drops", texts: {} }],
  unread: 12,
};

/** Client of a preview, whose `subscribe` succeeds. */
function fakeClient() {
  let status = UNSUBSCRIBED;
  const listeners: ((status: Status) => void)[] = [];
  const subscribe = vi.fn(async () => {
    status = SUBSCRIBED;
    listeners.forEach((listener) => listener(status));
    return { ok: true, status };
  });
  return {
    options: { app: "preview", server: "https://push.example" },
    ready: Promise.resolve(status),
    status: async () => status,
    subscribe,
    on: (_: string, listener: (status: Status) => void) => (listeners.push(listener), () => {}),
  };
}

/** Element of a page whose own client is another one. */
async function previewed(name: "bell" | "preferences") {
  const browser = await page();
  const element = await browser.add(name);
  const before = browser.fetched.mock.calls.length;
  const requests = () => browser.fetched.mock.calls.length - before;
  const client = fakeClient();
  await element.preview(SETTINGS, client);
  await settle();
  return { element, client, requests, own: browser.client };
}

describe("previews", () => {
  it("show the preferences with given texts and topics", async () => {
    const { element, client, requests, own } = await previewed("preferences");
    expect(text(element, "h2")).toBe("Your choice");
    await click(element, "[value=drops]");
    await click(element, ".on");
    expect(client.subscribe).toHaveBeenCalledExactlyOnceWith({ topics: ["drops"], consentSource: "Your choice" });
    expect(find(element, ".off")).not.toBeNull();
    expect(requests()).toBe(0);
    expect(own.subscribe).not.toHaveBeenCalled();
  });

  it("replace an earlier preview", async () => {
    const { element, client } = await previewed("preferences");
    await element.preview({}, client);
    await settle();
    expect(text(element, "h2")).toBe("Notification settings");
    expect(element.shadowRoot!.querySelectorAll("section")).toHaveLength(1);
    expect(find(element, ".topics")).toBeNull();
  });

  it("count unread notifications without storing them", async () => {
    const { element, requests } = await previewed("bell");
    const before = localStorage.getItem("bellwire preview");
    expect(text(element, ".badge")).toBe("9+");
    expect(find(element, ".bell")!.getAttribute("aria-label")).toBe("Notifications, turned off, unread: 12");
    HTMLDialogElement.prototype.showModal ??= () => {};
    const shown = vi.spyOn(HTMLDialogElement.prototype, "showModal").mockImplementation(() => {});
    await click(element, ".bell");
    expect(shown).toHaveBeenCalledOnce();
    expect(find(element, ".badge")!.hidden).toBe(true);
    expect([before, localStorage.getItem("bellwire preview")]).toEqual([null, null]);
    expect(requests()).toBe(0);
  });
});
