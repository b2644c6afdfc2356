import { useState } from "preact/hooks";
import type { AppResponse, DeadLetterResponse } from "../../api/types";
import { count } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { gatewayName, reasonWords } from "../../lib/words";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { Card, Head } from "../../ui/card";
import { Export } from "../../ui/export";
import { Count, Time } from "../../ui/numbers";
import { OneLine } from "../../ui/one-line";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Paging } from "../../ui/paging";
import { HandleDialog } from "./handle";
import { exportPath, loadErrors, loadKinds, loadLetters, NO_WORDS, type Handling, type Kind } from "./load";

/** List of failed deliveries, with actions. */
export default function DeadLetters() {
  const { app, apps } = useHere();
  return (
    <>
      <Head
        title="Failed deliveries"
        lead="Each failed delivery is kept as a dead letter, which you can replay or discard."
      >
        {app && <ExportLetters app={app} />}
      </Head>
      {app ? <OfApp app={app} /> : <ChooseApp apps={apps} what="Each failed delivery belongs to an app." />}
    </>
  );
}

/** Dead letters with the current filters. The server’s export has their content, so it requires the role admin. */
function ExportLetters({ app }: { app: AppResponse }) {
  const { filters } = useFilters();
  const admin = useMay("admin", app.id);
  return (
    <Export
      name={`${app.slug}-dead-letters`}
      url={admin.may ? (format) => exportPath(app.id, format, filters) : undefined}
      page={async (after, limit, stop) => {
        const { letters, next } = await loadLetters(app.id, { ...filters, after }, stop, limit);
        return { rows: letters, next };
      }}
    />
  );
}

function OfApp({ app }: { app: AppResponse }) {
  const { filters, link } = useFilters();
  // Outside of the list: when all are handled there is none, but the dialog has yet to say so.
  const [chosen, choose] = useState<Chosen>();
  // Changes with each replay and discard, so that all lists are read again.
  const [handled, setHandled] = useState(0);
  const { message } = filters;
  const kinds = useResource(`dead kinds ${app.id} ${message ?? ""}`, (stop) => loadKinds(app.id, message, stop), {
    on: ["dead_letter.created"],
  });
  return (
    <>
      <Shown
        of={kinds}
        what="dead letters"
        isEmpty={(kinds) => kinds.length === 0}
        empty={
          <p>
            No dead letter {message && "of this message "}is open. A delivery appears here when all retries have failed,
            or when a push service refuses it permanently.
          </p>
        }
      >
        {(found) => (
          <Kinds
            app={app}
            kinds={found.filter(({ reason }) => !filters.reason || reason === filters.reason)}
            choose={choose}
          />
        )}
      </Shown>
      {(filters.reason || message) && (
        <p class="row">
          {filters.reason && <a href={link("/dead-letters", { message })}>All reasons</a>}
          {filters.error && <a href={link("/dead-letters", { message, reason: filters.reason })}>All errors</a>}
          {message && <a href={link("/dead-letters", { reason: filters.reason })}>All messages</a>}
          {message && <a href={link(`/messages/${message}`)}>This message</a>}
        </p>
      )}
      {filters.reason && <Errors app={app} reason={filters.reason} handled={handled} choose={choose} />}
      {filters.reason && <Letters key={filters.reason} app={app} handled={handled} />}
      {chosen && (
        <HandleDialog
          app={app}
          handling={chosen.handling}
          kind={chosen.kind}
          error={chosen.error}
          message={message}
          onClose={() => choose(undefined)}
          onHandled={() => {
            setHandled((n) => n + 1);
            return kinds.refresh();
          }}
        />
      )}
    </>
  );
}

interface Chosen {
  handling: Handling;
  kind: Pick<Kind, "reason">;
  error?: string | undefined;
}

/** Errors that are shown; the others are in the list. */
const ERRORS_MAX = 20;

/** Letters of a reason, grouped by the words of the push service. */
function Errors({
  app,
  reason,
  handled,
  choose,
}: {
  app: AppResponse;
  reason: string;
  handled: number;
  choose: (chosen: Chosen) => void;
}) {
  const { filters, link } = useFilters();
  const sender = useMay("sender", app.id);
  const { message } = filters;
  const errors = useResource(
    `dead errors ${app.id} ${reason} ${message ?? ""} ${handled}`,
    (stop) => loadErrors(app.id, reason, message, stop),
    { on: ["dead_letter.created"] },
  );
  return (
    <Card title="By error">
      <Shown
        of={errors}
        what="the errors"
        isEmpty={(errors) => errors.length === 0}
        empty={<p>No open dead letters of this reason.</p>}
      >
        {(errors) => (
          <>
            <Table
              caption="Errors"
              rows={errors.slice(0, ERRORS_MAX)}
              id={({ key }) => key ?? NO_WORDS}
              look={({ key }) => `stacked linked ${(key ?? NO_WORDS) === filters.error ? "chosen" : ""}`}
              columns={[
                {
                  head: "Error",
                  cell: ({ key }) => (
                    <a
                      href={link("/dead-letters", { reason, message, error: key ?? NO_WORDS })}
                      aria-current={(key ?? NO_WORDS) === filters.error ? "true" : undefined}
                    >
                      {key ?? "No text"}
                    </a>
                  ),
                },
                { head: "Letters", isNumber: true, cell: ({ count }) => <Count n={count} /> },
                { head: "Latest", isExtra: true, cell: ({ newest }) => <Time at={newest} /> },
                {
                  head: <span class="hidden">Actions</span>,
                  cell: ({ key }) =>
                    sender.may && (
                      <span class="row">
                        {(["replay", "discard"] as const).map((handling) => (
                          <button
                            key={handling}
                            type="button"
                            class="plain"
                            onClick={() => choose({ handling, kind: { reason }, error: key ?? NO_WORDS })}
                          >
                            {handling === "replay" ? "Replay…" : "Discard…"}
                            <span class="hidden"> letters with the error “{key ?? "No text"}”</span>
                          </button>
                        ))}
                      </span>
                    ),
                },
              ]}
            />
            {errors.length > ERRORS_MAX && (
              <p class="fine">
                The {ERRORS_MAX} most frequent of {count(errors.length)} errors.
              </p>
            )}
          </>
        )}
      </Shown>
    </Card>
  );
}

