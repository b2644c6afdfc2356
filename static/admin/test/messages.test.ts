import { describe, expect, it } from "vitest";
import type { MessageCounts, MessageResponse, SendState, WithdrawalCounts } from "../src/api/types";
import {
  audienceWords,
  campaignWithdrawalWords,
  consequence,
  going,
  grouped,
  isUndo,
  outOf,
  pace,
  parts,
  receipts,
  remember,
  standing,
  standingOf,
  stateOf,
  steerings,
  sumsOf,
  titleWords,
  withdrawalWords,
} from "../src/lib/messages";

const NOW = new Date("2027-01-15T08:00:00Z");

const counts = (more: Partial<MessageCounts> = {}): MessageCounts => {
  const none = {
    queued: 0,
    dispatching: 0,
    retrying: 0,
    accepted: 0,
    gone: 0,
    expired: 0,
    dead: 0,
    cancelled: 0,
    capped: 0,
  };
  const all = { ...none, ...more };
  const targeted = Object.keys(none).reduce((sum, name) => sum + all[name as keyof typeof none], 0);
  return {
    sunset: 0,
    displayed: 0,
    clicked: 0,
    closed: 0,
    acknowledged: 0,
    awaiting_ack: 0,
    unconfirmed: 0,
    ...all,
    targeted,
  };
};

const message = (more: Partial<MessageResponse> = {}): MessageResponse => ({
  id: "msg_1",
  state: "sending",
  tier: "promotional",
  to: { all: true } as never,
  ttl: 3_600,
  urgency: "normal",
  content_deleted: false,
  accepted_at: NOW.toISOString(),
  received_at: NOW.toISOString(),
  expires_at: "2027-01-15T09:00:00Z",
  expanded: true,
  audience_estimate: 0,
  links: { self: "", deliveries: "", pause: "", resume: "", cancel: "", withdraw: "" },
  ...more,
});

const words = (more: Partial<MessageResponse>, perMinute?: number) =>
  going(standing(message(more)), perMinute, NOW, "UTC");

describe("whom it is for", () => {
  it.each([
    [{ all: true }, "All subscribers"],
    [{ segment: "paying" }, "Segment paying"],
    [{ all: true, segment: "paying" }, "Segment paying"],
    [{ topic: "news", segment: "paying" }, "Segment paying of topic news"],
    [{ topic: "news" }, "Topic news"],
    [{ users: ["ann"] }, "User ann"],
    [{ users: [null] }, "One user"],
    [{ users: ["ann", "bob"] }, "2 users"],
    [{ subscriptions: ["sub_1"] }, "One subscription"],
    [{ subscriptions: ["sub_1", "sub_2", "sub_3"] }, "3 subscriptions"],
  ])("is said of %j", (to, expected) => {
    expect(audienceWords(to as never)).toBe(expected);
  });
});

describe("how it is going", () => {
  it("shows a scheduled send time", () => {
    expect(words({ state: "scheduled", accepted_at: "2027-01-15T10:30:00Z" }).words).toBe(
      "Scheduled for 10:30, in 2 h.",
    );
  });

  it("shows rate and end while running", () => {
    const some = { counts: counts({ accepted: 12_000, queued: 38_000 }) };
    expect(words(some, 3_200)).toEqual({
      tone: "waiting",
      words: "Sending: 12,000 of 50,000 done, 3,200 per minute, about 12 min left.",
    });
    expect(words(some)).toEqual({ tone: "waiting", words: "Sending: 12,000 of 50,000 done." });
  });

  it("shows an unknown total during fan-out", () => {
    const some = { expanded: false, audience_estimate: 50_000, counts: counts({ accepted: 500, dispatching: 500 }) };
    expect(words(some).words).toBe("Sending: 500 of about 50,000 done.");
    expect(parts(standing(message(some))).map(({ id, n }) => [id, n])).toEqual([
      ["accepted", 500],
      ["queued", 500],
      ["unfound", 49_000],
    ]);
  });

  it("names a stall and the time of retries", () => {
    expect(words({ counts: counts({ accepted: 5, queued: 5 }) }, 0).words).toBe(
      "Stalled: 5 of 10 done, no progress at the moment.",
    );
    expect(words({ counts: counts({ accepted: 9, retrying: 1 }) }, 0)).toEqual({
      tone: "retrying",
      words: "9 of 10 done; one delivery waits for a retry.",
      path: "/push-services",
    });
  });

  it("warns of a time to live too short", () => {
    expect(words({ counts: counts({ accepted: 100, queued: 10_000 }) }, 120).words).toContain(
      "the time to live ends first, at 09:00.",
    );
  });

  it("shows the result when done", () => {
    const done = (of: Partial<MessageCounts>) => words({ state: "done", counts: counts(of) });
    expect(done({ accepted: 5 })).toEqual({ tone: "accepted", words: "Done: all 5 were accepted." });
    expect(done({ accepted: 1 }).words).toBe("Done: the push service accepted it.");
    expect(done({ accepted: 95, gone: 2, dead: 3 })).toEqual({
      tone: "accepted",
      words: "Done: 95 of 100 accepted; 2 gone, 3 dead.",
    });
    expect(done({ accepted: 5, dead: 5 }).tone).toBe("lost");
    expect(done({}).words).toBe("The audience was empty.");
  });

  it("names stopped and never started messages", () => {
    expect(
      words({ state: "cancelled", audience_estimate: 100, counts: counts({ accepted: 20, cancelled: 30 }) }).words,
    ).toBe("Cancelled: 20 had ended, 30 were stopped, and about 50 were never queued.");
    expect(words({ state: "paused", counts: counts({ accepted: 20, queued: 30 }) }).words).toBe(
      "Paused: 20 of 50 done, the others wait. The time to live ends at 09:00.",
    );
  });

  it("is told by a list's figures, too", () => {
    const progress = { targeted: 10, waiting: 4, accepted: 5, gone: 1, expired: 0, dead: 0, cancelled: 0, capped: 0 };
    expect(outOf(standing(message({ progress })))).toBe("6 of 10");
  });
});

