import { describe, expect, it } from "vitest";
import type { Import } from "../src/api/types";
import {
  consentWords,
  EXPORT_STANDINGS,
  exportPath,
  faultsCsv,
  formatOf,
  importStanding,
  importWords,
  isMappable,
  mapOf,
  personPath,
  transfer,
  untold,
  type Wire,
} from "../src/lib/transfers";

const NOW = new Date("2027-01-15T08:00:00Z");
const one = (more: Partial<Import> = {}): Import => ({
  id: "imp_2",
  format: "csv",
  dry_run: false,
  lines: 10,
  added: 6,
  known: 1,
  left_out: 1,
  restore_pruned: false,
  restored: 0,
  pruned: 0,
  refused: 2,
  warned: 0,
  sample: [],
  ignored: [],
  faults: [],
  created_at: "2027-01-15T07:59:00Z",
  changed_at: "2027-01-15T07:59:50Z",
  finished_at: null,
  ...more,
});

describe("a file", () => {
  it("is known by its name, if that tells", () => {
    expect(["a.ndjson", "A.JSONL", "users.csv", "b.tsv", "c.json", "d.xlsx", "e"].map(formatOf)).toEqual([
      "ndjson",
      "ndjson",
      "csv",
      "csv",
      "json",
      undefined,
      undefined,
    ]);
  });

  it("has columns that mean what somebody says", () => {
    expect(mapOf({ abo: "endpoint", kunde: "user_id", rest: "" })).toBe("abo:endpoint,kunde:user_id");
    expect([mapOf({}), mapOf({ rest: "" })]).toEqual([undefined, undefined]);
    expect(["abo", "a:b", "a,b", " "].map(isMappable)).toEqual([true, true, false, false]);
  });
});

describe("an import", () => {
  it("stands where its file left it", () => {
    const word = (more: Partial<Import>) => importStanding(one(more), NOW).word;
    expect([
      word({}),
      word({ changed_at: "2027-01-15T07:58:00Z" }),
      word({ finished_at: NOW.toISOString() }),
      word({ finished_at: NOW.toISOString(), dry_run: true }),
    ]).toEqual(["Running", "Interrupted", "Done", "Dry run"]);
  });

  it("says what it came to, or would", () => {
    expect(importWords(one())).toBe(
      "10 lines were read: 6 subscriptions are new, one known already, one line skipped, no longer subscribed, 2 lines invalid.",
    );
    expect(importWords(one({ lines: 1, added: 1, known: 0, left_out: 0, refused: 0, dry_run: true }))).toBe(
      "1 line was read: one subscription would be new, none known already.",
    );
  });

  it("says how many are pruned or restored", () => {
    expect(importWords(one({ added: 0, known: 3, restored: 2, left_out: 4, pruned: 3, refused: 0 }))).toBe(
      "10 lines were read: no subscriptions are new, 3 known already, 2 of them active again, 4 lines skipped, no longer subscribed (3 reported gone by their push service).",
    );
  });

  it("has a formula-free report for programs", () => {
    const faults = [
      { line: 3, field: "endpoint", reason: 'must be "https"' },
      { line: 4, field: "=cmd()", reason: "a, b" },
    ];
    expect(faultsCsv(faults)).toBe('line,field,reason\r\n3,"endpoint","must be ""https"""\r\n4,"\'=cmd()","a, b"\r\n');
  });

  it("says of how many lines nothing is kept", () => {
    const many = Array.from({ length: 1_000 }, (_, n) => ({ line: n, field: "", reason: "x" }));
    expect([untold(5_000, many), untold(2, many.slice(0, 2))]).toEqual([4_000, 0]);
  });
});

describe("sending a file", () => {
  /** A wire on which the file ends with the third moment. */
  function wire(end: "done" | Error, earlier: string[] = ["imp_1"]) {
    let [moments, lines] = [0, 0];
    let over: { resolve: (done: Import) => void; reject: (why: unknown) => void } | undefined;
    const told: Import[] = [];
    const it: Wire = {
      list: async () => [...(moments > 1 ? ["imp_3", "imp_2"] : []), ...earlier].map((id) => ({ id })),
      show: async (id) => one({ id, lines: (lines += 1_000) }),
      send: () => new Promise((resolve, reject) => (over = { resolve, reject })),
      pause: async () => {
        moments += 1;
        if (moments === 4) end === "done" ? over?.resolve(one({ finished_at: NOW.toISOString() })) : over?.reject(end);
        await Promise.resolve();
      },
    };
    return { it, told, tell: (progress: Import) => void told.push(progress) };
  }

  it("shows progress once its import is known", async () => {
    const { it, told, tell } = wire("done");
    const done = await transfer(it, undefined, tell);
    expect(done.finished_at).not.toBeNull();
    expect(told.length).toBeGreaterThan(0);
    expect(new Set(told.map(({ id }) => id)).size).toBe(1);
    expect(told[0]?.id).not.toBe("imp_1");
  });

  it("resumes the given import", async () => {
    const { it, told, tell } = wire("done");
    await transfer(it, "imp_1", tell);
    expect(told[0]?.id).toBe("imp_1");
  });

  it("passes on the error and keeps the report", async () => {
    const broken = new TypeError("no answer");
    const { it, told, tell } = wire(broken);
    await expect(transfer(it, "imp_1", tell)).rejects.toBe(broken);
    expect(told.length).toBeGreaterThan(0);
  });

  it("does not mind when progress cannot be told", async () => {
    const { it, tell } = wire("done");
    const done = await transfer({ ...it, show: () => Promise.reject(new Error("busy")) }, "imp_1", tell);
    expect(done.id).toBe("imp_2");
  });
});

describe("what is taken out", () => {
  it("is complete or subscriptions only", () => {
    expect((["all", "ndjson", "csv"] as const).map((what) => exportPath("app_1", what))).toEqual([
      "/v1/apps/app_1/export",
      "/v1/apps/app_1/export?only=subscriptions",
      "/v1/apps/app_1/export?only=subscriptions&format=csv",
    ]);
    expect(personPath("app_1", "ann/../x?y")).toBe("/v1/apps/app_1/users/ann%2F..%2Fx%3Fy/export");
  });

  it("stands where its stream left it", () => {
    expect(Object.values(EXPORT_STANDINGS).map(({ word }) => word)).toEqual(["Running", "Complete", "Interrupted"]);
  });
});

it("shows time and place of consent if known", () => {
  const day = (at: string) => at.slice(0, 10);
  expect(
    [
      undefined,
      null,
      {},
      { source: "checkout" },
      { at: "2027-01-15T08:00:00Z" },
      { at: "2027-01-15T08:00:00Z", source: "checkout" },
    ].map((consent) => consentWords(consent, day)),
  ).toEqual([undefined, undefined, undefined, "checkout", "2027-01-15", "2027-01-15, checkout"]);
});
