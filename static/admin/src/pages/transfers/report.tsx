import type { Import, ImportFault, ImportSampleRow } from "../../api/types";
import { count, things } from "../../lib/format";
import { faultsCsv, importWords, untold } from "../../lib/transfers";
import { save } from "../../ui/save";
import { Table } from "../../ui/table";

/** Faults that are listed; the file has all that are kept. */
const SHOWN_MAX = 50;

/** Result of a file, with faults by line and field. */
export function Report({ of }: { of: Import }) {
  const faults = of.faults ?? [];
  const warnings = of.warnings ?? [];
  const more = untold(of.refused, faults);
  return (
    <>
      <p class="import-words">{importWords(of)}</p>
      {of.ignored.length > 0 && (
        <p>
          Unknown columns:{" "}
          {of.ignored.map((column, n) => (
            <span key={column}>
              {n > 0 && ", "}
              <code>{column}</code>
            </span>
          ))}
          . They are ignored.
        </p>
      )}
      <Sample rows={of.sample ?? []} />
      {warnings.length > 0 && <Faults caption="Ignored details; their lines are imported" faults={warnings} />}
      {faults.length > 0 && (
        <>
          <Faults caption="Invalid lines" faults={faults} />
          <p class="row">
            <button
              type="button"
              class="save-report"
              onClick={() => save(`${of.id}.csv`, faultsCsv(faults), "text/csv")}
            >
              Export the report
            </button>
            <span class="fine">
              {faults.length > SHOWN_MAX &&
                `The first ${SHOWN_MAX} of ${count(faults.length)} are shown; the report has all of them. `}
              {more > 0 && `The errors of ${things(more, "further line")} are not kept.`}
            </span>
          </p>
        </>
      )}
    </>
  );
}

function Faults({ caption, faults }: { caption: string; faults: readonly ImportFault[] }) {
  return (
    <Table
      caption={caption}
      rows={faults.slice(0, SHOWN_MAX)}
      id={({ line, field, reason }) => `${line} ${field} ${reason}`}
      columns={[
        { head: "Line", cell: ({ line }) => count(line) },
        { head: "Field", cell: ({ field }) => (field ? <code>{field}</code> : <span class="soft">whole line</span>) },
        { head: "Error", cell: ({ reason }) => reason },
      ]}
    />
  );
}

const OUTCOMES: Readonly<Record<string, string>> = {
  read: "would be imported",
  left_out: "skipped",
  refused: "invalid",
};

/** The first rows of a dry run, column by column. */
function Sample({ rows }: { rows: readonly ImportSampleRow[] }) {
  if (rows.length === 0) return null;
  return (
    <details open class="sample">
      <summary>The first {things(rows.length, "row")}, column by column</summary>
      {rows.map(({ line, outcome, cells }) => (
        <Table
          key={line}
          isCaptionShown
          caption={`Line ${count(line)}: ${OUTCOMES[outcome] ?? outcome}`}
          rows={cells.map((cell, n) => ({ ...cell, n }))}
          id={({ n }) => `${n}`}
          columns={[
            { head: "Column", cell: ({ column }) => <code>{column}</code> },
            {
              head: "Read as",
              cell: ({ field }) => (field ? <code>{field}</code> : <span class="soft">ignored</span>),
            },
            { head: "Value", cell: ({ value }) => value ?? <span class="soft">empty or not shown</span> },
          ]}
        />
      ))}
    </details>
  );
}
