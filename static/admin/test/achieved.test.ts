// @vitest-environment happy-dom
import { h, render, type ComponentChildren } from "preact";
import { LocationProvider } from "preact-iso";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { api } from "../src/api/client";
import type { AppResponse, AppResult, Campaign, CampaignResult } from "../src/api/types";
import { forgetFigures } from "../src/lib/resource";
import { Achieved } from "../src/pages/campaigns/achieved";
import { Caused } from "../src/pages/campaigns/caused";
import * as load from "../src/pages/campaigns/load";

vi.mock("../src/pages/campaigns/load", { spy: true });

const APP = { id: "app_1", slug: "shop", name: "Shop" } as AppResponse;
const CAMPAIGN = { id: "cmp_1", slug: "spring" } as Campaign;
const RESULT: CampaignResult = {
  began_at: "2026-11-01T09:00:00Z",
  closes_at: "2026-11-15T09:00:00Z",
  is_final: false,
  summary: "Too few conversions of `order` to compare, so far.",
  accepted: 100,
  unsubscribed: 3,
  groups: [{ group: "control", people: 20 }],
  conversions: [
    {
      name: "order",
      attributed: { conversions: 4, people: 3, values: [{ currency: "EUR", value: 49.9, per_delivery: 0.499 }] },
      groups: [{ group: "control", converted: 1, conversions: 1, rate: 0.05 }],
      lift: { effect: "more", relative: { low: 0.1, value: 0.2, high: 0.3 }, values: [] },
    },
  ],
};

beforeEach(() => {
  vi.useFakeTimers();
  return () => {
    vi.useRealTimers();
    forgetFigures();
    render(null, document.body);
  };
});

async function draw(node: ComponentChildren) {
  render(h(LocationProvider, {}, node), document.body);
  await vi.advanceTimersByTimeAsync(100);
  return document.body;
}

describe("the results of a campaign", () => {
  const drawn = (results: CampaignResult[]) => {
    vi.spyOn(load, "loadResults").mockResolvedValue(results);
    return draw(h(Achieved, { app: APP, campaign: CAMPAIGN }));
  };

  it("are not shown if nothing was measured", async () => {
    expect((await drawn([])).textContent).toBe("");
  });

  it("begin with the summary of the latest period", async () => {
    const page = await drawn([RESULT]);
    expect(page.querySelector("#achieved")?.textContent).toBe("Too few conversions of order to compare, so far.");
    expect(page.textContent).toContain("Not final: conversions count until");
    expect(page.textContent).toContain("49.90 EUR");
    expect(page.querySelector("figure .counted")?.textContent).toBe("+20 % +10 % to +30 %");
    expect(page.querySelector("details[data-period]")).toBeNull();
  });

  it("have earlier periods in closed details", async () => {
    const page = await drawn([RESULT, { ...RESULT, began_at: "2026-08-01T09:00:00Z", is_final: true }]);
    const earlier = page.querySelector<HTMLDetailsElement>("details[data-period]");
    expect([earlier?.open, earlier?.textContent?.includes("Final: conversions counted until")]).toEqual([false, true]);
  });
});

describe("the results of a quarter", () => {
  const caused = (quarter: string, conversions: AppResult["conversions"]): AppResult => ({
    quarter,
    campaigns: 2,
    is_final: true,
    conversions,
  });
  const ORDERS = [{ name: "order", additional: { low: 80, value: 100, high: 130 } }];

  it("are those of the last one with conversions", async () => {
    const get = vi.spyOn(api, "GET").mockImplementation((async (_: string, { params }: never) => {
      const { quarter } = (params as { query: { quarter?: string } }).query;
      return { data: quarter ? caused(quarter, ORDERS) : caused("2027-Q1", []), response: new Response() };
    }) as never);
    const page = await draw(h(Caused, { app: APP }));
    expect([get.mock.calls.length, page.querySelector("#caused")?.textContent]).toEqual([
      2,
      "Campaigns caused 80 to 130 conversions of order in 2026-Q4.",
    ]);
    expect(page.querySelector<HTMLSelectElement>("#quarter")?.value).toBe("2026-Q4");
  });

  it("are not shown without any", async () => {
    vi.spyOn(load, "loadCaused").mockResolvedValue(caused("2026-Q4", []));
    expect((await draw(h(Caused, { app: APP }))).textContent).toBe("");
  });
});
