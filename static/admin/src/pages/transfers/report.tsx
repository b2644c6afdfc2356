import type { Import } from "../../api/types";
import { fullCount, things } from "../../lib/format";
import { faultsCsv, importWords, untold } from "../../lib/transfers";
import { Table } from "../../ui/table";

/** Faults that are listed; the file has all that are kept. */
const SHOWN_MAX = 50;

/** What a file came to, with what was wrong by line and field. */
export function Report({ of }: { of: Import }) {
  const faults = of.faults ?? [];
  const more = untold(of.refused, faults);
  return (
    <>
      <p class="import-words">{importWords(of)}</p>
      {of.ignored.length > 0 && (
        <p>
          Columns that say nothing here:{" "}
          {of.ignored.map((column, n) => (
            <span key={column}>
              {n > 0 && ", "}
              <code>{column}</code>
            </span>
          ))}
          . What they say is passed over.
        </p>
      )}
      {faults.length > 0 && (
        <>
          <Table
            caption="What was wrong"
            rows={faults.slice(0, SHOWN_MAX)}
            id={({ line, field, reason }) => `${line} ${field} ${reason}`}
            columns={[
              { head: "Line", cell: ({ line }) => fullCount(line) },
              { head: "Field", cell: ({ field }) => (field ? <code>{field}</code> : <span class="soft">the line</span>) },
              { head: "What is wrong", cell: ({ reason }) => reason },
            ]}
          />
          <p class="row">
            <button type="button" class="save-report" onClick={() => save(`${of.id}.csv`, faultsCsv(faults))}>
              Save the report
            </button>
            <span class="fine">
              {faults.length > SHOWN_MAX && `The first ${SHOWN_MAX} of ${fullCount(faults.length)} are shown; the report has all of them. `}
              {more > 0 && `Of ${things(more, "further line")} it is not kept what was wrong.`}
            </span>
          </p>
        </>
      )}
    </>
  );
}

/** Hands a text to the browser to save. */
function save(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
