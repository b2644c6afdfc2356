import type { ComponentChildren } from "preact";

export interface Column<T> {
  head: ComponentChildren;
  cell: (row: T) => ComponentChildren;
  /** Numbers stand at the right. */
  isNumber?: boolean;
  /** Left out where there is no room. */
  isExtra?: boolean;
}

interface Props<T> {
  /** Caption for screen readers. */
  caption: string;
  isCaptionShown?: boolean;
  columns: readonly Column<T>[];
  rows: readonly T[];
  id: (row: T) => string | number;
  /** Class of a row. */
  look?: (row: T) => string;
}

/** A table whose rows `j` and `k` walk through: the first link of each is what `Enter` opens. */
export function Table<T>({ caption, isCaptionShown = false, columns, rows, id, look: rowLook }: Props<T>) {
  const look = ({ isNumber, isExtra }: Column<T>) => `${isNumber ? "right " : ""}${isExtra ? "extra" : ""}`;
  return (
    <div class="scroll" role="group" aria-label={caption} tabIndex={0}>
      <table>
        <caption class={isCaptionShown ? "" : "hidden"}>{caption}</caption>
        <thead>
          <tr>
            {columns.map((column, n) => (
              <th key={n} scope="col" class={look(column)}>
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)} class={rowLook?.(row)} data-row>
              {columns.map((column, n) => (
                <td
                  key={n}
                  class={look(column)}
                  data-head={column.isNumber && typeof column.head === "string" ? column.head : undefined}
                >
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
