import { describe, expect, it } from "vitest";
import type {
  Campaign,
  CampaignCounts,
  CampaignPlan,
  CampaignProgress,
  CampaignVariantResponse,
} from "../src/api/types";
import {
  actsOn,
  ctrWords,
  brief,
  consequence,
  firstRun,
  going,
  momentOf,
  parts,
  paceWords,
  receipts,
  scheduleWords,
  standing,
  startWords,
  STATES,
  testWords,
} from "../src/lib/campaigns";
import {
  axisEnd,
  changeWords,
  intervals,
  resultRow,
  verdict,
  verdictBadge,
  winnerWords,
} from "../src/lib/campaign-results";
import { csvOf } from "../src/lib/export";

const NOW = new Date("2027-01-15T08:00:00Z");

const counts = (more: Partial<CampaignCounts> = {}): CampaignCounts => {
  const all = { waiting: 0, accepted: 0, gone: 0, expired: 0, dead: 0, cancelled: 0, capped: 0, ...more };
  return { sunset: 0, ...all, targeted: Object.values(all).reduce((sum, n) => sum + n, 0) };
};
const progress = (more: Partial<CampaignProgress> = {}): CampaignProgress => ({
  messages: 1,
  messages_to_make: 0,
  audience_estimate: 0,
  expanded: true,
  total: counts(),
  rate_per_second: null,
  eta: null,
  held: [],
  variants: [],
  gateways: [],
  holdout: 0,
  runs: [],
  ...more,
});
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
const words = (more: Partial<Campaign>, perMinute?: number) => going(campaign(more), perMinute, NOW, "UTC").words;

describe("how a campaign goes", () => {
  it.each<[Partial<Campaign>, string]>([
    [{ state: "draft" }, "Draft: nothing is sent until the campaign is started."],
    [{ state: "scheduled", runs: 0, next_at: "2027-01-15T11:00:00Z" }, "Due in 3 h, 11:00."],
    [
      { state: "scheduled", runs: 4, next_at: "2027-01-18T08:00:00Z" },
      "4 runs so far; the next run is due in 3 days, 18 Jan 08:00.",
    ],
    [{ state: "paused" }, "Paused: nothing is sent until the campaign is resumed."],
    [
      { state: "paused", progress: progress({ total: counts({ accepted: 90, waiting: 10 }) }) },
      "Paused: 90 of 100 done, the others wait.",
    ],
    [
      { state: "paused", progress: progress({ total: counts({ accepted: 90 }) }) },
      "Paused: nothing is sent until the campaign is resumed.",
    ],
    [{ progress: progress({ expanded: false, audience_estimate: 0 }) }, "Sending: recipients are being determined."],
    [
      {
        progress: progress({
          total: counts({ accepted: 12_000, waiting: 38_000 }),
          rate_per_second: 60,
          eta: "2027-01-15T08:12:00Z",
        }),
      },
      "Sending: 12,000 of 50,000 done, 3,600 per minute, done at about 08:12.",
    ],
    [
      {
        progress: progress({
          total: counts({ accepted: 900, waiting: 100 }),
          rate_per_second: 60,
          held: [{ gateway: "apple", until: "2027-01-15T08:51:00Z" }],
        }),
      },
      "Sending: 900 of 1,000 done, the others wait until 08:51: Apple is on hold.",
    ],
    [
      {
        progress: progress({ total: counts({ accepted: 900, waiting: 100 }), held: [{ gateway: "fcm", until: null }] }),
      },
      "Sending: 900 of 1,000 done, the others wait: Google is on hold.",
    ],
    [
      {
        progress: progress({
          total: counts({ accepted: 500, waiting: 500 }),
          expanded: false,
          audience_estimate: 50_000,
        }),
      },
      "Sending: 500 of about 50,000 done.",
    ],
    [
      {
        progress: progress({
          total: counts({ accepted: 200 }),
          messages_to_make: 1,
          runs: [{ run: 1, at: NOW.toISOString(), decide_at: "2027-01-15T12:00:00Z" }],
        }),
      },
      "The test was sent to 200; results are counted until 12:00, then all others get the winner.",
    ],
    [
      {
        next_at: "2027-01-15T09:00:00Z",
        progress: progress({ total: counts({ accepted: 200 }), messages_to_make: 37 }),
      },
      "Sending: 200 done, 37 messages to come, the next 09:00.",
    ],
    [
      { state: "done", progress: progress({ total: counts({ accepted: 90, gone: 10 }) }) },
      "Done: 90 of 100 accepted; 10 gone.",
    ],
    [{ state: "done", progress: progress() }, "Done: the audience was empty."],
    [
      { state: "cancelled", progress: progress({ total: counts({ accepted: 90, cancelled: 10 }) }) },
      "Cancelled: 90 had ended, 10 were stopped.",
    ],
    [{ state: "cancelled", progress: progress() }, "Cancelled before anything was sent."],
  ])("is said of %j", (more, expected) => {
    expect(words(more)).toBe(expected);
  });

  it("shows the planned time while it is starting", () => {
    const it = campaign({ state: "scheduled", runs: 0, next_at: NOW.toISOString() });
    const said = (plan: Pick<CampaignPlan, "schedule">) => going(it, undefined, NOW, "UTC", firstRun(plan, NOW)).words;
    expect(said({ schedule: { at: "2027-01-18T08:00:00Z" } })).toBe("Due in 3 days, 18 Jan 08:00.");
    expect(said({ schedule: { cron: "0 9 * * MON", timezone: "UTC" } })).toBe("Due in 3 days, 18 Jan 09:00.");
    expect(said({ schedule: { at: "2027-01-18T08:00", timezone: "recipient" } })).toBe("Starting…");
    expect(said({})).toBe("Starting…");
  });

  it("is timed by the page without server figures", () => {
    expect(words({ progress: progress({ total: counts({ accepted: 100, waiting: 600 }) }) }, 60)).toBe(
      "Sending: 100 of 700 done, 1 per second, done at about 08:10.",
    );
  });

  it("is stalled without endings and names the cause", () => {
    const it = campaign({
      progress: progress({ total: counts({ accepted: 788 }), expanded: false, audience_estimate: 940 }),
    });
    expect(going(it, 0, NOW, "UTC")).toEqual({
      tone: "retrying",
      words: "Stalled: 788 of about 940 done, no progress at the moment.",
      path: "/push-services",
    });
    expect(going(it, undefined, NOW, "UTC").words).toBe("Sending: 788 of about 940 done.");
  });

  it("is alarming when much is lost", () => {
    expect(
      going(
        campaign({ state: "done", progress: progress({ total: counts({ accepted: 80, dead: 20 }) }) }),
        undefined,
        NOW,
        "UTC",
      ).tone,
    ).toBe("lost");
  });

  it("is a bar whose parts add up", () => {
    const it = standing(
      campaign(),
      progress({ expanded: false, audience_estimate: 1_000, total: counts({ accepted: 5, capped: 2, waiting: 3 }) }),
    );
    expect(parts(it).map(({ id, n }) => [id, n])).toEqual([
      ["accepted", 5],
      ["capped", 2],
      ["queued", 3],
      ["unfound", 990],
    ]);
    expect(brief(it)).toBe("7 of about 1,000 done");
  });
});

