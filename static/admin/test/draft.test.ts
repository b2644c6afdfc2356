import { describe, expect, it } from "vitest";
import {
  BLANK,
  content,
  isAddressed,
  isBlank,
  like,
  listed,
  message,
  recipients,
  test,
  lengthFault,
  titled,
  titleOf,
  unsaid,
  sunsetDraft,
  sunsetWords,
  type Draft,
} from "../src/lib/draft";

const draft = (more: Partial<Draft> = {}): Draft => ({ ...BLANK, title: "Autumn sale", ...more });

describe("a draft", () => {
  it("says nothing that was not written", () => {
    expect(content(draft())).toEqual({ title: "Autumn sale" });
    expect(message(draft())).toEqual({ to: { all: true }, tier: "promotional", content: { title: "Autumn sale" } });
  });

  it("goes to a segment at a local time", () => {
    const later = draft({
      audience: "segment",
      segment: "keen",
      isLater: true,
      sendAt: "2027-03-01T09:00",
      timezone: "Europe/Vienna",
    });
    expect(message(later)).toMatchObject({
      to: { segment: "keen" },
      send_at: "2027-03-01T09:00:00",
      timezone: "Europe/Vienna",
    });
    expect([isAddressed(later), isAddressed(draft({ audience: "segment" }))]).toEqual([true, false]);
    expect(message(draft({ isLater: true, sendAt: "2027-03-01T09:00" }))).toMatchObject({ timezone: "UTC" });
    expect(message({ ...later, isLater: false })).not.toHaveProperty("send_at");
    expect(test(later, "users", "ann")).not.toHaveProperty("send_at");
  });

  it("says everything that was", () => {
    const full = draft({
      body: " as it is ",
      url: " /sale ",
      icon: "/i",
      image: "/m",
      badge: "/b",
      tag: "t",
      actions: [
        { title: "Look!", url: "/look" },
        { title: "look", url: "" },
        { title: "…", url: "" },
      ],
      requireInteraction: true,
      silent: true,
      audience: "topic",
      topic: "news",
      tier: "engagement",
      ttl: "3600",
      urgency: "low",
      collapseKey: " sale ",
      policy: "lenient",
    });
    expect(message(full)).toEqual({
      to: { topic: "news" },
      tier: "engagement",
      ttl: 3_600,
      urgency: "low",
      collapse_key: "sale",
      policy: { preset: "lenient" },
      content: {
        title: "Autumn sale",
        body: " as it is ",
        url: "/sale",
        icon: "/i",
        image: "/m",
        badge: "/b",
        tag: "t",
        actions: [
          { action: "look", title: "Look!", url: "/look" },
          { action: "look-2", title: "look" },
          { action: "button-3", title: "…" },
        ],
        require_interaction: true,
        silent: true,
      },
    });
  });

  it("is addressed once it says to whom", () => {
    expect(isAddressed(draft())).toBe(true);
    expect(isAddressed(draft({ audience: "topic" }))).toBe(false);
    expect(isAddressed(draft({ audience: "users", users: " ,\n" }))).toBe(false);
    expect(recipients(draft({ audience: "users", users: "ann, bob\nann,\n cid " }))).toEqual({
      users: ["ann", "bob", "cid"],
    });
    expect(recipients(draft({ audience: "subscriptions", subscriptions: "sub_1\nsub_2" }))).toEqual({
      subscriptions: ["sub_1", "sub_2"],
    });
    expect(listed("")).toEqual([]);
  });

  it("is tested at once on one recipient", () => {
    const tested = test(draft({ tier: "engagement", audience: "all", ttl: "604800" }), "users", "ann");
    expect(tested).toEqual({
      to: { users: ["ann"] },
      tier: "transactional",
      ttl: 300,
      content: { title: "Autumn sale" },
    });
    expect(test(draft(), "subscriptions", "sub_1").to).toEqual({ subscriptions: ["sub_1"] });
  });

  it("can be copied from another message", () => {
    const said = content(draft({ body: "B", url: "/x", actions: [{ title: "Look", url: "" }], silent: true }));
    expect(content(like(said))).toEqual(said);
  });

  it("keeps API-only fields, extra buttons and names", () => {
    const actions = ["buy", "later", "never"].map((action) => ({ action, title: `To ${action}`, url: `/${action}` }));
    const said = { title: "T", lang: "de", app_badge: 3, data: { order: 7 } as never, actions };
    expect(content(like(said))).toEqual(said);
    expect(like(said).more).toEqual({ lang: "de", app_badge: 3, data: { order: 7 } });
  });

  it("shows the result of a stored template", () => {
    const of = (more: Partial<Draft>) => draft({ title: "", says: "template", ...more });
    expect(message(of({ template: "welcome" }))).toEqual({
      to: { all: true },
      tier: "promotional",
      template: "welcome",
    });
    expect(test(of({ template: "welcome", data: '{"n": 3}' }), "users", "ann")).toMatchObject({
      to: { users: ["ann"] },
      template: "welcome",
      data: { n: 3 },
    });
    expect(
      [
        of({}),
        of({ template: "welcome", data: "[3]" }),
        of({ template: "welcome", data: "{" }),
        of({ template: "welcome" }),
        draft({ title: " " }),
      ].map(unsaid),
    ).toEqual([
      "Choose a template.",
      "The template data must be a JSON object.",
      "The template data must be a JSON object.",
      undefined,
      "Enter a title.",
    ]);
    expect([titleOf(of({ template: "welcome" })), titleOf(draft())]).toEqual(["The template welcome", "Autumn sale"]);
  });

  it("can be checked before it has a title", () => {
    expect([titled(message(draft({ title: "" }))).content?.title, titled(message(draft())).content?.title]).toEqual([
      "–",
      "Autumn sale",
    ]);
    const unchosen = titled(message(draft({ says: "template", data: '{"n": 3}' })));
    expect([unchosen.content?.title, unchosen.template, unchosen.data]).toEqual(["–", undefined, undefined]);
  });

  it("is blank until something is written", () => {
    expect(isBlank(BLANK)).toBe(true);
    expect(isBlank(draft())).toBe(false);
  });
});

