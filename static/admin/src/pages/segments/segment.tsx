import { useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import type { AppResponse, SegmentResponse, SubscriptionResponse } from "../../api/types";
import { slugOf } from "../../lib/campaign-draft";
import { useResource } from "../../lib/resource";
import { shortId } from "../../lib/deliveries";
import { subscriptionWords } from "../../lib/subscribers";
import { useFilters } from "../../lib/url";
import { gatewayName } from "../../lib/words";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { useAction } from "../../ui/action";
import { Badge } from "../../ui/badge";
import { Card, Head } from "../../ui/card";
import { useEdit } from "../../ui/edit";
import { useDialog } from "../../ui/dialog";
import { Export } from "../../ui/export";
import { Ask } from "../../ui/form";
import { Time } from "../../ui/numbers";
import { Refused, Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Paging } from "../../ui/paging";
import "../composer/composer.css";
import { Text } from "../composer/fields";
import { SegmentEditor } from "./editor";
import { loadMembers, loadSegment, removeSegment, setSegment, usePreview, written } from "./load";
import { ReachFigure } from "./reach";
import "../messages/messages.css";
import "./segments.css";

/** Path of the form for a new segment: no name begins with a hyphen. */
const NEW = "-new";

/** One segment: who belongs, how many they are, and what may be done. */
export default function SegmentPage() {
  const { params } = useRoute();
  const { app, apps } = useHere();
  const { link } = useFilters();
  const name = params.segment ?? "";
  return (
    <>
      <p class="back">
        <a href={link("/segments")}>Segments</a>
      </p>
      {!app ? (
        <>
          <Head title="Segment" lead={name} />
          <ChooseApp apps={apps} what="Each segment belongs to an app." />
        </>
      ) : name === NEW ? (
        <New key={app.id} app={app} />
      ) : (
        <Existing key={`${app.id} ${name}`} app={app} name={name} />
      )}
    </>
  );
}

function New({ app }: { app: AppResponse }) {
  const sender = useMay("sender", app.id);
  return (
    <>
      <Head title="New segment" lead="The size is shown while you write." />
      {sender.may ? (
        <Editor app={app} segment={undefined} />
      ) : (
        <p class="refused">Your role does not allow creating segments. {sender.why}</p>
      )}
    </>
  );
}

function Existing({ app, name }: { app: AppResponse; name: string }) {
  const segment = useResource(`segment ${app.id} ${name}`, (stop) => loadSegment(app.id, name, stop));
  return (
    <Shown of={segment} what="this segment">
      {(shown) => <One app={app} segment={shown} refresh={segment.refresh} />}
    </Shown>
  );
}

function One({ app, segment, refresh }: { app: AppResponse; segment: SegmentResponse; refresh: () => Promise<void> }) {
  const sender = useMay("sender", app.id);
  const { link } = useFilters();
  const { open: asked, show: ask, close } = useDialog<"edit" | "delete">();
  const reload = async () => {
    await refresh();
    close();
  };
  return (
    <>
      <Head
        title={segment.name}
        lead={
          <>
            {segment.description && `${segment.description} · `}changed <Time at={segment.changed_at} />
          </>
        }
      />
      {!sender.may ? (
        <p class="fine">Your role does not allow changing or deleting segments. {sender.why}</p>
      ) : (
        asked !== "edit" && (
          <div class="row" role="group" aria-label="Actions">
            <a class="button primary" id="send-to" href={link("/messages/new", { segment: segment.name })}>
              Send to this segment
            </a>
            <a class="button" id="campaign-for" href={link("/campaigns/-new", { segment: segment.name })}>
              New campaign
            </a>
            <button type="button" id="edit" onClick={() => ask("edit")}>
              Edit…
            </button>
            <button type="button" id="delete" onClick={() => ask("delete")}>
              Delete…
            </button>
          </div>
        )
      )}
      {asked === "edit" ? (
        <Editor app={app} segment={segment} onLeave={close} reload={reload} />
      ) : (
        <Reached app={app} segment={segment} />
      )}
      {asked === "delete" && <DeleteDialog app={app} segment={segment} reload={reload} onClose={close} />}
      <Members key={segment.changed_at} app={app} segment={segment} />
    </>
  );
}

interface DeleteProps {
  app: AppResponse;
  segment: SegmentResponse;
  reload: () => unknown;
  onClose: () => void;
}

function DeleteDialog({ app, segment, reload, onClose }: DeleteProps) {
  const { go } = useFilters();
  const edit = useEdit({
    begun: segment,
    load: (stop) => loadSegment(app.id, segment.name, stop),
    written,
    reload,
    verb: "Delete anyway",
  });
  return (
    <Ask
      title={`Delete ${segment.name}?`}
      says="Sent messages and started campaigns keep the conditions. Drafts with this segment cannot be started until they use another segment. No subscription is deleted."
      button="Delete"
      isGrave
      work={async () => {
        await edit.save((condition) => removeSegment(app.id, segment.name, condition));
        go("/segments");
      }}
      onClose={onClose}
    />
  );
}

/** Subscriptions of the segment, and their number. */
function Reached({ app, segment: { name, expression } }: { app: AppResponse; segment: SegmentResponse }) {
  const { shown, problem, isOld } = usePreview(app.id, expression);
  return (
    <Card title="Conditions" aside={<code class="fine">{`segment: "${name}"`}</code>}>
      <pre>
        <code id="expression">{expression}</code>
      </pre>
      {shown ? (
        <ReachFigure app={app} segment={expression} shown={shown} isOld={isOld} />
      ) : problem ? (
        <Refused problem={problem} />
      ) : (
        <p class="soft reach">Counting…</p>
      )}
    </Card>
  );
}

interface EditorProps {
  app: AppResponse;
  segment: SegmentResponse | undefined;
  onLeave?: () => void;
  /** Leaves it, with what is stored. */
  reload?: () => Promise<void>;
}

function Editor({ app, segment, onLeave, reload }: EditorProps) {
  const { go } = useFilters();
  const [named, setName] = useState("");
  const [description, describe] = useState(segment?.description ?? "");
  const [text, write] = useState(segment?.expression ?? "");
  const { shown, problem, isOld } = usePreview(app.id, text.trim());
  const isEmpty = text.trim() === "";
  const wrong = isEmpty || isOld ? undefined : problem?.fault("/segment");
  const name = segment?.name ?? named.trim();
  const show = reload ?? (() => go(`/segments/${name}`));
  const edit = useEdit(
    { begun: segment, load: (stop) => loadSegment(app.id, name, stop), written, reload: show },
    name,
  );
  const {
    run,
    isBusy,
    problem: refused,
  } = useAction(async () => {
    await edit.save((condition) => setSegment(app.id, name, text.trim(), description.trim(), condition));
    await show();
  });
  return (
    <Card title={segment ? "Edit" : "Conditions"} class="segment-form">
      {!segment && (
        <div class="pair">
          <Text
            label="Name"
            name="segment-name"
            value={named}
            change={(name) => setName(name === "" ? "" : slugOf(name) + (/[\s-]$/.test(name) ? "-" : ""))}
            max={64}
            placeholder="keen"
            hint="Lower-case letters, digits and hyphens. Messages use this name."
          />
          <Text
            label="Description"
            name="description"
            value={description}
            change={describe}
            max={500}
            fault={refused?.fault("/description")}
          />
        </div>
      )}
      {segment && (
        <Text
          label="Description"
          name="description"
          value={description}
          change={describe}
          max={500}
          fault={refused?.fault("/description")}
        />
      )}
      <SegmentEditor
        app={app}
        text={text}
        change={write}
        fault={wrong ?? (isEmpty ? undefined : refused?.fault("/expression"))}
      />
      {isEmpty ? (
        <p class="soft reach">Add a condition to see the size.</p>
      ) : wrong ? (
        <p class="soft reach">Invalid conditions: see above.</p>
      ) : shown ? (
        <ReachFigure app={app} segment={text.trim()} shown={shown} isOld={isOld} />
      ) : (
        <p class="soft reach">Counting…</p>
      )}
      <Refused problem={refused ?? (wrong ? undefined : isEmpty ? undefined : problem)} />
      {segment && <p class="fine">Sent messages and started campaigns keep the earlier conditions.</p>}
      <p class="row">
        <button
          type="button"
          class="primary"
          id="save-segment"
          disabled={isBusy || isEmpty || name === "" || wrong !== undefined}
          onClick={() => run()}
        >
          {segment ? "Save" : "Create"}
        </button>
        {onLeave && (
          <button type="button" onClick={onLeave}>
            Cancel
          </button>
        )}
      </p>
    </Card>
  );
}

/** Some of those who belong, the newest first. */
function Members({ app, segment }: { app: AppResponse; segment: SegmentResponse }) {
  const { filters, link } = useFilters();
  const page = useResource(
    `members ${app.id} ${segment.name} ${segment.changed_at} ${filters.after}`,
    (stop) => loadMembers(app.id, segment.name, filters.after, stop),
    { everyS: 300 },
  );
  const known = page.known.value?.value;
  const here = `/segments/${segment.name}`;
  return (
    <Card
      title="Members"
      aside={
        <Export
          name={`${app.slug}-segment-${segment.name}`}
          page={async (after, limit, stop) => {
            const { members, next } = await loadMembers(app.id, segment.name, after, stop, limit);
            return { rows: members, next };
          }}
        />
      }
    >
      <Shown
        of={page}
        what="members"
        isEmpty={({ members }) => members.length === 0}
        empty={
          <p>
            {known?.next
              ? "None of the checked subscriptions matches. There are older subscriptions."
              : filters.after
                ? "No more members."
                : "No subscription matches at present."}
          </p>
        }
      >
        {({ members }) => <MemberTable app={app} members={members} />}
      </Shown>
      <Paging
        after={filters.after}
        sides={known}
        to={(after) => link(here, { after })}
        older={known?.members.length === 0 ? "Search older subscriptions" : undefined}
      />
    </Card>
  );
}

function MemberTable({ app, members }: { app: AppResponse; members: SubscriptionResponse[] }) {
  const { link } = useFilters();
  const personOf = ({ id, user_id }: SubscriptionResponse) =>
    user_id
      ? `/subscribers/${app.slug}/users/${encodeURIComponent(user_id)}`
      : `/subscribers/${app.slug}/subscriptions/${id}`;
  return (
    <Table
      caption="Members"
      rows={members}
      id={({ id }) => id}
      columns={[
        {
          head: "Person",
          cell: (one) => (
            <>
              <a href={link(personOf(one))}>{one.user_id ?? "Anonymous"}</a>{" "}
              <span class="fine keep">{shortId(one.id)}</span>
            </>
          ),
        },
        {
          head: "State",
          isExtra: true,
          cell: ({ state }) => <Badge tone={subscriptionWords(state).tone}>{subscriptionWords(state).word}</Badge>,
        },
        { head: "Push service", cell: ({ gateway }) => gatewayName(gateway) },
        { head: "Last seen", isExtra: true, cell: ({ last_seen }) => <Time at={last_seen} /> },
      ]}
    />
  );
}
