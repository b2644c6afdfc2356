import { useEffect, useState } from "preact/hooks";
import type { AppResponse, Import } from "../../api/types";
import { count, things } from "../../lib/format";
import {
  FORMAT_WORDS,
  FORMATS,
  formatOf,
  importWords,
  isMappable,
  mapOf,
  MEANINGS,
  type Format,
  type Mapping,
} from "../../lib/transfers";
import { useMay } from "../../shell/context";
import { Card } from "../../ui/card";
import { Ask } from "../../ui/form";
import { Refused } from "../../ui/shown";
import "../composer/composer.css";
import { Choice } from "../composer/fields";
import { begin, isSending, upload, type Upload } from "./load";
import { Report } from "./report";

/** Encodings of files that spreadsheets write. The server recognises the first itself. */
const ENCODINGS = [
  ["", "UTF-8 or UTF-16"],
  ["windows-1252", "Windows, Western Europe"],
  ["windows-1250", "Windows, Central Europe"],
  ["windows-1251", "Windows, Cyrillic"],
  ["macintosh", "Mac OS Roman"],
  ["shift_jis", "Shift JIS"],
  ["gb18030", "GB 18030"],
] as const;

interface Props {
  app: AppResponse;
  /** Import that the file may resume. */
  open: string | undefined;
  onDone: () => unknown;
}

/** Import of a file: a dry run first, then the import after a confirmation. */
export function BringIn({ app, open, onDone }: Props) {
  const operator = useMay("operator", app.id);
  const last = upload.value?.way.app === app.id ? upload.value : undefined;
  const isOver = last && !isSending(last);
  useEffect(() => {
    if (isOver) void onDone();
  }, [isOver]);
  return (
    <Card title="Import subscriptions">
      <p class="fine">
        NDJSON, CSV or a JSON array of any length, as exported by other senders. Unsubscribed browsers stay
        unsubscribed. Import their VAPID key first: subscriptions do not work without it.
      </p>
      {!operator.may ? (
        <p class="fine">Your role does not allow imports. {operator.why}</p>
      ) : (
        <Begin app={app} open={open} last={last} />
      )}
    </Card>
  );
}

function Begin({ app, open, last }: { app: AppResponse; open: string | undefined; last: Upload | undefined }) {
  const [file, setFile] = useState<File | undefined>(last?.way.file);
  const [format, setFormat] = useState<Format | undefined>(last?.way.format);
  const [mapping, setMapping] = useState<Mapping>({});
  const [charset, setCharset] = useState<string | undefined>(last?.way.charset);
  const [restorePruned, setRestore] = useState(last?.way.restorePruned ?? false);
  const [isAsked, ask] = useState(false);
  const isBusy = last !== undefined && isSending(last);
  const map = mapOf(mapping);
  const choose = (chosen: File | undefined) => {
    setFile(chosen);
    setFormat(chosen && (formatOf(chosen.name) ?? format));
  };
  const tried =
    last?.done?.dry_run &&
    last.way.file === file &&
    last.way.format === format &&
    last.way.map === map &&
    last.way.charset === charset &&
    last.way.restorePruned === restorePruned
      ? last.done
      : undefined;
  const send = (dryRun: boolean, id?: string) =>
    file &&
    format &&
    void begin({ app: app.id, file, format, dryRun, restorePruned, map, charset, ...(id ? { id } : {}) });
  const ignored = last?.done?.ignored ?? [];
  return (
    <>
      <div class="form labelled">
        <div class="field">
          <label for="import-file">File</label>
          <input
            id="import-file"
            name="file"
            type="file"
            accept=".ndjson,.jsonl,.csv,.tsv,.txt,.json"
            disabled={isBusy}
            onChange={(event) => choose(event.currentTarget.files?.[0])}
          />
        </div>
        {file && (
          <Choice
            label="Format"
            name="format"
            value={format ?? ""}
            choices={[["", "Choose one"], ...FORMATS.map((format) => [format, FORMAT_WORDS[format]] as const)]}
            choose={(format) => setFormat((format || undefined) as Format | undefined)}
          />
        )}
        {file && (
          <Choice
            label="Encoding"
            name="charset"
            value={charset ?? ""}
            choices={ENCODINGS}
            choose={(charset) => setCharset(charset || undefined)}
          />
        )}
        <label class="check">
          <input
            id="restore-pruned"
            type="checkbox"
            checked={restorePruned}
            disabled={isBusy}
            onChange={(event) => setRestore(event.currentTarget.checked)}
          />{" "}
          <span>Restore subscriptions that their push service reported as gone</span>
        </label>
        <Columns
          columns={[...new Set([...Object.keys(mapping), ...ignored])].filter(isMappable)}
          mapping={mapping}
          change={setMapping}
        />
      </div>
      {last && <Progress last={last} goOn={(id) => void begin({ ...last.way, id })} />}
      {!isBusy && (
        <p class="row">
          <button
            type="button"
            id="try-import"
            class={tried ? "" : "primary"}
            disabled={!file || !format}
            onClick={() => send(true)}
          >
            {tried ? "Repeat the dry run" : "Dry run"}
          </button>
          <button
            type="button"
            id="take-in"
            class={tried ? "primary" : ""}
            disabled={!tried || tried.added + tried.known === 0}
            onClick={() => ask(true)}
          >
            Import…
          </button>
          {open && (
            <button type="button" id="go-on-file" disabled={!file || !format} onClick={() => send(false, open)}>
              Resume the import above
            </button>
          )}
          <span class="fine">{tried ? "" : "A dry run stores nothing except the report."}</span>
        </p>
      )}
      {isAsked && tried && <TakeIn tried={tried} work={() => send(false)} onClose={() => ask(false)} />}
    </>
  );
}

