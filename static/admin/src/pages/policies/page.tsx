import { useRef } from "preact/hooks";
import type {
  AppResponse,
  Policy,
  PolicyOverview,
  PolicyResponsePage,
  PolicyPreset,
  PolicyPreviewResponse,
} from "../../api/types";
import { duration } from "../../lib/format";
import { formWords, placeWords, summary } from "../../lib/policies";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { ChooseApp } from "../../shell/choose-app";
import { useHere } from "../../shell/context";
import { Card, Head } from "../../ui/card";
import { Export } from "../../ui/export";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Paging } from "../../ui/paging";
import { loadOverview, loadPresets, loadTiers, loadTopics } from "./load";
import { TimetableFigure } from "./timetable";
import "./policies.css";

/** Retry policies of all levels. */
export default function Policies() {
  const { app, apps } = useHere();
  return (
    <>
      <Head title="Policies" lead="Number and delays of retries after failures." />
      {app ? <OfApp app={app} /> : <ChooseApp apps={apps} what="Each policy belongs to an app." />}
    </>
  );
}

function OfApp({ app }: { app: AppResponse }) {
  const { filters } = useFilters();
  const overview = useResource(`policies ${app.id}`, (stop) => loadOverview(app.id, stop), { everyS: 300 });
  const topics = useResource(
    `topic policies ${app.id} ${filters.after ?? ""}`,
    (stop) => loadTopics(app.id, filters.after, stop),
    { everyS: 300 },
  );
  const tiers = useResource(`tiers ${app.id}`, (stop) => loadTiers(app.id, stop), { everyS: 300 });
  const presets = useResource(`presets ${app.id}`, (stop) => loadPresets(app.id, stop), { everyS: 3_600 });
  return (
    <>
      <p class="fine order">
        Each message uses the first of these policies that is set: the message itself, its subscription, its topic, the
        tier, and last the built-in default.
      </p>
      <Shown of={tiers} what="the tiers">
        {(previews) => (
          <div class="grid tiers">
            {previews.map((preview) => (
              <TierCard key={preview.tier} preview={preview} overview={overview.known.value?.value} />
            ))}
          </div>
        )}
      </Shown>
      <Card
        title="Topics with a policy"
        aside={
          <Export
            name={`${app.slug}-topic-policies`}
            page={async (after, limit, stop) => {
              const { data, iterator } = await loadTopics(app.id, after, stop, limit);
              return { rows: data, next: iterator };
            }}
          />
        }
      >
        <Shown
          of={topics}
          what="the topics"
          isEmpty={({ data }) => data.length === 0}
          empty={<p>No topic has a policy: the policy of the tier applies.</p>}
        >
          {(topics) => <Topics topics={topics} />}
        </Shown>
      </Card>
      <Card title="Policy of another topic or subscription">
        <OpenOther />
      </Card>
      <Card title="Presets" aside={<span class="fine">published policies</span>}>
        <Shown of={presets} what="the presets">
          {(presets) => <Presets presets={presets} />}
        </Shown>
      </Card>
    </>
  );
}

const TIER_WORDS: Record<string, string> = {
  transactional: "One-time codes and payments: immediately, before all other messages",
  promotional: "Campaigns and announcements",
  engagement: "Reminders and digests: at low load",
};

function TierCard({ preview, overview }: { preview: PolicyPreviewResponse; overview: PolicyOverview | undefined }) {
  const { link } = useFilters();
  const set = overview?.tiers.find(({ name }) => name === preview.tier)?.policy as Policy | null | undefined;
  return (
    <Card
      title={preview.tier[0]?.toUpperCase() + preview.tier.slice(1)}
      aside={<span class="fine">{set ? formWords(set) : placeWords(preview.set_by.retry)}</span>}
    >
      <p class="fine">{TIER_WORDS[preview.tier]}</p>
      <TimetableFigure
        caption={`Timetable of ${preview.tier} retries`}
        table={preview.timetable}
        ttlS={preview.ttl_s}
        brief
      />
      <p data-row>
        <a href={link(`/policies/tiers/${preview.tier}`)}>{set ? "Edit or simulate" : "Set or simulate"}</a>
      </p>
    </Card>
  );
}

function Topics({ topics }: { topics: PolicyResponsePage }) {
  const { filters, link } = useFilters();
  return (
    <>
      <Table
        caption="Topics with a policy"
        rows={topics.data}
        id={({ name }) => name}
        columns={[
          {
            head: "Topic",
            cell: ({ name }) => <a href={link(`/policies/topics/${encodeURIComponent(name)}`)}>{name}</a>,
          },
          { head: "Format", cell: ({ policy }) => formWords((policy ?? {}) as Policy) },
          { head: "Policy", isExtra: true, cell: ({ policy }) => <code>{JSON.stringify(policy)}</code> },
          { head: "Warnings", cell: ({ warnings }) => warnings?.map(({ detail }) => detail).join("; ") || "–" },
        ]}
      />
      <Paging
        after={filters.after}
        sides={{ next: topics.iterator, previous: topics.prev_iterator }}
        to={(after) => link("/policies", { after })}
      />
    </>
  );
}

/** Ids of subscriptions differ from topic names by their prefix. */
function OpenOther() {
  const { go } = useFilters();
  const input = useRef<HTMLInputElement>(null);
  const open = (event: SubmitEvent) => {
    event.preventDefault();
    const name = input.current?.value.trim() ?? "";
    if (name) go(`/policies/${name.startsWith("sub_") ? "subscriptions" : "topics"}/${encodeURIComponent(name)}`);
  };
  return (
    <form class="row" onSubmit={open}>
      <label>
        <span class="hidden">Name of a topic, or id of a subscription</span>
        <input
          ref={input}
          id="other-place"
          name="other-place"
          placeholder="news, or sub_…"
          autocomplete="off"
          required
          pattern="[A-Za-z0-9_.~%\-]{1,128}"
        />
      </label>
      <button type="submit">Open</button>
      <span class="fine">A topic can have a policy before it has subscribers.</span>
    </form>
  );
}

function Presets({ presets }: { presets: PolicyPreset[] }) {
  return (
    <Table
      caption="Presets"
      rows={presets}
      id={({ name }) => name}
      columns={[
        { head: "Name", cell: ({ name }) => <code>{name}</code> },
        { head: "Retries", cell: ({ timetable }) => summary(timetable) },
        {
          head: "With jitter",
          isExtra: true,
          cell: ({ timetable }) =>
            `${duration(timetable.shortest_window_s)} to ${duration(timetable.longest_window_s)}`,
        },
      ]}
    />
  );
}