describe("what may be done", () => {
  it("follows from the state and names the number", () => {
    expect(STATES.map((state) => actsOn({ state }).join())).toEqual([
      "start,delete",
      "pause,cancel",
      "pause,cancel",
      "resume,cancel",
      "delete",
      "delete",
    ]);
    const it = campaign({ progress: progress({ total: counts({ accepted: 90, waiting: 1 }), messages_to_make: 1 }) });
    expect(consequence("pause", it)).toBe(
      "This would pause one delivery that waits now. No new request starts after one second; requests in flight complete. Times to live continue to run. One message of this run is not created yet.",
    );
    expect(consequence("cancel", it)).toContain(
      "one delivery that has not been sent yet, and all future runs. 90 deliveries have ended already",
    );
    expect(consequence("cancel", campaign({ progress: progress({ total: counts({ accepted: 90 }) }) }))).toBe(
      "Every delivery was sent. This would cancel all future runs. 90 deliveries have ended already. To remove sent notifications from browsers too, withdraw the campaign instead.",
    );
    expect(
      consequence("cancel", campaign({ progress: progress({ total: counts({ accepted: 1, waiting: 2 }) }) })),
    ).toBe(
      "This would cancel 2 deliveries that have not been sent yet, and all future runs. One delivery has ended already. To remove sent notifications from browsers too, withdraw the campaign instead.",
    );
    expect(consequence("delete", campaign({ state: "draft" }))).toContain("subscribers notice nothing");
  });
});