function TakeIn({ tried, work, onClose }: { tried: Import; work: () => unknown; onClose: () => void }) {
  return (
    <Ask
      title="Import this file?"
      says={
        <span id="consequence">
          {importWords(tried)} New subscriptions get future messages; known subscriptions are updated from the file.
          Subscribers get no notification about it.
        </span>
      }
      button={`Import ${things(tried.added + tried.known, "subscription")}`}
      work={async () => {
        work();
        onClose();
      }}
      onClose={onClose}
    />
  );
}

/** Mapping of unknown columns. */
function Columns({
  columns,
  mapping,
  change,
}: {
  columns: string[];
  mapping: Mapping;
  change: (mapping: Mapping) => void;
}) {
  if (columns.length === 0) return null;
  return (
    <fieldset class="columns">
      <legend>Unknown columns</legend>
      <div class="pair">
        {columns.map((column) => (
          <Choice
            key={column}
            label={column}
            name={`column-${column}`}
            value={mapping[column] ?? ""}
            choices={[["", "Ignore"], ...MEANINGS, [`attributes.${column}`, "Attribute with this name"]]}
            choose={(meaning) => change({ ...mapping, [column]: meaning })}
          />
        ))}
      </div>
    </fieldset>
  );
}

/** Progress and result. */
function Progress({ last, goOn }: { last: Upload; goOn: (id: string) => void }) {
  const { way, progress, done, problem, stop } = last;
  if (done) {
    return (
      <div id="import-done" class="result" data-dry-run={done.dry_run}>
        <p role="status">
          <strong>{done.dry_run ? `Dry run: ${way.file.name}` : `Imported: ${way.file.name}`}</strong>
        </p>
        <Report of={done} />
      </div>
    );
  }
  if (problem) {
    return (
      <div id="import-broken" class="result">
        {progress ? (
          <p>Interrupted after at least {count(progress.lines)} lines, which are stored.</p>
        ) : (
          <p>The file was not imported.</p>
        )}
        {stop.signal.aborted ? <p>You stopped it.</p> : <Refused problem={problem} />}
        {progress && (
          <p>
            <button type="button" id="go-on" class="primary" onClick={() => goOn(progress.id)}>
              Resume
            </button>
          </p>
        )}
      </div>
    );
  }
  return (
    <p class="row" id="import-progress">
      <span role="status">
        {way.dryRun ? "Dry run of" : "Importing"} {way.file.name}:{" "}
        {progress ? `${count(progress.lines)} lines` : "started"}…
      </span>
      <button type="button" onClick={() => stop.abort()}>
        Stop
      </button>
      <span class="fine">You can use other pages meanwhile. Closing the admin page stops the import.</span>
    </p>
  );
}
