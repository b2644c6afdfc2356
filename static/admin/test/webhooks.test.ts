import { describe, expect, it } from "vitest";
import type { WebhookResponse, WebhookAttempt } from "../src/api/types";
import {
  BLANK,
  bodyOf,
  deletionWords,
  draftOf,
  EVENTS,
  hostOf,
  OWN,
  replayWords,
  requestWords,
  standing,
  toggled,
  trialWords,
  tryWords,
} from "../src/lib/webhooks";

const webhook = (more: Partial<WebhookResponse> = {}): WebhookResponse => ({
  id: "wh_1",
  name: "CRM",
  url: "https://hooks.example.com/in?token=abc",
  created_by: "local",
  events: ["delivery.gone"],
  max_events: 100,
  policy: null as never,
  state: "active",
  disabled_why: null,
  breaker: "closed",
  open_until: null,
  failing_since: null,
  pending: 0,
  failed: 0,
  dropped_events: 0,
  former_secret_until: null,
  created_at: "2027-01-15T08:00:00Z",
  changed_at: "2027-01-15T08:00:00Z",
  ...more,
});
const tried = (more: Partial<WebhookAttempt> = {}): WebhookAttempt => ({
  number: 0,
  at: "2027-01-15T08:00:00Z",
  http_status: 204,
  took_ms: 35,
  reason: null,
  ...more,
});

describe("where a webhook stands", () => {
  it.each<[Partial<WebhookResponse>, string, string]>([
    [{}, "accepted", "Enabled"],
    [{ failing_since: "2027-01-15T08:00:00Z" }, "retrying", "Failing"],
    [{ failing_since: "2027-01-15T08:00:00Z", breaker: "open" }, "retrying", "Backing off"],
    [{ breaker: "half_open" }, "retrying", "Backing off"],
    [{ dropped_events: 3 }, "retrying", "Enabled"],
    [{ state: "disabled", disabled_why: "asked", breaker: "open" }, "cancelled", "Disabled"],
    [{ state: "disabled", disabled_why: "gone" }, "lost", "Gone"],
    [{ state: "disabled", disabled_why: "failing" }, "lost", "Failed"],
    [{ state: "disabled", disabled_why: "something new" as never }, "cancelled", "Disabled"],
  ])("%j is %s, %s", (more, tone, word) => {
    expect(standing(webhook(more))).toMatchObject({ tone, word });
  });

  it("is explained unless nothing needs to be said", () => {
    expect(standing(webhook()).why).toBe("");
    expect(standing(webhook({ dropped_events: 1 })).why).toBe(
      "One event was dropped because too many requests were waiting.",
    );
  });
});

describe("a request", () => {
  it("stands where its receiver left it", () => {
    const words = (["pending", "delivered", "failed"] as const).map(
      (state) => requestWords({ state, attempts: 0 }).word,
    );
    expect([...words, requestWords({ state: "pending", attempts: 2 }).word]).toEqual([
      "Waiting",
      "Accepted",
      "Failed",
      "Retrying",
    ]);
  });

  it("tells what came back of each try", () => {
    expect(tryWords(tried())).toBe("The receiver responded 204 after 35 ms.");
    expect(tryWords(tried({ http_status: 500, took_ms: 1_200, reason: "oops" }))).toBe(
      "The receiver responded 500 after 1.2 s: oops",
    );
    expect(tryWords(tried({ http_status: null, took_ms: 15_000, reason: "deadline" }))).toBe(
      "No response: timeout, after 15 s.",
    );
    expect(tryWords(tried({ http_status: null, took_ms: 3, reason: "something new" }))).toBe(
      "No response: something new, after 3 ms.",
    );
  });

  it("of a test shows whether the receiver works", () => {
    expect(trialWords({ state: "pending", recent_attempts: [] })).toBeUndefined();
    expect(trialWords({ state: "delivered", recent_attempts: [tried()] })).toMatchObject({
      tone: "accepted",
      word: "Test passed",
    });
    expect(trialWords({ state: "pending", recent_attempts: [tried({ http_status: 503, reason: "busy" })] })?.why).toBe(
      "The receiver responded 503 after 35 ms: busy The request is retried.",
    );
    expect(trialWords({ state: "failed", recent_attempts: [tried({ http_status: 503 })] })?.why).toBe(
      "The receiver responded 503 after 35 ms.",
    );
  });
});

describe("what is about to be done", () => {
  it("is said with how many it is", () => {
    expect(replayWords(1)).toContain(
      "One failed request is sent again, with all retries. Each request keeps its id, so a receiver can drop duplicates.",
    );
    expect(replayWords(12)).toContain(
      "12 failed requests are sent again, with all retries. Each request keeps its id, so a receiver can drop duplicates.",
    );
    expect(deletionWords({ pending: 0, failed: 0 })).toContain(
      "The receiver gets no further events. No requests are waiting. This cannot be undone.",
    );
    expect(deletionWords({ pending: 2, failed: 1_200 })).toContain(
      "The receiver gets no further events. 2 waiting and 1,200 failed requests are deleted. This cannot be undone.",
    );
  });

  it("shows the host of an address only", () => {
    expect([hostOf("https://hooks.example.com:8443/in?token=abc"), hostOf("nonsense")]).toEqual([
      "hooks.example.com:8443",
      "",
    ]);
  });
});

describe("a webhook that is written", () => {
  it("offers each event once, and not the trial’s", () => {
    const all = EVENTS.flatMap(([, events]) => events.map(([event]) => event));
    expect([all.length, new Set(all).size, all.includes("webhook.test")]).toEqual([25, 25, false]);
  });

  it("round-trips with a policy without fields", () => {
    for (const policy of [null, { preset: "qstash" }, { retries: 3, retryDelay: "1000" }]) {
      const { name, url, events, max_events } = webhook();
      expect(bodyOf(draftOf(webhook({ policy: policy as never })))).toEqual({ name, url, events, max_events, policy });
    }
    const own = draftOf(webhook({ policy: { retries: 3 } as never }));
    expect(own.preset).toBe(OWN);
    expect(bodyOf({ ...own, preset: "" }).policy).toBeNull();
  });

  it("has its events in display order", () => {
    const fewer = toggled(BLANK.events, "delivery.dead");
    expect(fewer).toEqual(["delivery.gone", "delivery.clicked", "campaign.state"]);
    expect(toggled(fewer, "delivery.accepted")).toEqual(["delivery.accepted", ...fewer]);
  });
});
