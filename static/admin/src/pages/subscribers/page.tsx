import { useMemo } from "preact/hooks";
import type { AppResponse, SubscriptionResponse } from "../../api/types";
import { isId, shortId } from "../../lib/deliveries";
import { dayOf, percent, things } from "../../lib/format";
import { daysOf, zoomOf } from "../../lib/range";
import { useResource } from "../../lib/resource";
import {
  health,
  isBare,
  LOSSES,
  LOSS_LOOKS,
  rangeOf,
  RANGES,
  SUBSCRIPTION_STATES,
  subscriptionWords,
  type Growth,
  type KeyAge,
  type Slice,
} from "../../lib/subscribers";
import { useFilters } from "../../lib/url";
import { GATEWAY_NAMES, gatewayName } from "../../lib/words";
import { Badge } from "../../ui/badge";
import { Card, Head } from "../../ui/card";
import { StackedBars, type Layer } from "../../ui/chart";
import { ChartTable } from "../../ui/chart-table";
import { useZoom, ZoomNote } from "../../ui/zoom";
import { SearchField, written } from "../../ui/filters";
import { Count, Time } from "../../ui/numbers";
import { Export, whole } from "../../ui/export";
import { useHere } from "../../shell/context";
import { OfApp } from "../../shell/of-app";
import { Select } from "../../ui/select";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Diagnosis } from "./diagnosis";
import { lastDays, loadGateways, loadGrowth, loadKeys, loadSubscriptions } from "./load";
import "./subscribers.css";

/** Growth and losses of the audience, and a search for people. */
export default function Subscribers() {
  const { app } = useHere();
  const { filters } = useFilters();
  return (
    <>
      <Head title="Subscribers" lead="A subscription is one browser that allowed notifications.">
        {app && (
          <Export
            name={`${app.slug}-subscriptions`}
            page={async (after, limit, stop) => {
              const { subscriptions, next } = await loadSubscriptions(app.id, { ...filters, after }, stop, limit);
              return { rows: subscriptions, next };
            }}
          />
        )}
      </Head>
      <OfApp what="Each subscriber belongs to an app.">{(app) => <OfOneApp key={app.id} app={app} />}</OfApp>
    </>
  );
}

function OfOneApp({ app }: { app: AppResponse }) {
  const { filters } = useFilters();
  const searches = filters.tag || filters.topic || filters.state || filters.gateway;
  return (
    <>
      <Search app={app} />
      {filters.diagnosis ? (
        <Diagnosis app={app} code={filters.diagnosis} />
      ) : searches ? (
        <List app={app} />
      ) : (
        <Base app={app} />
      )}
    </>
  );
}

function Search({ app }: { app: AppResponse }) {
  const { filters, go, change } = useFilters();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const { who, tag, topic, diagnosis } = written(event.currentTarget as HTMLFormElement);
    if (who)
      go(
        isId(who, "sub_")
          ? `/subscribers/${app.slug}/subscriptions/${who}`
          : `/subscribers/${app.slug}/users/${encodeURIComponent(who)}`,
      );
    else change({ tag, topic, diagnosis, after: undefined });
  };
  const set = (changes: Record<string, string>) => change({ ...changes, after: undefined });
  return (
    <form class="card finder people" onSubmit={submit} aria-label="Find subscribers">
      <SearchField label="Person" name="who" value={undefined} hint="User id, or sub_…" />
      <SearchField label="Tag" name="tag" value={filters.tag} hint="vip" />
      <SearchField label="Topic" name="topic" value={filters.topic} hint="news" />
      <SearchField label="Diagnosis code" name="diagnosis" value={filters.diagnosis} hint="8 digits and letters" />
      <button type="submit" class="primary" id="find">
        Find
      </button>
      <div class="filters wide" role="group" aria-label="Filters">
        <Select
          label="State"
          value={filters.state}
          choices={SUBSCRIPTION_STATES.map((state) => [state, subscriptionWords(state).word])}
          choose={(state) => set({ state })}
        />
        <Select
          label="Push service"
          value={filters.gateway}
          choices={GATEWAY_NAMES.map((name) => [name, gatewayName(name)])}
          choose={(gateway) => set({ gateway })}
        />
      </div>
    </form>
  );
}