describe("exported results", () => {
  const headOf = (row: object) => csvOf([row]).split("\r\n")[0];

  it("have columns for a withdrawal", () => {
    const withdrawal = {
      at: NOW.toISOString(),
      ended_at: NOW.toISOString(),
      removal: null,
      removed: 12,
      prevented: 3,
      missed: 4,
      unknown: 1,
    };
    const row = resultRow(campaign(), progress({ total: counts({ accepted: 20 }), withdrawal }));
    expect(row).toMatchObject({ accepted: 20, withdrawal: { removed: 12, prevented: 3, missed: 4, unknown: 1 } });
    expect(headOf(row)).toMatch(
      /,withdrawal\.at,withdrawal\.ended_at,withdrawal\.removed,withdrawal\.prevented,withdrawal\.missed,withdrawal\.unknown$/,
    );
  });

  it("show that nothing was withdrawn", () => {
    const row = resultRow(campaign(), progress());
    expect(row.withdrawal).toBeNull();
    expect(headOf(row)).toMatch(/,reactions,withdrawal$/);
  });
});

describe("what a plan says", () => {
  it.each<[Pick<CampaignPlan, "schedule" | "follows">, string]>([
    [{}, "Immediately after the start."],
    [{ schedule: { at: "2027-01-15T11:00:00Z" } }, "At 11:00, in 3 h."],
    [
      { schedule: { at: "2027-03-01T09:00", timezone: "Europe/Vienna" } },
      "Mon 1 Mar 2027 09:00 in Europe/Vienna: in 45 days, 1 Mar 08:00 here.",
    ],
    [
      { schedule: { at: "2027-03-01T09:00", timezone: "recipient", past: "skip" } },
      "At Mon 1 Mar 2027 09:00 in each recipient’s time zone. Subscribers whose time has passed at the start get nothing.",
    ],
    [
      { schedule: { cron: "0 9 * * MON", timezone: "UTC" } },
      "Every Monday at 09:00, UTC time. Next runs: 18 Jan 09:00, 25 Jan 09:00, 1 Feb 09:00…",
    ],
    [{ schedule: { cron: "0 9 L * *", timezone: "UTC" } }, "Recurring, UTC time. The next run is shown after saving."],
    [
      { schedule: { cron: "0 9 30 2 *", timezone: "UTC" } },
      "Recurring, UTC time. The expression never matches a date.",
    ],
    [
      { follows: { campaign: "spring", did_not: "click", after: 259_200 } },
      "3 days after the last run of spring began, to those of its recipients who did not click it.",
    ],
  ])("of its time: %j", (plan, expected) => {
    expect(scheduleWords(plan, NOW, "UTC").join(" ")).toBe(expected);
  });

  it("of its pace and its test", () => {
    expect([{}, { pace: { per_minute: 60_000 } }, { pace: { spread_over: 3_600 } }].map(paceWords)).toEqual([
      "No limit.",
      "At most 60,000 per minute.",
      "Spread over 1 h.",
    ]);
    const variants = [
      { name: "plain", message: {} },
      { name: "loud", message: {} },
    ];
    expect(testWords({ variants: [] })).toBeUndefined();
    expect(testWords({ variants })).toBe("2 variants, by weight, without a winner.");
    expect(testWords({ variants, test: { share: 0.2, after: 14_400 } })).toBe(
      "2 variants go to 20 % first. After 4 h all others get the winner: the variant with a higher CTR than each other variant, with a probability of 95 %. Without a winner they get variant plain.",
    );
    expect(testWords({ variants, test: { share: 0.2, after: 14_400, by: "order" } })).toContain(
      "the variant with a higher share of people with the conversion “order” than each other variant",
    );
  });

  it("names the effect and number of a start", () => {
    const plan: CampaignPlan = {
      slug: "a",
      message: { to: { topic: "news", segment: "keen" } },
      holdout: 0.05,
      schedule: { at: "2027-01-15T11:00:00Z" },
      pace: { per_minute: 60 },
    };
    expect(startWords(plan, { audience_estimate: 2_771, audience_margin: 40 }, NOW, "UTC")).toEqual([
      "Audience: topic news in the segment keen: 2,771 active subscriptions ± 40, estimated just now; counted again when the campaign is due. Holdout: 5 % of them get nothing, to measure the effect.",
      "At 11:00, in 3 h.",
      "At most 60 per minute.",
    ]);
    const follow: CampaignPlan = {
      slug: "a",
      message: { to: { all: true } },
      follows: { campaign: "spring", did_not: "click", after: 3_600 },
    };
    expect(startWords(follow, { audience_estimate: 1, audience_margin: 0 }, NOW, "UTC")[0]).toBe(
      "Audience: those of one active subscription who got the other campaign and did not react, counted at that time.",
    );
  });

  it("is no moment while it is not one", () => {
    expect(momentOf({ at: "2027-03-01T09:00" })).toBeUndefined();
    expect(momentOf({ at: "soon", timezone: "UTC" })).toBeUndefined();
    expect(momentOf({ at: "2027-03-28T02:30", timezone: "Europe/Vienna" })?.toISOString()).toBe(
      "2027-03-28T01:00:00.000Z",
    );
  });
});

