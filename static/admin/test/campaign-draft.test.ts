import { describe, expect, it } from "vitest";
import type { CampaignPlan } from "../src/api/types";
import {
  fromMessage,
  BLANK,
  draftOf,
  lacks,
  numberFaults,
  messageOf,
  planOf,
  slugOf,
  withoutVariant,
  withVariant,
  type Draft,
} from "../src/lib/campaign-draft";

const titled = (title: string, more: Partial<Draft> = {}): Draft => ({
  ...BLANK,
  name: "Spring sale",
  ...more,
  message: { ...BLANK.message, title, ...more.message },
});

describe("a draft as a plan", () => {
  it("leaves out what was not written", () => {
    expect(planOf(titled("Hello"))).toEqual({
      slug: "spring-sale",
      name: "Spring sale",
      message: { to: { all: true }, tier: "promotional", content: { title: "Hello" } },
    });
  });

  it.each<[CampaignPlan]>([
    [{ slug: "a", message: { to: { all: true }, tier: "promotional", content: { title: "Hello", body: "x" } } }],
    [
      {
        slug: "a",
        name: "A",
        message: {
          to: { topic: "news", segment: "keen" },
          tier: "engagement",
          ttl: 3_600,
          urgency: "low",
          collapse_key: "k",
          content: { title: "Hello" },
        },
        schedule: { at: "2027-03-01T09:00", timezone: "Europe/Vienna" },
        pace: { per_minute: 60 },
        holdout: 0.05,
      },
    ],
    [
      {
        slug: "a",
        message: { to: { all: true, segment: 'plan = "pro"' }, tier: "promotional", content: { title: "Hello" } },
        schedule: { at: "2027-03-01T09:00", timezone: "recipient", past: "skip" },
        expires_at: "2027-03-02T09:00:00.000Z",
      },
    ],
    [
      {
        slug: "a",
        message: {
          to: { all: true },
          tier: "promotional",
          policy: { preset: "qstash" } as never,
          content: { title: "Hello" },
        },
        schedule: { cron: "0 9 * * MON", timezone: "Asia/Tokyo" },
        pace: { spread_over: 5_400 },
      },
    ],
    [
      {
        slug: "a",
        message: {
          to: { all: true },
          tier: "promotional",
          policy: { maxAttempts: 2 } as never,
          compact: { title: "H" } as never,
          content: { title: "Hello" },
        },
        follows: { campaign: "spring", did_not: "display", after: 90_000 },
      },
    ],
    [
      {
        slug: "a",
        message: {
          to: { all: true },
          tier: "promotional",
          sunset: { unclicked: 10, unclicked_for: "60d", welcome: "7d" },
          content: { title: "Hello" },
        },
        schedule: { at: "2027-03-01T09:00", timezone: "Europe/Vienna", hour: "best" },
      },
    ],
    [
      {
        slug: "a",
        message: {
          to: { all: true },
          tier: "promotional",
          sunset: { unclicked_for: "36h" },
          content: { title: "Hello" },
        },
        schedule: { cron: "0 9 * * MON", timezone: "Asia/Tokyo", hour: "best" },
      },
    ],
    [
      {
        slug: "a",
        message: { to: { all: true }, tier: "promotional", content: { title: "Hello" } },
        schedule: { at: "2027-03-01T09:00", timezone: "Europe/Vienna" },
        variants: [
          {
            name: "own",
            weight: 1,
            hour: "best",
            message: { content: { title: "Hello" }, sunset: { unclicked: 5 } } as never,
          },
          { name: "due", weight: 1, hour: "campaign", message: { content: { title: "Hello" } } as never },
        ],
      },
    ],
    [{ slug: "a", message: { to: { all: true }, tier: "promotional", template: "welcome", data: { n: 3 } as never } }],
    [
      {
        slug: "a",
        message: { to: { all: true }, tier: "promotional", template: "welcome" },
        variants: [
          { name: "own", weight: 1, message: { template: "welcome", data: { n: 3 } } as never },
          { name: "plain", weight: 1, message: { content: { title: "Hello" } } as never },
        ],
      },
    ],
    [
      {
        slug: "a",
        message: { to: { all: true }, tier: "promotional", content: { title: "Hello" } },
        variants: [
          { name: "plain", weight: 1, message: { content: { title: "Hello" } } as never },
          { name: "loud", weight: 3, message: { ttl: 60, content: { title: "HELLO" } } as never },
        ],
        test: { share: 0.125, after: 1_800, confidence: 0.9, otherwise: "stop" },
      },
    ],
    [
      {
        slug: "a",
        message: { to: { all: true }, tier: "promotional", content: { title: "Hello" } },
        variants: [
          { name: "plain", weight: 1, message: { content: { title: "Hello" } } as never },
          { name: "loud", weight: 1, message: { content: { title: "HELLO" } } as never },
        ],
        test: { share: 0.2, after: 3_600, confidence: 0.95, otherwise: "first", by: "order" },
        link_parameters: { utm_campaign: "spring", ref: "a=b" },
      },
    ],
  ])("comes back as it was: %j", (plan) => {
    const draft = draftOf(plan, "Europe/Vienna");
    expect(draft && planOf(draft)).toEqual(plan);
  });

  it("shows a given time in its zone", () => {
    const draft = draftOf(
      {
        slug: "a",
        message: { to: { all: true }, content: { title: "Hello" } },
        schedule: { at: "2027-03-01T09:00:00Z" },
      },
      "Europe/Vienna",
    );
    expect(draft && planOf(draft).schedule).toEqual({ at: "2027-03-01T10:00", timezone: "Europe/Vienna" });
  });

  it("is none for what only programs write", () => {
    const to = { all: true };
    expect(draftOf({ slug: "a", message: { to, payload: "x" } }, "UTC")).toBeUndefined();
    expect(
      draftOf({ slug: "a", message: { to, template: { content: { title: "{{ user_id }}" } } } }, "UTC"),
    ).toBeUndefined();
    expect(
      draftOf(
        {
          slug: "a",
          message: { to, content: { title: "a" } },
          variants: [
            { name: "a", message: { payload: "x" } as never },
            { name: "b", message: {} as never },
          ],
        },
        "UTC",
      ),
    ).toBeUndefined();
  });
});

