import { describe, expect, it } from "vitest";
import { hostOf, leftOut, PLATFORM_IDS } from "../src/lib/platforms";

const full = {
  title: "T",
  icon: "/i",
  image: "/m",
  badge: "/b",
  require_interaction: true,
  actions: [
    { action: "a", title: "A" },
    { action: "b", title: "B" },
  ],
};

describe("a platform", () => {
  it("cuts neither title nor text", () => {
    for (const id of PLATFORM_IDS) expect(leftOut(id, { title: "T", body: "B" })).toEqual([]);
  });

  it.each([
    ["chrome", ["the badge"]],
    ["firefox", ["the picture", "the badge", "the buttons", "that it stays until the user reacts"]],
    ["safari", ["your icon: it shows the site’s", "the picture", "the badge", "the buttons", "that it stays until the user reacts"]],
    ["android", []],
    ["ios", ["your icon: it shows the app’s", "the picture", "the badge", "the buttons", "that it stays until the user reacts"]],
  ] as const)("says what it leaves out: %s", (id, expected) => {
    expect(leftOut(id, full)).toEqual(expected);
  });

  it("names the host that pictures come from", () => {
    expect(hostOf("/m.jpg", "https://shop.example")).toBe("shop.example");
    expect(hostOf("https://cdn.example/m.jpg", undefined)).toBe("cdn.example");
    expect(hostOf("/m.jpg", undefined)).toBe("");
  });
});