describe("the pace", () => {
  const samples = (...of: [number, number][]) =>
    of.reduce<ReturnType<typeof remember>>((all, [s, ended]) => remember(all, { atMs: s * 1_000, ended }), []);

  it("is what ended within the last seconds", () => {
    expect(pace(samples([0, 0], [10, 200]))).toBe(1_200);
    expect(pace(samples([0, 0], [60, 6_000], [120, 6_060]))).toBe(60);
    expect(pace(samples([0, 0], [5, 500], [10, 500], [15, 500], [20, 500]))).toBe(0);
  });

  it("needs two looks at different times", () => {
    expect(pace(samples())).toBeUndefined();
    expect(pace(samples([0, 5]))).toBeUndefined();
    expect(pace(samples([0, 5], [1, 10]))).toBeUndefined();
  });

  it("begins anew where counts go back", () => {
    expect(samples([0, 10], [10, 5])).toEqual([{ atMs: 10_000, ended: 5 }]);
  });
});

describe("what may be done", () => {
  it("fits the state", () => {
    const possible = (state: SendState, withdrawn_at: string | null = null) => steerings({ state, withdrawn_at });
    expect(possible("scheduled")).toEqual(["pause", "cancel", "withdraw"]);
    expect(possible("sending")).toEqual(["pause", "cancel", "withdraw"]);
    expect(possible("paused")).toEqual(["resume", "cancel", "withdraw"]);
    expect(possible("done")).toEqual(["withdraw"]);
    expect(possible("done", "2026-11-28T10:00:00Z")).toEqual([]);
  });

  it("is announced with its number", () => {
    const it = standing(message({ counts: counts({ accepted: 20, queued: 30, retrying: 8 }) }));
    expect(consequence("cancel", it, NOW, "UTC")).toBe(
      "This would cancel 38 deliveries that have not been sent yet. 20 deliveries have ended already. To remove sent notifications from browsers too, withdraw the message instead.",
    );
    const unsent = standing(message({ counts: counts({ queued: 1 }) }));
    expect(consequence("cancel", unsent, NOW, "UTC")).toBe(
      "This would cancel one delivery that has not been sent yet.",
    );
    expect(consequence("pause", it, NOW, "UTC")).toContain("pause 38 deliveries");
    expect(consequence("resume", it, NOW, "UTC")).toBe("This would resume 38 deliveries, within a second.");
    const unfound = standing(message({ expanded: false, audience_estimate: 100 }));
    expect(consequence("cancel", unfound, NOW, "UTC")).toContain("about 100 deliveries");
  });
});

describe("undo", () => {
  const isUndoAfter = (seconds: number) =>
    isUndo({ accepted_at: NOW.toISOString() }, new Date(NOW.getTime() + seconds * 1_000));

  it("is offered for a minute", () => {
    expect([0, 59.999, 60, 3_600].map(isUndoAfter)).toEqual([true, true, false, false]);
  });

  it("is offered for messages due within a minute", () => {
    expect([-59.999, -60, -3_600].map(isUndoAfter)).toEqual([true, false, false]);
  });
});

