import { describe, expect, it } from "vitest";
import { characters, cutWords, hostOf, leftOut, PLATFORM_IDS } from "../src/lib/platforms";

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
    ["firefox", ["the image", "the badge", "the buttons", "the request to stay until dismissed"]],
    [
      "safari",
      ["the icon (shows the site’s)", "the image", "the badge", "the buttons", "the request to stay until dismissed"],
    ],
    ["android", []],
    [
      "ios",
      ["the icon (shows the app’s)", "the image", "the badge", "the buttons", "the request to stay until dismissed"],
    ],
  ] as const)("says what it leaves out: %s", (id, expected) => {
    expect(leftOut(id, full)).toEqual(expected);
  });

  it("names the host that pictures come from", () => {
    expect(hostOf("/m.jpg", "https://shop.example")).toBe("shop.example");
    expect(hostOf("https://cdn.example/m.jpg", undefined)).toBe("cdn.example");
    expect(hostOf("/m.jpg", undefined)).toBe("");
  });
});

it("counts visible characters", () => {
  expect([characters("Grüße 👨‍👩‍👧"), characters("")]).toEqual([7, 0]);
  expect(cutWords({ shown: 20, of: 20 }, { shown: 0, of: 0 })).toBeUndefined();
  expect(cutWords({ shown: 48, of: 75 }, { shown: 120, of: 1_200 })).toBe(
    "Title: about 48 of 75 characters visible. Text: about 120 of 1,200 characters visible.",
  );
});