const variant = (
  name: string,
  accepted: number,
  clicked: number,
  rate: number,
  from: number,
  to: number,
): CampaignVariantResponse => ({
  name,
  weight: 1,
  counts: counts({ accepted }),
  reports: {
    may_report: accepted - 10,
    acknowledged: 0,
    displayed: 50,
    clicked,
    closed: 0,
    click_rate: rate,
    click_rate_from: from,
    click_rate_to: to,
  },
});

describe("results", () => {
  const [plain, loud, clear] = [
    variant("plain", 100, 5, 0.05, 0.02, 0.11),
    variant("loud", 100, 9, 0.09, 0.05, 0.16),
    variant("clear", 100, 30, 0.3, 0.22, 0.4),
  ];

  it("have a winner only without overlapping intervals", () => {
    expect(verdict(intervals([plain, loud]))?.words).toBe(
      "The intervals of loud and plain overlap, so the difference may be chance.",
    );
    expect(verdict(intervals([plain, loud, clear]))).toEqual({
      tone: "accepted",
      words: "clear has the highest CTR: the intervals do not overlap.",
    });
    expect(verdict(intervals([variant("a", 9, 0, 0, 0, 0.3), variant("b", 9, 0, 0, 0, 0.3)]))?.words).toBe(
      "No clicks so far.",
    );
    expect(verdict(intervals([plain]))).toBeUndefined();
    expect(intervals([{ ...plain, reports: null }])).toEqual([]);
    expect(intervals([variant("rounded", 9, 0, 0, 1e-18, 0.3)])[0]?.from).toBe(0);
  });

  it("have no leader beside a winner", () => {
    const decide_at = "2027-01-15T12:00:00Z";
    expect([verdictBadge(false, { decide_at }), verdictBadge(true, { decide_at })]).toEqual([
      "Test is running",
      "Test is running",
    ]);
    expect(verdictBadge(true, { winner: "loud" })).toBeUndefined();
    expect([verdictBadge(true, {}), verdictBadge(false, undefined)]).toEqual(["Ahead", "No winner"]);
  });

  it("have an axis with a round end", () => {
    expect(
      [0.004, 0.04, 0.11, 0.2, 0.41, 0.7].map((to) => axisEnd(intervals([variant("a", 9, 1, to / 2, 0, to)]))),
    ).toEqual([0.01, 0.05, 0.2, 0.2, 0.5, 1]);
  });

  it("say who won, or that nobody did", () => {
    const run = { run: 1, at: NOW.toISOString() };
    expect(winnerWords(run, NOW, "UTC")).toBeUndefined();
    expect(winnerWords({ ...run, decide_at: "2027-01-15T12:00:00Z" }, NOW, "UTC")).toBe("A/B test until 12:00.");
    expect(winnerWords({ ...run, winner: "loud", confidence: 0.97 }, NOW, "UTC")).toBe(
      "Winner: loud, with a probability of 97 %.",
    );
    expect(winnerWords({ ...run, confidence: 0.61 }, NOW, "UTC")).toBe(
      "No winner: the best variant had a probability of 61 % only.",
    );
  });

  it("compare runs and mark chance", () => {
    const before = { run: 1, targeted: 0, accepted: 0 };
    expect(changeWords({ ...before, click_rate: 0.0123, higher: 0.97 })).toBe("+1.2 points");
    expect(changeWords({ ...before, click_rate: -0.0123, higher: 0.3 })).toBe("−1.2 points, may be chance");
    expect([changeWords(null), changeWords({ ...before, click_rate: null, higher: null })]).toEqual(["–", "–"]);
  });

  it("exclude unknown receipts from the silent ones", () => {
    expect(receipts(progress({ total: counts({ accepted: 200 }), variants: [plain, loud] }))).toEqual({
      accepted: 200,
      asked: 180,
      displayed: 100,
      clicked: 14,
      unknowable: 20,
      silent: 80,
    });
    expect(receipts(progress({ variants: [{ ...plain, reports: null }] }))).toBeNull();
    expect(ctrWords(progress({ variants: [variant("a", 100, 5, 0, 0, 0), variant("b", 300, 7, 0, 0, 0)] }))).toBe(
      "3 %",
    );
    expect([ctrWords(progress({ variants: [{ ...plain, reports: null }] })), ctrWords(null)]).toEqual(["–", "–"]);
  });
});