describe("a withdrawal", () => {
  const withdrawal = (more: Partial<WithdrawalCounts> = {}): WithdrawalCounts => ({
    at: NOW.toISOString(),
    ended_at: NOW.toISOString(),
    removal: "msg_2",
    removed: 0,
    prevented: 0,
    missed: 0,
    unknown: 0,
    ...more,
  });

  it("waits for pushes on their way", () => {
    const waiting = withdrawal({ ended_at: null, removal: null });
    expect(withdrawalWords(waiting)).toBe("Withdrawn. Pushes on their way end first.");
    expect(campaignWithdrawalWords(waiting)).toBe("Withdrawn. Pushes on their way end first.");
  });

  it("is being sent until recipients are counted", () => {
    expect(withdrawalWords(withdrawal())).toBe("Withdrawn. The removal is being sent.");
  });

  it("reached no browser without a removal", () => {
    expect(withdrawalWords(withdrawal({ removal: null }))).toBe("Withdrawn. No browser has the message.");
  });

  it("of a campaign makes no claim without reports", () => {
    const nothing = withdrawal({ removal: null });
    expect(campaignWithdrawalWords(nothing)).toBe("Withdrawn. No browser has reported so far.");
  });

  it("names only reports above zero", () => {
    const all = withdrawal({ removed: 1_200, prevented: 30, missed: 4, unknown: 1 });
    const words =
      "Withdrawn from browsers: 1,200 closed, 30 never shown, 4 clicked or closed before, 1 without a report so far.";
    expect([withdrawalWords(all), campaignWithdrawalWords({ ...all, removal: null })]).toEqual([words, words]);
    expect(withdrawalWords(withdrawal({ missed: 2 }))).toBe("Withdrawn from browsers: 2 clicked or closed before.");
    expect(withdrawalWords(withdrawal({ unknown: 20 }))).toBe("Withdrawn from browsers: 20 without a report so far.");
  });
});

describe("what browsers reported", () => {
  it("is a share of what was accepted", () => {
    expect(receipts(message({ counts: counts({ accepted: 10, displayed: 4, clicked: 1 }) }))).toEqual({
      accepted: 10,
      asked: 10,
      displayed: 4,
      clicked: 1,
      unknowable: 0,
      silent: 6,
    });
  });

  it("is not known to anybody without the envelope", () => {
    expect(receipts(message({ counts: { ...counts({ accepted: 10 }), displayed: null } }))).toBeNull();
  });
});

describe("rows of the list", () => {
  const progress = (more: object) => ({
    targeted: 0,
    waiting: 0,
    accepted: 0,
    gone: 0,
    expired: 0,
    dead: 0,
    cancelled: 0,
    capped: 0,
    displayed: 0,
    clicked: 0,
    ...more,
  });
  const single = (id: string, more: Partial<MessageResponse> = {}) =>
    message({ id, tier: "transactional", to: { users: [id] } as never, title: "Order shipped", ...more });
  const ids = (messages: MessageResponse[]) =>
    grouped(messages).map(({ messages }) => messages.map(({ id }) => id).join(" "));

  it("group consecutive single sends of one kind", () => {
    expect(ids([single("a"), single("b"), single("c")])).toEqual(["a b c"]);
    expect(ids([single("a"), message({ id: "m" }), single("b")])).toEqual(["a", "m", "b"]);
    expect(ids([single("a"), single("b", { title: "Code" }), single("c", { title: null })])).toEqual(["a", "b", "c"]);
    expect(
      ids([
        single("a"),
        single("b", { to: { subscriptions: ["sub_1"] } as never }),
        single("c", { tier: "promotional" }),
      ]),
    ).toEqual(["a", "b", "c"]);
    expect(ids([message({ id: "m" }), message({ id: "n" })])).toEqual(["m", "n"]);
    expect(
      ids([single("a", { to: { users: ["x", "y"] } as never }), single("b", { to: { users: ["x", "y"] } as never })]),
    ).toEqual(["a", "b"]);
  });

  it("keep the id of the oldest message", () => {
    expect(grouped([single("b"), single("a")])[0]?.id).toBe(grouped([single("c"), single("b"), single("a")])[0]?.id);
  });

  it("sum what is known", () => {
    const all = [
      single("a", { progress: progress({ targeted: 3, accepted: 2, displayed: 2, clicked: 1 }) }),
      single("b", { progress: progress({ targeted: 1, accepted: 1, displayed: null, clicked: null }) }),
    ];
    expect(sumsOf(all)).toEqual({ targeted: 4, accepted: 3, displayed: 2, clicked: 1, ctr: 0.5 });
    expect(sumsOf(all.slice(1))).toEqual({ targeted: 1, accepted: 1, displayed: null, clicked: null, ctr: null });
    expect(standingOf(all).ended.accepted).toBe(3);
  });

  it("show what is under way first", () => {
    expect(stateOf([single("a", { state: "done" }), single("b", { state: "sending" })])).toBe("sending");
    expect(stateOf([single("a", { state: "cancelled" }), single("b", { state: "done" })])).toBe("done");
  });

  it("name the audience without a title", () => {
    expect(titleWords(single("a"))).toBe("Order shipped");
    expect(titleWords(single("a", { title: null, to: { users: [null] } as never }))).toBe("To one user");
  });
});