function List({ app }: { app: AppResponse }) {
  const { filters, link } = useFilters();
  const page = useResource(
    `subscriptions ${app.id} ${JSON.stringify(filters)}`,
    (stop) => loadSubscriptions(app.id, filters, stop),
    { on: ["subscription.gone"] },
  );
  const { tag, topic, state, gateway } = filters;
  return (
    <Shown
      of={page}
      what="subscriptions"
      isEmpty={({ subscriptions, next }) => subscriptions.length === 0 && !next}
      empty={<p>{filters.after ? "No more subscriptions." : "No subscription matches."}</p>}
    >
      {({ subscriptions, next, previous }) => (
        <>
          {subscriptions.length > 0 ? (
            <SubscriptionTable app={app} subscriptions={subscriptions} />
          ) : (
            <p>None of the 20,000 latest subscriptions matches. There are older subscriptions.</p>
          )}
          <p class="row">
            <a href={link("/subscribers")}>All subscribers</a>
            {filters.after && <a href={link("/subscribers", { tag, topic, state, gateway })}>Newest</a>}
            {previous && <a href={link("/subscribers", { tag, topic, state, gateway, after: previous })}>Newer</a>}
            {next && <a href={link("/subscribers", { tag, topic, state, gateway, after: next })}>Older</a>}
          </p>
        </>
      )}
    </Shown>
  );
}

function SubscriptionTable({ app, subscriptions }: { app: AppResponse; subscriptions: SubscriptionResponse[] }) {
  const { link } = useFilters();
  const personOf = ({ id, user_id }: SubscriptionResponse) =>
    user_id
      ? `/subscribers/${app.slug}/users/${encodeURIComponent(user_id)}`
      : `/subscribers/${app.slug}/subscriptions/${id}`;
  return (
    <Table
      caption="Subscriptions"
      rows={subscriptions}
      id={({ id }) => id}
      columns={[
        {
          head: "Person",
          cell: (one) => (
            <>
              <a href={link(personOf(one))}>{one.user_id ?? "Anonymous"}</a>
              <br />
              <span class="fine keep">{shortId(one.id)}</span>
            </>
          ),
        },
        {
          head: "State",
          cell: ({ state }) => <Badge tone={subscriptionWords(state).tone}>{subscriptionWords(state).word}</Badge>,
        },
        { head: "Push service", cell: ({ gateway }) => gatewayName(gateway) },
        { head: "Tags and topics", isExtra: true, cell: ({ tags, topics }) => <Words words={[...tags, ...topics]} /> },
        { head: "Last seen", isExtra: true, cell: ({ last_seen }) => <Time at={last_seen} /> },
        { head: "Subscribed", isExtra: true, cell: ({ created_at }) => <Time at={created_at} absolute /> },
      ]}
    />
  );
}

const Words = ({ words }: { words: string[] }) =>
  words.length === 0 ? (
    <span class="soft">none</span>
  ) : (
    <>{words.slice(0, 4).join(", ") + (words.length > 4 ? ` and ${words.length - 4} more` : "")}</>
  );

/** The base as a whole. */
function Base({ app }: { app: AppResponse }) {
  const { filters, change } = useFilters();
  const zoom = zoomOf(filters.zoom);
  const days = zoom ? daysOf(zoom) : rangeOf(filters.days);
  const grown = useResource(
    `growth ${app.id} ${days} ${filters.zoom ?? ""}`,
    (stop) => loadGrowth(app.id, new Date(app.created_at), zoom ?? lastDays(days), stop),
    { on: ["subscription.gone"] },
  );
  const gateways = useResource(`base by gateway ${app.id} ${days} ${filters.zoom ?? ""}`, (stop) =>
    loadGateways(app.id, zoom ?? lastDays(days), stop),
  );
  const keys = useResource(`base by key ${app.id}`, (stop) => loadKeys(app.id, stop), { everyS: 300 });
  return (
    <>
      <div class="row">
        <div class="row" role="group" aria-label="Period">
          {RANGES.map((range) => (
            <button
              key={range}
              type="button"
              class={!zoom && range === days ? "primary" : ""}
              aria-pressed={!zoom && range === days}
              onClick={() => change({ zoom: undefined, days: range === 30 ? undefined : String(range) })}
            >
              {things(range, "day")}
            </button>
          ))}
        </div>
        <ZoomNote />
      </div>
      <Shown
        of={grown}
        what="the base"
        isEmpty={(grown) => isBare(grown, zoom !== undefined)}
        empty={<NoSubscribers app={app} days={days} />}
      >
        {(grown) => (
          <>
            <HealthSentence grown={grown} days={days} />
            <GrowthCharts grown={grown} />
          </>
        )}
      </Shown>
      <div class="grid halves">
        <Card
          title="By push service"
          aside={
            <div class="row">
              <span class="fine">
                {zoom ? "" : "last "}
                {things(days, "day")}
              </span>
              <Export name="by-push-service" page={whole(gateways.known.value?.value)} />
            </div>
          }
        >
          <Shown
            of={gateways}
            what="push services"
            isEmpty={(slices) => slices.length === 0}
            empty={<p>A push service appears with its first subscription.</p>}
          >
            {(slices) => <Slices slices={slices} />}
          </Shown>
        </Card>
        <Card
          title="By VAPID key"
          aside={
            <div class="row">
              <span class="fine">now</span>
              <Export
                name="by-vapid-key"
                page={whole(
                  keys.known.value?.value.map(({ key, active }) => ({
                    key: key.id,
                    state: key.state,
                    created_at: key.created_at,
                    active,
                  })),
                )}
              />
            </div>
          }
        >
          <Shown
            of={keys}
            what="VAPID keys"
            isEmpty={(keys) => keys.length === 0}
            empty={<p>This app has no VAPID key.</p>}
          >
            {(keys) => <Keys keys={keys} />}
          </Shown>
        </Card>
      </div>
    </>
  );
}

