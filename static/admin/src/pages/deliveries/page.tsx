import type { AppResponse, FoundDelivery, FoundDeliveries, SubscriptionResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { DELIVERY_STATES, isId, lastWords, shortId, SPANS, spanWords, stateWords, TIERS } from "../../lib/deliveries";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { gatewayName } from "../../lib/words";
import { Badge } from "../../ui/badge";
import { Head } from "../../ui/card";
import { SearchField, written } from "../../ui/filters";
import { Export } from "../../ui/export";
import { Time } from "../../ui/numbers";
import { OneLine } from "../../ui/one-line";
import { OfApp } from "../../shell/of-app";
import { Select } from "../../ui/select";
import { Shown } from "../../ui/shown";
import { Table, type Column } from "../../ui/table";
import { loadDevices, loadFound, loadLanes } from "./load";
import "./deliveries.css";

/** Search for deliveries by person and message. */
export default function Deliveries() {
  return (
    <>
      <Head
        title="Deliveries"
        lead="A delivery is one message to one device. Search by person or message to see its state and the reason."
      />
      <OfApp what="Each delivery belongs to an app.">{(app) => <OfOneApp key={app.id} app={app} />}</OfApp>
    </>
  );
}

function OfOneApp({ app }: { app: AppResponse }) {
  const { filters } = useFilters();
  const isWrong = filters.message && !isId(filters.message, "msg_");
  return (
    <>
      <Search />
      {(filters.who || filters.message) && <Narrow app={app} />}
      {isWrong ? (
        <p class="refused">
          <code>{filters.message}</code> is not a message id: these begin with <code>msg_</code>. The response to the
          send request contains it, and <code>bellwire message list</code> shows the latest.
        </p>
      ) : filters.who && filters.message ? (
        <ByDevice app={app} who={filters.who} />
      ) : filters.who || filters.message ? (
        <Results app={app} />
      ) : (
        <Begin />
      )}
    </>
  );
}

function Search() {
  const { filters, change } = useFilters();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    change({ ...written(event.currentTarget as HTMLFormElement), after: undefined });
  };
  return (
    <form class="card finder" onSubmit={submit} aria-label="Find deliveries">
      <SearchField label="Person" name="who" value={filters.who} hint="User id, or sub_…" />
      <SearchField label="Message" name="message" value={filters.message} hint="msg_… (optional)" />
      <button type="submit" class="primary" id="find">
        Find
      </button>
    </form>
  );
}

function Begin() {
  return (
    <div class="empty">
      <p>
        Enter a person: the user id of your site, or the id of a subscription. With a message id as well, the result
        shows this message on each device of the person. A message id alone shows all deliveries of the message.
      </p>
    </div>
  );
}

/** Filters of the list; a time range only for a walk through messages. */
function Narrow({ app }: { app: AppResponse }) {
  const { filters, change } = useFilters();
  const lanes = useResource(`lanes to choose ${app.id}`, (stop) => loadLanes(app.id, stop), { everyS: 300 });
  if (filters.who && filters.message) return null;
  const set = (changes: Record<string, string>) => change({ ...changes, after: undefined });
  return (
    <div class="filters" role="group" aria-label="Filters">
      <Select
        label="State"
        value={filters.state}
        choices={DELIVERY_STATES.map((state) => [state, stateWords(state).word])}
        choose={(state) => set({ state })}
      />
      <Select
        label="Tier"
        value={filters.tier}
        choices={TIERS.map((tier) => [tier, tier])}
        choose={(tier) => set({ tier })}
      />
      <Select
        label="Push service"
        value={filters.lane}
        choices={(lanes.known.value?.value ?? []).map(({ lane, gateway }) => [String(lane), gatewayName(gateway)])}
        choose={(lane) => set({ lane })}
      />
      {!filters.message && (
        <>
          <Select
            label="Sent"
            value={filters.within}
            choices={SPANS.map((seconds) => [String(seconds), spanWords(seconds)])}
            choose={(within) => set({ within })}
          />
          <label>
            Up to{" "}
            <input
              type="date"
              value={filters.day ?? ""}
              onChange={(event) => set({ day: event.currentTarget.value })}
            />
          </label>
        </>
      )}
    </div>
  );
}

const keyOf = (filters: object) => JSON.stringify(filters);

function Results({ app }: { app: AppResponse }) {
  const { filters } = useFilters();
  const page = useResource(`found ${app.id} ${keyOf(filters)}`, (stop) => loadFound(app.id, filters, stop), {
    on: ["message.progress", "message.done"],
  });
  return (
    <Shown
      of={page}
      what="deliveries"
      isEmpty={({ data, done }) => data.length === 0 && done}
      empty={
        filters.after ? (
          <p>No more deliveries.</p>
        ) : (
          <p>No delivery matches. Enter a person and a message to see why the person got no delivery.</p>
        )
      }
    >
      {(page) => (
        <>
          <Export
            name={`${app.slug}-deliveries`}
            page={async (after, limit, stop) => {
              const { data, iterator } = await loadFound(app.id, { ...filters, after }, stop, limit);
              return { rows: data, next: iterator };
            }}
          />
          {page.data.length > 0 ? <FoundTable app={app} found={page.data} /> : <p>No match in the searched part.</p>}
          <Further page={page} />
        </>
      )}
    </Shown>
  );
}