describe("a rule for whom to leave out", () => {
  const ruled = (more: Partial<Draft>) => message({ ...BLANK, title: "Hello", ...more }).sunset;

  it("says what was written", () => {
    expect(ruled({ unclicked: " 10 " })).toEqual({ unclicked: 10 });
    expect(ruled({ unclickedFor: "60d", welcome: "7d" })).toEqual({ unclicked_for: "60d", welcome: "7d" });
    expect(ruled({ unclicked: "many" })).toEqual({ unclicked: "many" });
    expect(sunsetDraft(ruled({ unclicked: "10", unclickedFor: "60d", welcome: "7d" }))).toEqual({
      unclicked: "10",
      unclickedFor: "60d",
      welcome: "7d",
    });
  });

  it("is empty for named recipients, codes and newcomers", () => {
    expect(ruled({ welcome: "7d" })).toBeUndefined();
    expect(ruled({ unclicked: "10", tier: "transactional" })).toBeUndefined();
    expect(ruled({ unclicked: "10", audience: "users", users: "ann" })).toBeUndefined();
    expect(ruled({ unclicked: "10", audience: "topic", topic: "news" })).toEqual({ unclicked: 10 });
  });

  it("is said in a sentence", () => {
    expect(sunsetWords({ unclicked: 10 })).toBe(
      "Subscribers who were shown 10 messages or more since their last click are excluded, unless they subscribed within the last 30d.",
    );
    expect(sunsetWords({ unclicked: 10, unclicked_for: "60d", welcome: "7d" })).toBe(
      "Subscribers who were shown 10 messages or more and messages over 60d or longer since their last click are excluded, unless they subscribed within the last 7d.",
    );
  });
});

it("has no text that is too long", () => {
  expect(unsaid(draft({ title: "🎉".repeat(200), body: "x".repeat(2_000) }))).toBeUndefined();
  expect(unsaid(draft({ title: "x".repeat(201) }))).toBe("Shorten the title.");
  expect(unsaid(draft({ body: "x".repeat(2_001) }))).toBe("Shorten the text.");
  expect(lengthFault("x".repeat(2_001), 2_000)).toBe("has 2,001 characters; at most 2,000 are possible");
});
