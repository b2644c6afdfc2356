import { count } from "../lib/format";
import type { Layer } from "./chart";
import { Export, whole } from "./export";
import { Table } from "./table";

interface Props {
  caption: string;
  /** Name of the exported file. */
  file: string;
  /** Head of the first column. */
  head: string;
  /** Start of each step, in seconds since 1970. */
  at: readonly number[];
  layers: readonly Layer[];
  label: (start: Date) => string;
}

/** Figures of a chart as a table, and as a file. */
export function ChartTable({ caption, file, head, at, layers, label }: Props) {
  const rows = at.map((start, n) => ({ start, n }));
  const shown = rows.filter(({ n }) => layers.some(({ values }) => (values[n] ?? 0) > 0));
  const exported = rows.map(({ start, n }) => ({
    start: new Date(start * 1_000).toISOString(),
    ...Object.fromEntries(layers.map(({ word, values }) => [word.toLowerCase().replace(/\W+/g, "_"), values[n] ?? 0])),
  }));
  return (
    <div class="chart-table">
      <details>
        <summary>As a table</summary>
        <Table
          caption={caption}
          rows={shown}
          id={({ start }) => start}
          columns={[
            { head, cell: ({ start }) => label(new Date(start * 1_000)) },
            ...layers.map(({ word, values }) => ({
              head: word,
              isNumber: true,
              cell: ({ n }: { n: number }) => count(values[n] ?? 0),
            })),
          ]}
        />
      </details>
      <Export name={file} page={whole(exported)} />
    </div>
  );
}
