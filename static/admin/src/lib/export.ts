/** Rows of a list as CSV and NDJSON. Pure. */

export const FORMATS = ["csv", "ndjson"] as const;
export type Format = (typeof FORMATS)[number];
export const FORMAT_WORDS: Record<Format, string> = { csv: "CSV", ndjson: "NDJSON" };
export const MEDIA_TYPES: Record<Format, string> = { csv: "text/csv", ndjson: "application/x-ndjson" };

/** Rows of one export, and rows of one request. */
export const ROWS_MAX = 10_000;
export const PAGE_MAX = 250;
/** Requests of one export: a filtered list may have pages without rows. */
const REQUESTS_MAX = 200;

/** Cell of a table for spreadsheets: quoted, and never a formula. */
export const cell = (text: string): string =>
  `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replace(/"/g, '""')}"`;

const valueOf = (value: unknown): string => {
  if (value === null || value === undefined) return "";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  return cell(typeof value === "string" ? value : JSON.stringify(value));
};

/** A row without links, whose objects are columns such as `metrics.accepted`, as the server writes them. */
const flat = (row: object): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(row)
      .filter(([name]) => name !== "links")
      .flatMap(([name, value]): [string, unknown][] =>
        value !== null && typeof value === "object" && !Array.isArray(value)
          ? Object.entries(flat(value)).map(([of, inner]) => [`${name}.${of}`, inner])
          : [[name, value]],
      ),
  );

/** Name of a column. Names of attributes may hold anything. */
const head = (name: string): string => (/^[A-Za-z0-9_.]+$/.test(name) ? name : cell(name));

/** Members of all rows in the order of their first occurrence. Arrays are JSON. */
export function csvOf(all: readonly object[]): string {
  const rows = all.map(flat);
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const lines = rows.map((row) => names.map((name) => valueOf(row[name])).join(","));
  return [names.map(head).join(","), ...lines].map((line) => `${line}\r\n`).join("");
}

export const ndjsonOf = (rows: readonly object[]): string => rows.map((row) => `${JSON.stringify(row)}\n`).join("");

export const textOf = (format: Format, rows: readonly object[]): string =>
  format === "csv" ? csvOf(rows) : ndjsonOf(rows);

/** Page of a list, and the cursor of the next page. */
export interface ExportPage {
  rows: readonly object[];
  next: string | null | undefined;
}

/** All rows of a list, up to `ROWS_MAX`. `isCut`: the list has more rows. */
export async function collect(
  page: (after: string | undefined) => Promise<ExportPage>,
  report: (rows: number) => void,
): Promise<{ rows: object[]; isCut: boolean }> {
  const rows: object[] = [];
  let after: string | undefined;
  for (let n = 0; n < REQUESTS_MAX; n += 1) {
    const found = await page(after);
    rows.push(...found.rows);
    report(Math.min(rows.length, ROWS_MAX));
    if (rows.length > ROWS_MAX || (rows.length === ROWS_MAX && found.next))
      return { rows: rows.slice(0, ROWS_MAX), isCut: true };
    if (!found.next) return { rows, isCut: false };
    after = found.next;
  }
  return { rows, isCut: true };
}
