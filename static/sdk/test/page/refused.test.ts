// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { beforeEach, describe, expect, it, vi } from "vitest";
import { Browser } from "./support";

let browser: Browser;
let warnings: string[];

beforeEach(() => {
  browser = new Browser();
  browser.server.topics = { news: "anyone", staff: "server" };
  browser.server.browsersMay = [];
  warnings = [];
  vi.spyOn(console, "warn").mockImplementation((...words) => void warnings.push(words.join(" ")));
});

describe("what pages may not say", () => {
  it("is reported while the rest holds", async () => {
    const client = await browser.visit();
    const result = await client.subscribe({
      topics: ["news", "vip", "staff"],
      tags: ["a"],
      attributes: { admin: true },
    });
    expect(result).toMatchObject({ ok: true, status: { state: "subscribed", topics: ["news"], tags: [] } });
    expect(result.ok && result.refused?.map(({ pointer, code }) => `${pointer} ${code}`)).toEqual([
      "/tags tags_of_browsers",
      "/attributes attributes_of_browsers",
      "/topics/1 topic_unknown",
      "/topics/2 topic_closed",
    ]);
    expect(warnings).toHaveLength(4);
    expect(warnings[2]).toBe("/topics/1 Left out: topic_unknown");
  });

  it("is not sent again", async () => {
    const client = await browser.visit();
    const errors: unknown[] = [];
    client.on("error", (error) => errors.push(error));
    await client.subscribe({ topics: ["news", "vip"] });
    expect(await client.setTopics(["news", "vip"])).toMatchObject({ ok: true, refused: [{ code: "topic_unknown" }] });
    expect(warnings).toHaveLength(2);
    expect(errors).toEqual([]);
    expect(browser.planned).toEqual([]);
    browser.server.asked = [];
    const later = await browser.visit();
    expect(browser.server.requests("POST")).toEqual([]);
    expect(await later.status()).toMatchObject({ state: "subscribed", topics: ["news"] });
    const { id } = browser.server.active()[0]!;
    browser.server.keyNumber = 1; // and is not taken up where everything is registered anew
    expect(await (await browser.visitTwice()).status()).toMatchObject({ state: "subscribed", topics: ["news"] });
    expect(browser.server.row(id).state).toBe("replaced");
    expect(warnings).toHaveLength(2);
  });

  it("includes leaving a topic of the server", async () => {
    const client = await browser.visit();
    await client.subscribe({ topics: ["news"] });
    browser.server.active()[0]!.topics.push("staff");
    const result = await client.setTopics([]);
    expect(result).toEqual({ ok: true, status: expect.objectContaining({ topics: ["staff"] }) });
    expect(await client.setTopics(["staff", "news"])).toMatchObject({ ok: true, refused: undefined });
    expect(warnings).toEqual([]);
  });
});
