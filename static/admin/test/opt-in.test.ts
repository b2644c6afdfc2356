// @vitest-environment happy-dom
import { h, render } from "preact";
import { LocationProvider } from "preact-iso";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { AppResponse, PromptFunnel, PromptFunnelGroup } from "../src/api/types";
import { clock } from "../src/lib/clock";
import { csvOf } from "../src/lib/export";
import { comparedVariants, comparisonWords, funnelQuery, funnelRows, groupName, isBare } from "../src/lib/opt-in";
import { forgetFigures } from "../src/lib/resource";
import * as load from "../src/pages/settings/load";
import { OptInFunnel } from "../src/pages/settings/opt-in-funnel";
import * as file from "../src/ui/save";

vi.mock("../src/pages/settings/load", { spy: true });
vi.mock("../src/ui/save", { spy: true });

const APP = { id: "app_1", slug: "shop", name: "Shop" } as AppResponse;
const NOW = new Date("2026-11-29T10:00:00Z");
const share = (low: number, value: number, high: number) => ({ low, value, high });
const ZERO: PromptFunnelGroup = {
  value: null,
  shown: 0,
  guided: 0,
  accepted: 0,
  later: 0,
  no: 0,
  asked: 0,
  granted: 0,
  denied: 0,
  dismissed: 0,
  due_7_days: 0,
  kept_7_days: 0,
  due_30_days: 0,
  kept_30_days: 0,
  granted_share: null,
};
const SHORT: PromptFunnelGroup = {
  value: "short",
  shown: 4_000,
  guided: 210,
  accepted: 1_000,
  later: 1_500,
  no: 1_400,
  asked: 900,
  granted: 516,
  denied: 260,
  dismissed: 124,
  due_7_days: 400,
  kept_7_days: 380,
  due_30_days: 0,
  kept_30_days: 0,
  granted_share: share(0.118, 0.129, 0.141),
};
const LONG = { ...SHORT, value: "long", shown: 2_000, granted: 198, granted_share: share(0.089, 0.099, 0.109) };
const funnel = (groups: PromptFunnelGroup[], by: PromptFunnel["by"] = "variant"): PromptFunnel => ({
  since: "2026-10-31",
  until: "2026-11-29",
  by,
  groups,
});

describe("the comparison", () => {
  const words = (...groups: PromptFunnelGroup[]) => comparisonWords(comparedVariants(funnel(groups)));
  const variant = (value: string, low: number, high: number) => ({
    ...SHORT,
    value,
    granted_share: share(low, (low + high) / 2, high),
  });

  it("states a difference of two variants", () =>
    expect(words(LONG, SHORT)).toBe("`short` gets more subscribers: 11.8 to 14.1 % instead of 8.9 to 10.9 %."));

  it("states no difference of overlapping intervals", () =>
    expect(words(variant("a", 0.1, 0.14), variant("b", 0.13, 0.16))).toBe(
      "No measurable difference between the variants yet.",
    ));

  it("names both of more than two variants", () => {
    const [a, b, c] = [variant("a", 0.12, 0.14), variant("b", 0.115, 0.135), variant("c", 0.09, 0.11)];
    expect(words(a, b, c)).toBe("`a` gets more subscribers than `c`: 12.0 to 14.0 % instead of 9.0 to 11.0 %.");
    const unsure = variant("a", 0.05, 0.25);
    expect(words(unsure, b, c)).toBe("`b` gets more subscribers than `c`: 11.5 to 13.5 % instead of 9.0 to 11.0 %.");
  });

  it("leaves out visitors without a variant", () => {
    expect(words(SHORT, { ...LONG, value: null })).toBeUndefined();
    expect(words(SHORT, { ...ZERO, value: "new" })).toBeUndefined();
    expect(comparedVariants(funnel([SHORT, LONG], "page"))).toEqual([]);
  });
});

describe("the query", () => {
  it("is the last 30 days by variant", () =>
    expect(funnelQuery({}, NOW)).toEqual({ since: "2026-10-31", until: "2026-11-29", by: "variant" }));

  it("is that of the URL, if valid", () => {
    expect(funnelQuery({ by: "page", since: "2026-11-20", until: "2026-11-01" }, NOW)).toEqual({
      since: "2026-11-01",
      until: "2026-11-20",
      by: "page",
    });
    expect(funnelQuery({ by: "user", since: "0002-11-01", until: "2026-11-31x" }, NOW)).toEqual(funnelQuery({}, NOW));
  });
});

it("names groups by their property", () => {
  const names: [PromptFunnel["by"], string | null][] = [
    ["variant", "short"],
    ["variant", null],
    ["page", "/cart"],
    ["page", null],
    ["layout", "bar"],
    ["layout", "preferences"],
    ["browser", "firefox"],
    ["browser", null],
    ["day", "2026-11-01"],
  ];
  expect(names.map(([by, value]) => groupName(by, value))).toEqual([
    "short",
    "No variant",
    "/cart",
    "Other pages",
    "Bar at the bottom",
    "Preferences",
    "Firefox",
    "Unknown",
    "1 Nov",
  ]);
});

