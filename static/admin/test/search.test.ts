import { describe, expect, it } from "vitest";
import type { AppResponse } from "../src/api/types";
import { byId, fixed, keyOf, search, stepped, type Entry } from "../src/lib/search";
import { SETTINGS } from "../src/pages";

const UUID = "0198c1aa-0000-7000-8000-000000000000";
const SHOP = { id: `app_${UUID}`, slug: "shop", name: "Küchen & Co" } as AppResponse;

const first = (text: string, more: Entry[] = []) => {
  const [found] = search([...byId(text), ...fixed([SHOP]), ...more], text);
  return found && { path: found.path, ...(found.filters ? { filters: found.filters } : {}) };
};

describe("a search", () => {
  it.each([
    ["lanes", "/push-services", undefined],
    ["Dead letters", "/dead-letters", undefined],
    ["mozilla", "/push-services", { gateway: "mozilla" }],
    ["Google", "/push-services", { gateway: "fcm" }],
    ["lane 12", "/push-services/12", undefined],
    ["retries_exhausted", "/dead-letters", { reason: "retries_exhausted" }],
    [`msg_${UUID}`, `/messages/msg_${UUID}`, undefined],
    [`cmp_${UUID}`, `/campaigns/cmp_${UUID}`, undefined],
    [`sub_${UUID}`, `/subscribers/sub_${UUID}`, undefined],
    [`dl_${UUID}`, `/dead-letters/dl_${UUID}`, undefined],
    [`wh_${UUID}`, `/webhooks/wh_${UUID}`, undefined],
    [`ak_${UUID}`, "/settings/keys", undefined],
    [`msg_${UUID} sub_${UUID}`, "/deliveries", { message: `msg_${UUID}`, who: `sub_${UUID}` }],
    ["camp", "/campaigns", undefined],
    ["passkeys", "/settings/you", undefined],
    ["quiet", "/settings/hours", undefined],
    ["kuchen", "/", { app: "shop" }],
    ["SHOP", "/", { app: "shop" }],
  ])("for %s leads to %s", (text, path, filters) =>
    expect(first(text)).toEqual({ path, ...(filters ? { filters } : {}) }),
  );

  it("finds nothing where nothing matches", () => {
    expect([first(""), first("  "), first("xyzzy"), first("msg_1")]).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
  });

  it("shows better kinds first, and few of each", () => {
    const titles = (n: number): Entry[] =>
      Array.from({ length: n }, (_, n) => ({ kind: "Message", title: `Autumn sale ${n}`, path: `/messages/${n}` }));
    const campaign: Entry = { kind: "Campaign", title: "Sale", path: "/campaigns/sale" };
    const found = search([...titles(40), campaign], "sale");
    expect(found.map(({ kind }) => kind)).toEqual(["Campaign", ...Array<string>(6).fill("Message")]);
  });

  it("needs each word", () => {
    const entry: Entry = { kind: "Message", title: "Autumn sale", about: "Topic news", path: "/messages/1" };
    expect([search([entry], "sale news").length, search([entry], "sale sports").length]).toEqual([1, 0]);
  });

  it("knows each part of the settings", () => {
    for (const { title, path } of SETTINGS)
      expect(search(fixed([]), title).some((entry) => entry.path === path)).toBe(true);
  });
});

describe("a step through the results", () => {
  const entries = (...titles: string[]): Entry[] =>
    titles.map((title) => ({ kind: "Message", title, path: `/messages/${title}` }));
  const [a, b] = entries("a", "b").map(keyOf);

  it("goes around by way of the field", () => {
    const two = entries("a", "b");
    expect([
      stepped(two, undefined, 1),
      stepped(two, a, 1),
      stepped(two, b, 1),
      stepped(two, undefined, -1),
      stepped(two, a, -1),
      stepped([], undefined, 1),
    ]).toEqual([a, b, undefined, b, undefined, undefined]);
  });

  it("starts from its entry as results arrive", () => {
    expect(stepped(entries("new", "a", "b"), a, 1)).toBe(b);
    expect(stepped(entries("new", "b"), a, 1)).toBe(keyOf(entries("new")[0]!));
  });

  it("reaches each of several keys named by id", () => {
    const found = byId(`vk_${UUID} vk_${UUID} ik_${UUID} ak_${UUID}`);
    expect(new Set(found.map(keyOf)).size).toBe(found.length);
  });
});
