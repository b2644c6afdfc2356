import "./export.css";
import { useState } from "preact/hooks";
import {
  collect,
  FORMATS,
  FORMAT_WORDS,
  MEDIA_TYPES,
  PAGE_MAX,
  ROWS_MAX,
  textOf,
  type Format,
  type ExportPage,
} from "../lib/export";
import { count, things } from "../lib/format";
import { useAction } from "./action";
import { save } from "./save";
import { Refused } from "./shown";

interface Props {
  /** Name of the file without its ending. */
  name: string;
  /** Page of the list with the current filters. */
  page: (after: string | undefined, limit: number, stop: AbortSignal) => Promise<ExportPage>;
  /** URL of an export by the server, without a limit. */
  url?: ((format: Format) => string) | undefined;
}

/** A list without pages. */
export const whole = (rows: readonly object[] | undefined) => async (): Promise<ExportPage> => ({
  rows: rows ?? [],
  next: undefined,
});

/** Button that saves the rows of a list with its filters, up to a limit. */
export function Export({ name, page, url }: Props) {
  const [state, setState] = useState("");
  const { run, isBusy, problem } = useAction(async (format: Format) => {
    const { rows, isCut } = await collect(
      (after) => page(after, PAGE_MAX, new AbortController().signal),
      (n) => setState(`${count(n)}…`),
    );
    save(`${name}.${format}`, textOf(format, rows), MEDIA_TYPES[format]);
    setState(
      isCut
        ? `The file has the first ${things(rows.length, "row")}: the limit is ${count(ROWS_MAX)}. Use filters to export other rows.`
        : `${things(rows.length, "row")} exported.`,
    );
  });
  return (
    <details
      class="menu export"
      onKeyDown={(event) => event.key === "Escape" && event.currentTarget.removeAttribute("open")}
    >
      <summary>Export</summary>
      <div class="menu-body">
        <p class="row">
          {FORMATS.map((format) =>
            url ? (
              <a key={format} data-export={format} href={url(format)} download={`${name}.${format}`}>
                {FORMAT_WORDS[format]}
              </a>
            ) : (
              <button key={format} type="button" data-export={format} disabled={isBusy} onClick={() => run(format)}>
                {FORMAT_WORDS[format]}
              </button>
            ),
          )}
        </p>
        <p class="fine" role="status">
          {state || `Saves the rows that match the filters${url ? "" : `, up to ${count(ROWS_MAX)}`}.`}
        </p>
        <Refused problem={problem} />
      </div>
    </details>
  );
}
