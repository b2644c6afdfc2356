import { describe, expect, it } from "vitest";
import {
  about,
  attributesOf,
  BLANK,
  isWhole,
  noMatchWords,
  read,
  SUBJECTS,
  verbsOf,
  write,
  type Condition,
} from "../src/lib/segments";

it("lists the attributes of expressions", () => {
  expect(attributesOf(['plan = "pro" and tag("x")', "seats > 3 or exists(plan)", 'not (plan = "a" or b = 1)'])).toEqual(
    ["plan", "seats"],
  );
});

it("names attributes of an expression without members", () => {
  expect(noMatchWords('plann = "pro" and (seats > 3 or plann = "x")')).toBe(
    "No subscription matches. Check the spelling of the attributes plann, seats: unknown names are accepted, but have no value.",
  );
  expect(noMatchWords('plann = "pro"')).toContain("the attribute plann:");
  expect([noMatchWords('tag("beta")'), noMatchWords('not (plan = "a" or tag("b"))')]).toEqual(
    Array(2).fill("No subscription matches."),
  );
});

describe("a text that rows can show", () => {
  it.each([
    'plan = "pro"',
    'plan != "pro" and seats >= 12 and vip = true',
    '(plan = "pro" or tag("beta")) and country not in ("FR", "DE") and last_seen < 30d and not clicked("spring")',
    'plan = "pro" or tag("beta")',
    'not topic("news") and topic("sport") and not tag("x")',
    "exists(plan) and not exists(timezone)",
    'attribute("first seen") = "x" and attribute("and") = 1',
    "ratio > -0.5 and ordered > now - 3d and ends < now + 3d and day = now",
    "born < 2008-11-22 and at >= 2026-11-20T07:00:00Z",
    'clicked("spring", 7d) and received("msg_1")',
    'größe = "XL \\"wide\\" \\\\"',
    'gateway = "fcm" and browser not in ("firefox", "safari") and age > 12h',
    'user in ("41", "42")',
  ])("comes back as it was: %s", (text) => {
    const groups = read(text);
    expect(groups).toBeDefined();
    expect(write(groups ?? [])).toBe(text);
  });

  it.each([
    ["plan='pro'", 'plan = "pro"'],
    ['not plan in ("a")', 'plan not in ("a")'],
    ["not not vip = true", "vip = true"],
    ['(plan = "a" and tag("b")) and (tag("c"))', 'plan = "a" and tag("b") and tag("c")'],
    ["  ", ""],
  ])("may be written otherwise: %s", (text, expected) => {
    expect(write(read(text) ?? [[{ ...BLANK, name: "unread", value: "x" }]])).toBe(expected);
  });
});

it.each([
  'plan = "a" and tag("b") or tag("c")',
  'not (plan = "a" or tag("b"))',
  '(plan = "a" or (tag("b") and tag("c"))) and vip = true',
  'plan in ("a,b", "c")',
  'plan in ("a", 1)',
  "not age < 3d",
  "plan = ",
  'plan = "a',
  'plan ~ "a"',
  'plan = "a" tag("b")',
  "age = 3d",
  'tag = "b"',
  "exists(tag)(",
  "unclicked >= 10",
])("text beyond rows stays a text: %s", (text) => {
  expect(read(text)).toBeUndefined();
});

describe("rows", () => {
  it("that are not whole are left out", () => {
    const rows: Condition[] = [
      { ...BLANK, name: "plan" },
      { ...BLANK, value: "x" },
      { ...BLANK, subject: "locale", verb: "in", value: " , " },
    ];
    expect(rows.map(isWhole)).toEqual([false, false, false]);
    expect(write([rows, [{ ...BLANK, subject: "tag", value: "beta" }], []])).toBe('tag("beta")');
    expect(isWhole({ ...BLANK, subject: "locale", verb: "exists" })).toBe(true);
  });

  it("keep what fits another field", () => {
    const plan = { ...BLANK, name: "plan", verb: "in" as const, value: "a, b" };
    expect(about(plan, "locale")).toMatchObject({ subject: "locale", verb: "in", value: "a, b" });
    expect(about(plan, "last_seen")).toMatchObject({ verb: "less", value: "30d" });
    expect(about(about(plan, "last_seen"), "tag")).toMatchObject({ verb: "is", value: "" });
    expect(about(plan, "gateway")).toMatchObject({ verb: "in", value: "fcm" });
  });

  it("produce a readable expression for each field", () => {
    for (const subject of SUBJECTS) {
      for (const [verb] of verbsOf(subject)) {
        const row: Condition = { ...about({ ...BLANK, name: "plan" }, subject), verb };
        const whole = row.value === "" ? { ...row, value: "x" } : row;
        expect(read(write([[whole]]))?.[0]?.[0], `${subject} ${verb}`).toMatchObject({ subject, verb });
      }
    }
  });
});