it("is bare without any step", () =>
  expect([[], [ZERO], [{ ...ZERO, guided: 1 }]].map((groups) => isBare(funnel(groups)))).toEqual([true, true, false]));

it("exports a row per group", () => {
  const [head, row, empty] = csvOf(funnelRows(funnel([SHORT, { ...ZERO, value: null }]))).split("\r\n");
  expect(head).toBe(
    "since,until,variant,shown,guided,accepted,later,no,asked,granted,denied,dismissed,due_7_days,kept_7_days,due_30_days,kept_30_days,granted_share.low,granted_share.value,granted_share.high",
  );
  expect(row).toBe(
    '"2026-10-31","2026-11-29","short",4000,210,1000,1500,1400,900,516,260,124,400,380,0,0,0.118,0.129,0.141',
  );
  expect(empty).toBe('"2026-10-31","2026-11-29",,0,0,0,0,0,0,0,0,0,0,0,0,0,,,');
});

describe("the page", () => {
  const settle = () => vi.advanceTimersByTimeAsync(100);

  beforeEach(() => {
    vi.useFakeTimers({ now: NOW });
    vi.spyOn(clock, "now").mockReturnValue(NOW);
    history.replaceState(null, "", "/admin/settings/prompt?app=shop");
    return () => {
      vi.useRealTimers();
      forgetFigures();
      render(null, document.body);
    };
  });

  /** The funnel on a server with these groups. */
  async function page(groups: PromptFunnelGroup[]) {
    const asked = vi
      .spyOn(load, "loadFunnel")
      .mockImplementation(async (_, { by }) => (by === "variant" ? funnel(groups) : funnel([ZERO], by)));
    render(h(LocationProvider, {}, h(OptInFunnel, { app: APP })), document.body);
    await settle();
    const texts = (table: number) =>
      [...document.querySelectorAll("table")[table]!.querySelectorAll("tbody tr")].map((row) =>
        [...row.children].map(({ textContent }) => textContent!.replace(/\s+/g, " ").trim()),
      );
    return { asked, texts };
  }

  it("shows steps with shares, and the comparison", async () => {
    const { texts } = await page([SHORT, LONG]);
    expect(document.querySelector("#funnel-verdict")?.textContent).toBe(
      "short gets more subscribers: 11.8 to 14.1 % instead of 8.9 to 10.9 %.",
    );
    expect([...document.querySelectorAll("th[scope=col]")].slice(0, 8).map(({ textContent }) => textContent)).toEqual([
      "Variant",
      "Shown",
      "Accepted",
      "Browser asked",
      "Subscribed",
      "After 7 days",
      "After 30 days",
      "Subscribed of shown",
    ]);
    expect(texts(0)[0]).toEqual([
      "short",
      "4,000",
      "1,000 25 %",
      "900 90 %",
      "516 57 %",
      "380 95 % of 400",
      "0 none of 0",
      "12.9 % 11.8 to 14.1 %",
    ]);
    const widths = [...document.querySelectorAll<HTMLElement>("tbody .known")].map(({ style }) => style.width);
    expect([widths.slice(0, 2), widths[6]]).toEqual([["100%", "25%"], "50%"]);
    expect([...document.querySelectorAll(".intervals .name")].map(({ textContent }) => textContent)).toEqual([
      "short",
      "long",
    ]);
  });

  it("shows refusals and guides in their own table", async () => {
    const { texts } = await page([SHORT]);
    expect([...document.querySelectorAll("caption")].at(-1)?.textContent).toBe("Refusals and guides");
    expect(texts(1)).toEqual([["short", "1,500", "1,400", "260", "124", "210"]]);
  });

  it("has no share above 100 %", async () => {
    const { texts } = await page([{ ...SHORT, asked: 300 }]);
    expect(texts(0)[0]?.slice(3, 5)).toEqual(["300 30 %", "516"]);
  });

  it("keeps split and days in the URL", async () => {
    const { asked } = await page([SHORT]);
    const choose = async (id: string, value: string) => {
      const field = document.querySelector<HTMLInputElement>(id)!;
      field.value = value;
      field.dispatchEvent(new Event("change", { bubbles: true }));
      await settle();
    };
    await choose("#funnel-by", "day");
    await choose("#funnel-since", "2026-11-10");
    expect(location.search).toBe("?app=shop&by=day&since=2026-11-10");
    expect(asked.mock.lastCall?.[1]).toEqual({ since: "2026-11-10", until: "2026-11-29", by: "day" });
    expect(document.querySelector(".empty")?.textContent).toContain("Figures appear when a page of yours shows");
  });

  it("saves the groups as CSV", async () => {
    const saved = vi.spyOn(file, "save").mockImplementation(() => {});
    await page([SHORT, LONG]);
    document.querySelector<HTMLButtonElement>("[data-export=csv]")?.click();
    await settle();
    expect(saved.mock.lastCall).toEqual([
      "shop-opt-in-variant.csv",
      csvOf(funnelRows(funnel([SHORT, LONG]))),
      "text/csv",
    ]);
  });
});
