import { describe, expect, it, vi } from "vitest";
import { collect, csvOf, ndjsonOf, ROWS_MAX, textOf } from "../src/lib/export";

describe("an export", () => {
  const rows = [
    { id: "msg_1", links: {}, to: { topic: "news" }, n: 1_200, done: true },
    { id: '=HYPERLINK("x")', note: 'say "hi", all', to: null },
  ];

  it("is a table for spreadsheets", () => {
    expect(csvOf(rows)).toBe(
      'id,to.topic,n,done,note,to\r\n"msg_1","news",1200,true,,\r\n"\'=HYPERLINK(""x"")",,,,"say ""hi"", all",\r\n',
    );
    expect(csvOf([{ attributes: { "=a,b": "x" } }])).toBe('"attributes.=a,b"\r\n"x"\r\n');
    expect(csvOf([{ "=a,b": "x" }])).toBe('"\'=a,b"\r\n"x"\r\n');
    expect(csvOf([])).toBe("\r\n");
  });

  it("is lines of JSON", () => {
    expect(
      ndjsonOf(rows)
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line)),
    ).toEqual(rows);
    expect([textOf("csv", rows), textOf("ndjson", rows)]).toEqual([csvOf(rows), ndjsonOf(rows)]);
  });

  it("has the rows of all pages", async () => {
    const pages: Record<string, { rows: object[]; next: string | null }> = {
      "": { rows: [{ n: 1 }], next: "a" },
      a: { rows: [], next: "b" },
      b: { rows: [{ n: 2 }], next: null },
    };
    const report = vi.fn();
    expect(await collect(async (after) => pages[after ?? ""]!, report)).toEqual({
      rows: [{ n: 1 }, { n: 2 }],
      isCut: false,
    });
    expect(report.mock.calls).toEqual([[1], [1], [2]]);
  });

  it("ends at its limit", async () => {
    const page = vi.fn(async () => ({ rows: Array.from({ length: 3_000 }, (_, n) => ({ n })), next: "more" }));
    const { rows, isCut } = await collect(page, () => {});
    expect([rows.length, isCut, page.mock.calls.length]).toEqual([ROWS_MAX, true, 4]);
    expect(
      (
        await collect(
          async () => ({ rows: [], next: "more" }),
          () => {},
        )
      ).isCut,
    ).toBe(true);
  });
});
