import { useMemo, useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import type { Refusal } from "../../api/problem";
import type { AppResponse } from "../../api/types";
import { useBegin } from "../../lib/begin";
import {
  BLANK,
  draftOf,
  fromMessage,
  lacks,
  messageOf,
  planOf,
  saidBy,
  slugOf,
  type Draft,
} from "../../lib/campaign-draft";
import { isAddressed, titled, type Draft as MessageDraft } from "../../lib/draft";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { useAction } from "../../ui/action";
import { Card, Head } from "../../ui/card";
import { useEdit } from "../../ui/edit";
import { Failed, RefusedFields, Shown } from "../../ui/shown";
import "../composer/composer.css";
import { ContentCard } from "../composer/content";
import { Text } from "../composer/fields";
import { ownZone, useCheck, type Check } from "../composer/load";
import { FIELDS } from "../composer/parts";
import { Previews } from "../composer/previews";
import { Warnings } from "../composer/reach";
import { ClearDialog } from "../composer/send";
import { useDraft, type Writing } from "../composer/store";
import { useSight } from "../composer/template";
import { TimingCard } from "../composer/timing";
import { TryCard } from "../composer/try";
import { loadMessage, loadSaid } from "../messages/load";
import { AudienceCard } from "./audience";
import "./campaigns.css";
import { LinksCard } from "./links";
import { create, loadPlanned, replace, type Planned } from "./load";
import { PresetsCard } from "./presets";
import { LimitsCard, WhenCard } from "./when";
import { VariantsBar, VariantsCard } from "./variants";

/** Editor of a new campaign, or of a draft. */
export default function CampaignComposer() {
  const { app, apps } = useHere();
  const { params } = useRoute();
  const { link } = useFilters();
  const named = params.campaign;
  return (
    <>
      <p class="back">
        <a href={link("/campaigns")}>Campaigns</a>
      </p>
      <Head
        title={named ? "Edit campaign" : "New campaign"}
        lead="Audience, content and schedule. The campaign is a draft until you start it."
      />
      {app ? (
        <OfApp key={`${app.id} ${named ?? ""}`} app={app} named={named} />
      ) : (
        <ChooseApp apps={apps} what="Each campaign belongs to an app." />
      )}
    </>
  );
}

function OfApp({ app, named }: { app: AppResponse; named: string | undefined }) {
  const sender = useMay("sender", app.id);
  if (!sender.may) return <p class="refused">Your role does not allow writing campaigns. {sender.why}</p>;
  return named ? <Existing app={app} named={named} /> : <New app={app} />;
}

/** A draft that is kept in its tab while it is new, and on the server once it was saved. */
type Written = Pick<Writing<Draft>, "draft" | "key" | "change" | "forget"> & Partial<Pick<Writing<Draft>, "clear">>;

function New({ app }: { app: AppResponse }) {
  const { filters } = useFilters();
  if (filters.like) return <Copied app={app} id={filters.like} />;
  const { segment } = filters;
  return (
    <NewForm app={app} begin={segment ? { ...BLANK, timezone: ownZone(), narrowed: "stored", segment } : undefined} />
  );
}

/** New campaign with content and audience of a sent message. */
function Copied({ app, id }: { app: AppResponse; id: string }) {
  const sent = useResource(
    `copy ${id}`,
    async (stop) => Promise.all([loadMessage(app.id, id, stop), loadSaid(app.id, id, stop)]),
    { everyS: 3_600 },
  );
  return (
    <Shown of={sent} what="the message to copy">
      {([message, said]) => {
        const begin = fromMessage(message, said, ownZone());
        return begin ? (
          <NewForm app={app} begin={begin} />
        ) : (
          <p class="refused">The content of that message was deleted, or your role does not allow reading it.</p>
        );
      }}
    </Shown>
  );
}

function NewForm({ app, begin }: { app: AppResponse; begin: Draft | undefined }) {
  const { session } = useHere();
  const writing = useDraft(
    `bellwire.campaign.${app.id}`,
    session.email ?? "an operator’s key",
    { ...BLANK, timezone: ownZone() },
    begin,
  );
  return <Form app={app} writing={writing} existing={undefined} />;
}

function Existing({ app, named }: { app: AppResponse; named: string }) {
  const { begun, problem, edition, again } = useBegin(`${app.id} ${named}`, (stop) => loadPlanned(app.id, named, stop));
  if (problem) return <Failed problem={problem} what="the draft" retry={again} />;
  return begun ? (
    <Change key={edition} app={app} begun={begun} reload={again} />
  ) : (
    <p class="loading">Loading the draft…</p>
  );
}

interface ChangeProps {
  app: AppResponse;
  begun: Planned;
  reload: () => void;
}

function Change({ app, begun, reload }: ChangeProps) {
  const { campaign, plan } = begun;
  const { link } = useFilters();
  const begin = useMemo(() => draftOf(plan, ownZone()), [plan]);
  if (campaign.state !== "draft") {
    return (
      <p class="refused">
        This campaign was started, so its plan cannot be changed.{" "}
        <a href={link(`/campaigns/${campaign.slug}`)}>Copy the campaign</a>
      </p>
    );
  }
  if (!begin) {
    return (
      <>
        <p class="refused">
          The message has a payload or an inline template, which this form cannot edit. Change the plan with the command
          line:
        </p>
        <pre>
          <code>{`bellwire campaign plan ${campaign.slug} --app ${app.slug} > plan.json\nbellwire campaign change ${campaign.slug} plan.json --app ${app.slug}`}</code>
        </pre>
      </>
    );
  }
  return <Edit app={app} begun={begun} reload={reload} begin={begin} />;
}

function Edit({ app, begun, reload, begin }: ChangeProps & { begin: Draft }) {
  const [draft, setDraft] = useState(begin);
  const writing: Written = {
    draft,
    key: "",
    change: (changes) => setDraft((draft) => ({ ...draft, ...changes })),
    forget: () => {},
  };
  return <Form app={app} writing={writing} existing={begun} reload={reload} />;
}

/** Draft for checks before it is complete: many authors write the title last. */
function checkable(draft: Draft, chosen: number) {
  const message = messageOf(draft, chosen);
  return { ...titled(message), to: isAddressed(draft.message) ? message.to : { all: true } };
}

interface FormProps {
  app: AppResponse;
  writing: Written;
  existing: Planned | undefined;
  reload?: () => void;
}

function Form({ app, writing, existing, reload = () => {} }: FormProps) {
  const { draft, change } = writing;
  const [wanted, choose] = useState(0);
  const chosen = Math.min(wanted, Math.max(0, draft.variants.length - 1));
  const { go } = useFilters();
  const id = existing?.campaign.id ?? "";
  const edit = useEdit({
    begun: existing,
    load: (stop) => loadPlanned(app.id, id, stop),
    written: ({ plan }) => plan,
    reload,
  });
  const { run, isBusy, problem } = useAction(async () => {
    const plan = planOf(draft);
    const saved = existing
      ? await edit.save((condition) => replace(app.id, id, plan, condition))
      : await create(app.id, plan, writing.key);
    writing.forget();
    go(`/campaigns/${saved.slug}`);
  });
  const check = useCheck(app.id, checkable(draft, chosen));
  const said = saidBy(draft, chosen);
  const sight = useSight(app.id, said);
  const changeMessage = (changes: Partial<MessageDraft>) => change({ message: { ...draft.message, ...changes } });
  const changeSaid = (changes: Partial<MessageDraft>) =>
    draft.variants.length === 0
      ? changeMessage(changes)
      : change({
          variants: draft.variants.map((variant, n) =>
            n === chosen ? { ...variant, said: { ...variant.said, ...changes } } : variant,
          ),
        });
  const part = { app, draft, change, problem };
  return (
    <div class="composer">
      <div class="draft">
        {!existing && <PresetsCard draft={draft} change={change} />}
        <NameCard {...part} />
        <AudienceCard {...part} check={check} changeMessage={changeMessage} />
        <VariantsBar draft={draft} change={change} chosen={chosen} choose={choose} />
        <ContentCard
          key={`${chosen} of ${draft.variants.length}`}
          app={app}
          draft={said}
          change={changeSaid}
          check={check}
          sight={sight}
          to={messageOf(draft, chosen).to}
        />
        {draft.variants.length > 1 && <VariantsCard {...part} />}
        <WhenCard {...part} />
        <LimitsCard {...part} />
        <LinksCard {...part} />
        <TimingCard app={app} draft={draft.message} change={changeMessage} check={check} isPlanned />
        <TryCard app={app} draft={said} />
        <SaveCard
          draft={draft}
          isNew={existing === undefined}
          check={check}
          problem={problem}
          isBusy={isBusy}
          save={() => void run()}
          clear={writing.clear}
        />
      </div>
      <Previews said={sight.said} site={app.origins[0]} name={app.name} />
    </div>
  );
}

/** Properties of each part. `problem`: error of the last save. */
export interface PartProps {
  app: AppResponse;
  draft: Draft;
  change: (changes: Partial<Draft>) => void;
  problem: Refusal | undefined;
}

function NameCard({ draft, change, problem }: PartProps) {
  return (
    <Card title="Name">
      <div class="pair">
        <Text
          label="Name"
          name="campaign-name"
          value={draft.name}
          change={(name) => change({ name })}
          max={200}
          fault={problem?.fault("/name")}
        />
        <Text
          label="Slug"
          name="slug"
          value={draft.slug}
          change={(slug) => change({ slug })}
          placeholder={slugOf(draft.name) || "spring-sale"}
          max={64}
          hint="Lower-case letters, digits and hyphens. Empty: derived from the name."
          fault={problem?.fault("/slug")}
        />
      </div>
    </Card>
  );
}

/** Members of a plan whose faults are shown at their fields after a save. */
const PLAN_FIELDS =
  /^\/(name|slug|schedule(\/(at|timezone|past|cron|hour|on|where|after|unless|at_most))?|follows\/(campaign|after)|pace(\/(per_minute|spread_over))?|holdout|expires_at|test\/by|link_parameters(\/.*)?)$/;

interface SaveProps {
  draft: Draft;
  isNew: boolean;
  check: Check;
  problem: Refusal | undefined;
  isBusy: boolean;
  save: () => void;
  /** Key of the draft in this tab's storage. */
  clear: (() => void) | undefined;
}

/** The end of it: what is still missing, or saving it. It is started from its own page. */
function SaveCard({ draft, isNew, check, problem, isBusy, save, clear }: SaveProps) {
  const [isAsked, ask] = useState(false);
  const lacking = lacks(draft);
  return (
    <Card title="Save">
      {lacking ? (
        <p class="soft">{lacking}</p>
      ) : (
        <RefusedFields problem={problem ?? check.problem} at={problem ? PLAN_FIELDS : FIELDS} />
      )}
      <Warnings check={check} />
      <p class="row">
        <button type="button" class="primary" id="save" disabled={Boolean(lacking) || isBusy} onClick={save}>
          {isNew ? "Save draft" : "Save"}
        </button>
        {clear && (
          <button type="button" id="clear" onClick={() => ask(true)}>
            Discard…
          </button>
        )}
        <span class="fine">Saving sends nothing. Start the campaign on its page.</span>
      </p>
      {clear && isAsked && <ClearDialog clear={clear} onClose={() => ask(false)} />}
    </Card>
  );
}