/** Position of the search, with a link to continue. */
function Further({ page }: { page: FoundDeliveries }) {
  const { filters, link } = useFilters();
  return (
    <p class="row">
      {page.looked_back_to && !filters.message && (
        <span class="fine">
          Searched back to <Time at={page.looked_back_to} absolute />.
        </span>
      )}
      {filters.after && <a href={link("/deliveries", { ...filters, after: undefined })}>Newest</a>}
      {page.prev_iterator && <a href={link("/deliveries", { ...filters, after: page.prev_iterator })}>Newer</a>}
      {page.iterator && (
        <a id="further" href={link("/deliveries", { ...filters, after: page.iterator })}>
          Search older deliveries
        </a>
      )}
    </p>
  );
}

const addressOf = (app: AppResponse, message: string, subscription: string) =>
  `/deliveries/${app.slug}/${message}/${subscription}`;

function FoundTable({ app, found }: { app: AppResponse; found: FoundDelivery[] }) {
  const { filters, link } = useFilters();
  const personColumn: Column<FoundDelivery> = {
    head: "Person",
    isExtra: true,
    cell: ({ user_id }) =>
      user_id ? (
        <a href={link(`/subscribers/${app.slug}/users/${encodeURIComponent(user_id)}`)}>{user_id}</a>
      ) : (
        <span class="soft">anonymous</span>
      ),
  };
  return (
    <Table
      caption="Deliveries"
      rows={found}
      id={({ message, subscription }) => `${message} ${subscription}`}
      columns={[
        {
          head: "Sent",
          cell: ({ message, title, subscription, accepted_at }) => (
            <>
              <a class="keep" href={link(addressOf(app, message, subscription))}>
                <Time at={accepted_at} absolute />
              </a>
              <br />
              <span class="fine">{title ?? <span class="keep">{shortId(message)}</span>}</span>
            </>
          ),
        },
        { head: "State", cell: (row) => <Standing found={row} /> },
        { head: "Tier", isExtra: true, cell: ({ tier }) => tier },
        {
          head: "Device",
          cell: ({ subscription, gateway, lane }) => (
            <>
              {gateway ? gatewayName(gateway) : "Deleted"}
              <br />
              <span class="fine keep">{lane == null ? shortId(subscription) : `lane ${lane}`}</span>
            </>
          ),
        },
        // A user in the search need not be repeated in each row.
        ...(filters.message ? [personColumn] : []),
        {
          head: "Attempts",
          isNumber: true,
          isExtra: true,
          cell: ({ last_attempt }) => (last_attempt ? last_attempt.attempt + 1 : 0),
        },
        {
          head: "Last",
          isExtra: true,
          cell: ({ last_attempt }) => <span class="keep">{last_attempt ? <Time at={last_attempt.at} /> : "–"}</span>,
        },
      ]}
    />
  );
}

function Standing({ found }: { found: FoundDelivery }) {
  const { word, tone } = stateWords(found.state);
  return (
    <>
      <Badge tone={tone}>{word}</Badge>
      <div class="fine">
        <OneLine text={lastWords(found, clock.shown.value, zone.value)} />
      </div>
    </>
  );
}

/** Deliveries of one message to each device of a person, including devices without one. */
function ByDevice({ app, who }: { app: AppResponse; who: string }) {
  const { filters, link } = useFilters();
  const message = filters.message ?? "";
  const both = useResource(
    `by device ${app.id} ${who} ${message}`,
    async (stop) => {
      const [devices, page] = await Promise.all([
        loadDevices(app.id, who, stop),
        loadFound(app.id, { who, message }, stop),
      ]);
      return devices.map((device) => ({
        device,
        found: page.data.find(({ subscription }) => subscription === device.id),
      }));
    },
    { on: ["message.progress", "message.done"] },
  );
  return (
    <Shown
      of={both}
      what="this person’s devices"
      isEmpty={(devices) => devices.length === 0}
      empty={
        <p>
          No subscription has the id or user id <code>{who}</code>. Users who never allowed notifications, or whose
          subscriptions were deleted, cannot be reached.
        </p>
      }
    >
      {(devices) => (
        <Table
          caption="By device"
          rows={devices}
          id={({ device }: { device: SubscriptionResponse }) => device.id}
          columns={[
            {
              head: "Device",
              cell: ({ device }) => (
                <>
                  <a href={link(addressOf(app, message, device.id))}>{gatewayName(device.gateway)}</a>
                  <br />
                  <span class="fine keep">{shortId(device.id)}</span>
                </>
              ),
            },
            {
              head: "Delivery",
              cell: ({ found }) =>
                found ? (
                  <Standing found={found} />
                ) : (
                  <>
                    <Badge tone="cancelled">{stateWords("none").word}</Badge>
                    <br />
                    <span class="fine">open to see the reason</span>
                  </>
                ),
            },
            { head: "Device state", isExtra: true, cell: ({ device }) => device.state },
            { head: "Last seen", isExtra: true, cell: ({ device }) => <Time at={device.last_seen} /> },
          ]}
        />
      )}
    </Shown>
  );
}