function Kinds({ app, kinds, choose }: { app: AppResponse; kinds: Kind[]; choose: (chosen: Chosen) => void }) {
  const { filters, link } = useFilters();
  const sender = useMay("sender", app.id);
  if (kinds.length === 0) return <p>No open dead letters.</p>;
  return (
    <>
      <ul class="kinds">
        {kinds.map((kind) => {
          const { title, help } = reasonWords(kind.reason);
          return (
            <li key={kind.reason} class="card" data-row>
              <div>
                <h2>
                  <a href={link("/dead-letters", { reason: kind.reason, message: filters.message })}>{title}</a>
                </h2>
                <p class="fine">{help}</p>
                <p class="fine">
                  <code>{kind.reason}</code> · the latest <Time at={kind.newest} /> · {trend(kind)}
                </p>
              </div>
              <p class="large">
                <Count n={kind.open} />
              </p>
              {sender.may && (
                <div class="row">
                  <button type="button" data-do="replay" onClick={() => choose({ handling: "replay", kind })}>
                    Replay…
                  </button>
                  <button type="button" data-do="discard" onClick={() => choose({ handling: "discard", kind })}>
                    Discard…
                  </button>
                </div>
              )}
            </li>
          );
        })}
      </ul>
      {!sender.may && <p class="fine">Your role does not allow replaying or discarding dead letters. {sender.why}</p>}
    </>
  );
}

function trend({ lastDay, dayBefore }: Kind): string {
  if (lastDay === 0 && dayBefore === 0) return "none in two days";
  return `${count(lastDay)} in the last 24 hours, ${count(dayBefore)} in the 24 hours before`;
}

function Letters({ app, handled }: { app: AppResponse; handled: number }) {
  const { filters, link } = useFilters();
  const page = useResource(
    `letters ${app.id} ${filters.reason} ${filters.message ?? ""} ${filters.error ?? ""} ${filters.after ?? ""} ${handled}`,
    (stop) => loadLetters(app.id, filters, stop),
  );
  return (
    <Shown
      of={page}
      what="dead letters"
      isEmpty={({ letters }) => letters.length === 0}
      empty={<p>No more dead letters.</p>}
    >
      {(known) => (
        <>
          <LetterTable letters={known.letters} />
          <Paging
            after={filters.after}
            sides={known}
            to={(after) =>
              link("/dead-letters", { reason: filters.reason, message: filters.message, error: filters.error, after })
            }
          />
        </>
      )}
    </Shown>
  );
}

function LetterTable({ letters }: { letters: DeadLetterResponse[] }) {
  const { link } = useFilters();
  return (
    <Table
      caption="Failed deliveries"
      rows={letters}
      id={({ id }) => id}
      look={() => "linked"}
      columns={[
        {
          head: "Died",
          cell: ({ id, at }) => (
            <a href={link(`/dead-letters/${id}`)}>
              <Time at={at} />
            </a>
          ),
        },
        { head: "Push service", cell: ({ gateway }) => gatewayName(gateway) },
        {
          head: "Last error",
          cell: ({ status, detail }) => (
            <OneLine text={[status, detail].filter((word) => word != null).join(" ") || "none"} />
          ),
        },
        { head: "Retries", isNumber: true, isExtra: true, cell: ({ retries }) => <Count n={retries} /> },
        {
          head: "Message",
          isExtra: true,
          cell: ({ message, title }) => <a href={link(`/messages/${message}`)}>{title ?? short(message)}</a>,
        },
        {
          head: "Subscription",
          isExtra: true,
          cell: ({ subscription }) => <a href={link(`/subscribers/${subscription}`)}>{short(subscription)}</a>,
        },
      ]}
    />
  );
}

/** End of an id, which differs between neighbours; its beginning is the time. */
const short = (id: string) => `${id.slice(0, id.indexOf("_") + 1)}…${id.slice(-6)}`;