function NoSubscribers({ app, days }: { app: AppResponse; days: number }) {
  return (
    <div>
      <p>
        There are no active subscriptions, and none were gained or lost within {things(days, "day")}. Browsers subscribe
        with the SDK on a page of the site:
      </p>
      <pre>
        <code>{`init({ app: "${app.slug}" }).subscribe()`}</code>
      </pre>
    </div>
  );
}

function HealthSentence({ grown, days }: { grown: Growth; days: number }) {
  const { tone, words } = useMemo(() => health(grown, days), [grown, days]);
  return (
    <p class="sentence" id="health" data-tone={tone}>
      {words}
    </p>
  );
}

const DAY = "Day, in UTC";

function GrowthCharts({ grown }: { grown: Growth }) {
  const onZoom = useZoom();
  const won = useMemo(
    (): Layer[] => [{ word: "Gained", tone: "accepted", pattern: "solid", values: grown.won }],
    [grown],
  );
  const lost = useMemo(
    () =>
      LOSSES.filter((loss) => loss === "gone" || grown.lost[loss].some((n) => n > 0)).map(
        (loss): Layer => ({ ...LOSS_LOOKS[loss], values: grown.lost[loss] }),
      ),
    [grown],
  );
  return (
    <div class="grid halves">
      <Card title="Gained, by day">
        <StackedBars at={grown.at} layers={won} height={180} onZoom={onZoom} />
        <ChartTable caption="Gained, by day" file="gained" head={DAY} at={grown.at} layers={won} label={dayOf} />
      </Card>
      <Card title="Lost, by day and cause">
        <StackedBars at={grown.at} layers={lost} height={180} onZoom={onZoom} />
        <ChartTable caption="Lost, by day and cause" file="lost" head={DAY} at={grown.at} layers={lost} label={dayOf} />
      </Card>
    </div>
  );
}

function Slices({ slices }: { slices: Slice[] }) {
  const { link } = useFilters();
  const all = slices.reduce((sum, { active }) => sum + active, 0);
  return (
    <Table
      caption="By push service"
      rows={slices}
      id={({ key }) => key}
      columns={[
        {
          head: "Push service",
          cell: ({ key, title }) => <a href={link("/subscribers", { gateway: key })}>{title}</a>,
        },
        { head: "Active", isNumber: true, cell: ({ active }) => <Count n={active} /> },
        {
          head: "Share",
          isNumber: true,
          isExtra: true,
          cell: ({ active }) => (all === 0 ? "–" : percent(active / all)),
        },
        { head: "Gained", isNumber: true, cell: ({ won }) => <Count n={won} /> },
        { head: "Lost", isNumber: true, cell: ({ lost }) => <Count n={lost} /> },
      ]}
    />
  );
}

function Keys({ keys }: { keys: KeyAge[] }) {
  const all = keys.reduce((sum, { active }) => sum + active, 0);
  return (
    <>
      <Table
        caption="By VAPID key"
        rows={keys}
        id={({ key }) => key.id}
        columns={[
          { head: "Key", cell: ({ key }) => <code class="keep">{shortId(key.id)}</code> },
          {
            head: "State",
            cell: ({ key }) => <Badge tone={key.state === "active" ? "accepted" : "cancelled"}>{key.state}</Badge>,
          },
          { head: "Created", isExtra: true, cell: ({ key }) => <Time at={key.created_at} /> },
          { head: "Active", isNumber: true, cell: ({ active }) => <Count n={active} /> },
          {
            head: "Share",
            isNumber: true,
            isExtra: true,
            cell: ({ active }) => (all === 0 ? "–" : percent(active / all)),
          },
        ]}
      />
      <p class="fine">
        Each key signs for the subscriptions created with it. Browsers move to the active key at their next visit.
      </p>
    </>
  );
}
