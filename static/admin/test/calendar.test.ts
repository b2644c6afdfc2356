import { describe, expect, it, vi } from "vitest";
import type { Campaign, CampaignPlan, MessageResponse } from "../src/api/types";
import {
  byDay,
  conflictsOf,
  dayKey,
  monthOf,
  occasions,
  otherMonth,
  scheduled,
  weeksOf,
  type Audience,
  type Occasion,
} from "../src/lib/calendar";
import { clockTime, type Zone } from "../src/lib/format";

const NOW = new Date("2027-01-15T08:00:00Z");

const campaign = (more: Partial<Campaign> = {}): Campaign => ({
  id: "cmp_1",
  slug: "spring",
  name: "Spring",
  tier: "promotional",
  state: "sending",
  runs: 1,
  created_at: NOW.toISOString(),
  changed_at: NOW.toISOString(),
  links: {} as never,
  ...more,
});

describe("a month", () => {
  it("has whole weeks from Monday", () => {
    const weeks = weeksOf("2027-02");
    expect([weeks.length, weeks[0]?.[0]?.key, weeks.at(-1)?.[6]?.key]).toEqual([4, "2027-02-01", "2027-02-28"]);
    expect([weeksOf("2026-11").length, weeksOf("2027-05")[0]?.[0]?.key]).toEqual([6, "2027-04-26"]);
    expect([
      otherMonth("2026-12", 1),
      otherMonth("2027-01", -1),
      monthOf("2027-13", NOW, "UTC"),
      monthOf("2026-02", NOW, "UTC"),
    ]).toEqual(["2027-01", "2026-12", "2027-01", "2026-02"]);
  });

  const from = new Date("2027-01-01T00:00:00Z");
  const until = new Date("2027-02-01T00:00:00Z");
  const found = (more: Partial<Campaign>, plan?: Partial<CampaignPlan>) =>
    occasions(
      campaign(more),
      plan && ({ message: { to: { all: true } }, ...plan } as CampaignPlan),
      from,
      until,
      NOW,
      "UTC",
    ).map(({ at, is }) => `${is} ${at.toISOString().slice(5, 16)}`);

  it("shows past, due and planned sends", () => {
    const weekly = { schedule: { cron: "0 9 * * MON", timezone: "UTC" } };
    expect(
      found({ state: "scheduled", started_at: "2027-01-05T00:00:00Z", next_at: "2027-01-18T09:00:00Z" }, weekly),
    ).toEqual(["was 01-11T09:00", "due 01-18T09:00", "due 01-25T09:00"]);
    expect(found({ state: "cancelled", started_at: "2027-01-05T00:00:00Z" }, weekly)).toEqual(["was 01-11T09:00"]);
    expect(
      found({ state: "scheduled", started_at: "2026-12-05T00:00:00Z", runs: 0, next_at: "2027-01-18T09:00:00Z" }),
    ).toEqual(["due 01-18T09:00"]);
    expect(found({ state: "draft", runs: 0 }, { schedule: { at: "2027-01-20T09:00:00Z" } })).toEqual([
      "planned 01-20T09:00",
    ]);
    expect(found({ state: "done", started_at: "2027-01-05T10:00:00Z" }, {})).toEqual(["was 01-05T10:00"]);
    expect(found({ state: "cancelled", runs: 0 }, { schedule: { at: "2027-01-20T09:00:00Z" } })).toEqual([]);
  });

  it.each<Zone>(["UTC", "local"])("shows local times of recipients as planned (%s)", (zone) => {
    vi.stubEnv("TZ", "America/New_York");
    const plan = {
      message: { to: { all: true } },
      schedule: { at: "2027-01-20T22:00", timezone: "recipient" },
    } as CampaignPlan;
    const [occasion] = occasions(campaign({ state: "scheduled", runs: 0 }), plan, from, until, NOW, zone);
    expect([occasion && dayKey(occasion.at, zone), occasion && clockTime(occasion.at, occasion.at, zone)]).toEqual([
      "2027-01-20",
      "22:00",
    ]);
  });

  it("has one line per campaign and day", () => {
    const hourly = occasions(
      campaign({ state: "scheduled", started_at: NOW.toISOString() }),
      { slug: "h", message: { to: { all: true } } as never, schedule: { cron: "0 * * * *", timezone: "UTC" } },
      from,
      until,
      NOW,
      "UTC",
    );
    const days = byDay(hourly, "UTC");
    expect(days.get("2027-01-15")?.map(({ at, times }) => [at.toISOString().slice(11, 16), times])).toEqual([
      ["09:00", 15],
    ]);
    expect(days.get("2027-01-16")?.[0]?.times).toBe(24);
  });
});

describe("a conflict", () => {
  const send = (id: string, time: string, audience: Audience | undefined, is: Occasion["is"] = "due"): Occasion => ({
    id,
    name: id,
    path: `/messages/${id}`,
    state: { word: "Scheduled", tone: "waiting" },
    at: new Date(`2027-01-16T${time}Z`),
    is,
    isLocal: false,
    audience,
  });
  const found = (...all: Occasion[]) => conflictsOf(all).map(({ first, second }) => `${first.id} ${second.id}`);

  it("is two sends to one audience within hours", () => {
    expect(found(send("a", "09:00", {}), send("b", "11:59", {}), send("c", "15:00", {}))).toEqual(["a b"]);
    expect(found(send("b", "11:00", { topic: "news" }), send("a", "09:00", { topic: "news" }))).toEqual(["a b"]);
    expect(found(send("a", "09:00", {}), send("b", "12:00", {}))).toEqual([]);
  });

  it("needs audiences of which one contains the other", () => {
    expect(found(send("a", "09:00", {}), send("b", "10:00", { segment: "vip" }))).toEqual(["a b"]);
    expect(
      found(send("a", "09:00", { topic: "news", segment: "vip" }), send("b", "10:00", { segment: "vip" })),
    ).toEqual(["a b"]);
    expect(found(send("a", "09:00", { topic: "news" }), send("b", "10:00", { topic: "offers" }))).toEqual([]);
    expect(found(send("a", "09:00", undefined), send("b", "10:00", {}))).toEqual([]);
  });

  it("is not with the past or with itself", () => {
    expect(found(send("a", "09:00", {}, "was"), send("b", "10:00", {}))).toEqual([]);
    expect(found(send("a", "09:00", {}), send("a", "10:00", {}))).toEqual([]);
  });
});

describe("a scheduled message", () => {
  it("is due at its time, with its title", () => {
    const message = {
      id: "msg_1",
      state: "scheduled",
      to: { topic: "news" },
      title: "Sale",
      accepted_at: NOW.toISOString(),
    } as unknown as MessageResponse;
    expect(scheduled([message, { ...message, id: "msg_2", campaign: "cmp_1" }])).toEqual([
      {
        id: "msg_1",
        name: "Sale",
        path: "/messages/msg_1",
        state: { word: "Scheduled", tone: "waiting" },
        at: NOW,
        is: "due",
        isLocal: false,
        audience: { topic: "news", segment: undefined },
      },
    ]);
  });
});
