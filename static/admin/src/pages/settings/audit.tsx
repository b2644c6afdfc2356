import { actionWords, ACTIONS, actorWords, detailWords } from "../../lib/audit";
import { count } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { useHere, useMay } from "../../shell/context";
import { Card } from "../../ui/card";
import { Export } from "../../ui/export";
import { Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { ChooseApp } from "../../shell/choose-app";
import { loadAudit, loadTeam, type Entry } from "./load";

export function Audit() {
  const { app, apps } = useHere();
  const { filters } = useFilters();
  const operator = useMay("operator", null);
  if (operator.may) return <Log app={filters.app ? app?.id : undefined} />;
  if (!app) return <ChooseApp apps={apps} what={`Audit log of the server: ${operator.why}`} />;
  return <Log app={app.id} />;
}

const NAMES = ["actor", "action", "since", "until"] as const;

function Log({ app }: { app: string | undefined }) {
  const { session } = useHere();
  const { filters, change, link } = useFilters();
  const chosen = NAMES.map((name) => filters[name] ?? "").join(" ");
  const page = useResource(`audit ${app ?? "all"} ${chosen} ${filters.after ?? ""}`, (stop) =>
    loadAudit(app, filters, stop),
  );
  const team = useResource(
    `team names ${session.may_change_team}`,
    async (stop) => (session.may_change_team ? await loadTeam(stop) : []),
    { everyS: 600 },
  );
  const names = new Map(team.known.value?.value.map(({ id, email }) => [id, email]));
  const choose = (name: (typeof NAMES)[number]) => (event: { currentTarget: { value: string } }) =>
    change({ [name]: event.currentTarget.value || undefined, after: undefined });
  const isFiltered = NAMES.some((name) => filters[name]);
  return (
    <Card
      title={app ? "Audit log of this app" : "Audit log of this server"}
      aside={
        <Export
          name="audit-log"
          page={async (after, limit, stop) => {
            const { entries, next } = await loadAudit(app, { ...filters, after }, stop, limit);
            return { rows: entries, next };
          }}
        />
      }
    >
      <div class="filters" role="group" aria-label="Filters">
        <label>
          User{" "}
          <select value={filters.actor ?? ""} onChange={choose("actor")}>
            <option value="">Any</option>
            {[...names].map(([id, email]) => (
              <option key={id} value={id}>
                {email}
              </option>
            ))}
            {filters.actor && !names.has(filters.actor) && !["local", "nobody"].includes(filters.actor) && (
              <option value={filters.actor}>{actorWords(filters.actor, session)}</option>
            )}
            <option value="local">The command line</option>
            <option value="nobody">Unknown caller</option>
          </select>
        </label>
        <label>
          Action{" "}
          <select value={filters.action ?? ""} onChange={choose("action")}>
            <option value="">Any</option>
            {Object.entries(ACTIONS).map(([action, words]) => (
              <option key={action} value={action}>
                {words}
              </option>
            ))}
          </select>
        </label>
        <label>
          From <input type="date" value={filters.since ?? ""} onChange={choose("since")} />
        </label>
        <label>
          To <input type="date" value={filters.until ?? ""} onChange={choose("until")} />
        </label>
      </div>
      <Shown
        of={page}
        what="the audit log"
        isEmpty={({ entries }) => entries.length === 0}
        empty={
          isFiltered ? (
            <p>
              No entry matches. <a href={link("/settings/audit")}>Show all</a>
            </p>
          ) : (
            <p>No entries yet. The log records each change with its author, and cannot be edited.</p>
          )
        }
      >
        {({ entries, next, previous }) => (
          <>
            <Entries entries={entries} names={names} isOfAll={app === undefined} />
            <p class="row">
              {filters.after && (
                <a
                  href={link("/settings/audit", { ...Object.fromEntries(NAMES.map((name) => [name, filters[name]])) })}
                >
                  Newest
                </a>
              )}
              {previous && <a href={link("/settings/audit", { ...filters, after: previous })}>Newer</a>}
              {next && <a href={link("/settings/audit", { ...filters, after: next })}>Older</a>}
              <span class="fine">Days are in UTC.</span>
            </p>
          </>
        )}
      </Shown>
    </Card>
  );
}

function Entries({
  entries,
  names,
  isOfAll,
}: {
  entries: Entry[];
  names: ReadonlyMap<string, string>;
  isOfAll: boolean;
}) {
  const { session, apps } = useHere();
  const { link, filters } = useFilters();
  const appName = (id: string | null | undefined) => (id ? (apps.find((app) => app.id === id)?.name ?? id) : "");
  return (
    <Table
      caption="Audit log"
      rows={entries}
      id={({ id }) => id}
      look={() => "stacked"}
      columns={[
        {
          head: "Time",
          cell: ({ at }) => (
            <span class="keep">
              <Time at={at} />
            </span>
          ),
        },
        {
          head: "User",
          cell: ({ actor, address }) => (
            <>
              <a href={link("/settings/audit", { ...filters, after: undefined, actor })} title={actor}>
                {actorWords(actor, session, names)}
              </a>
              {address && (
                <>
                  <br />
                  <span class="fine">{address}</span>
                </>
              )}
            </>
          ),
        },
        {
          head: "Action",
          cell: ({ action, app, n }) => (
            <>
              <span title={action}>{actionWords(action)}</span>
              {n !== 1 && <span class="fine"> × {count(n)}</span>}
              {isOfAll && app && (
                <>
                  <br />
                  <span class="fine">{appName(app)}</span>
                </>
              )}
            </>
          ),
        },
        { head: "Object", cell: ({ target }) => <Target of={target} names={names} /> },
        { head: "Details", cell: ({ detail }) => <span class="fine">{detailWords(detail)}</span> },
      ]}
    />
  );
}

function Target({ of, names }: { of: string; names: ReadonlyMap<string, string> }) {
  const name = names.get(of);
  const isId = /^[a-z]+_[0-9a-f-]{20,}$/.test(of);
  return (
    <span title={of} class="keep">
      {name ?? <code>{isId ? `${of.slice(0, of.indexOf("_") + 1)}…${of.slice(-6)}` : of}</code>}
    </span>
  );
}