describe("variants", () => {
  it("start with two and end with one", () => {
    const two = withVariant(titled("Hello"));
    expect(two.variants.map(({ name, said }) => [name, said.title])).toEqual([
      ["A", "Hello"],
      ["B", "Hello"],
    ]);
    const three = withVariant(two);
    expect(three.variants.map(({ name }) => name)).toEqual(["A", "B", "C"]);
    const changed = {
      ...two,
      isTested: true,
      variants: two.variants.map((variant, n) =>
        n === 1 ? { ...variant, said: { ...variant.said, title: "Other" } } : variant,
      ),
    };
    expect(messageOf(changed, 1).content?.title).toBe("Other");
    const one = withoutVariant(changed, 0);
    expect([one.variants.length, one.message.title, one.isTested]).toEqual([0, "Other", false]);
  });
});

it("says what is lacking", () => {
  expect(lacks(BLANK)).toBe("Enter a name.");
  expect(lacks(titled(""))).toBe("Enter a title.");
  expect(lacks(titled("Hello"))).toBeUndefined();
  expect(lacks(titled("Hello", { narrowed: "own" }))).toBe("Enter the conditions of the segment.");
  expect(lacks(titled("Hello", { when: "at" }))).toBe("Enter the time.");
  expect(lacks(titled("Hello", { when: "at", at: "2027-01-15T08:00", timezone: "Europe/Viena" }))).toBe(
    "Correct the time zone.",
  );
  expect(lacks(titled("Hello", { when: "cron", cron: "0 25 * * *" }))).toBe("Correct the cron expression.");
  expect(lacks(titled("Hello", { pace: "rate", perMinute: "tw" }))).toBe("Correct the numbers that are out of range.");
  expect(lacks({ ...withVariant(titled("")), name: "x" })).toBe("Variant A: Enter a title.");
});

it("makes addresses of names", () => {
  expect(["Spring sale 2027!", "Größe & Maß", "  ", "a".repeat(80)].map(slugOf)).toEqual([
    "spring-sale-2027",
    "grosse-mass",
    "",
    "a".repeat(64),
  ]);
});

it("copies a sent message", () => {
  const sent = { to: { topic: "news", segment: "keen" }, tier: "engagement", ttl: 3_600, urgency: "low" } as const;
  const made = fromMessage(sent, { content: { title: "Hello", body: "World" } }, "Europe/Vienna");
  expect(made && planOf(made)).toEqual({
    slug: "hello",
    name: "Hello",
    message: {
      to: { topic: "news", segment: "keen" },
      tier: "engagement",
      ttl: 3_600,
      urgency: "low",
      content: { title: "Hello", body: "World" },
    },
  });
  expect(
    fromMessage({ ...sent, to: { all: true, segment: 'plan = "pro"' } }, { content: { title: "Hello" } }, "UTC"),
  ).toMatchObject({ narrowed: "own", expression: 'plan = "pro"' });
  expect(fromMessage(sent, { content: null }, "UTC")).toBeUndefined();
});

it("names numbers that are out of range", () => {
  expect(numberFaults(BLANK)).toEqual({});
  expect(numberFaults({ ...BLANK, perMinute: "x", share: "x" })).toEqual({});
  expect(numberFaults({ ...BLANK, holdout: "5%", pace: "spread", spreadMinutes: "0.5" })).toEqual({
    holdout: "must be a number from 0 to 50",
    spreadMinutes: "must be a number from 1 to 40320",
  });
  const tested = { ...withVariant(BLANK), isTested: true, share: "60", testHours: "", confidence: "95,5" };
  expect(Object.keys(numberFaults(tested))).toEqual(["share", "testHours", "confidence"]);
});

it("needs the conversion that decides its test", () => {
  const tested: Draft = { ...withVariant(titled("Hello")), isTested: true, decideBy: "conversions" };
  expect(lacks(tested)).toBe("Enter the kind of conversion that decides the A/B test.");
  expect(lacks({ ...tested, conversion: "order" })).toBeUndefined();
  expect(lacks({ ...tested, isTested: false })).toBeUndefined();
});

it("needs link parameters with name and value", () => {
  expect(lacks(titled("Hello", { linkParameters: "spring" }))).toBe("Correct the link parameters.");
  expect(lacks(titled("Hello", { linkParameters: "utm_term=spring\n" }))).toBeUndefined();
});
