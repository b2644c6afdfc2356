import { useState } from "preact/hooks";
import type { AppResponse, Campaign, CampaignPlan, DryRun, Accepted } from "../../api/types";
import { ACT_WORDS, actsOn, consequence, startWords, withdrawWords, type Act } from "../../lib/campaigns";
import { clock } from "../../lib/clock";
import { listed } from "../../lib/draft";
import { things } from "../../lib/format";
import { SENT_WORDS } from "../../lib/messages";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { useMay } from "../../shell/context";
import { useAction } from "../../ui/action";
import { Dialog, useDialog } from "../../ui/dialog";
import { useEdit } from "../../ui/edit";
import { Ask, Field } from "../../ui/form";
import { Marked } from "../../ui/marked";
import { Refused, Shown } from "../../ui/shown";
import { TypedForm } from "../../ui/typed";
import { dryRun } from "../composer/load";
import { act, clone, loadCampaign, loadPlan, testSend } from "./load";

interface Props {
  app: AppResponse;
  campaign: Campaign;
  refresh: () => unknown;
}

/** Possible actions, or the role that has permission. */
export function Acts({ app, campaign, refresh }: Props) {
  const { open: asked, show: ask, close: onClose } = useDialog<Act | "clone" | "test">();
  const sender = useMay("sender", app.id);
  const dialog = { app, campaign, refresh, onClose };
  if (!sender.may)
    return <p class="fine">Your role does not allow starting, stopping or copying campaigns. {sender.why}</p>;
  const acts = actsOn(campaign);
  return (
    <>
      <div class="row acts" role="group" aria-label="Actions">
        {acts
          .filter((it) => it !== "delete")
          .map((it) => (
            <button
              key={it}
              type="button"
              id={it}
              class={it === "start" || it === "resume" ? "primary" : ""}
              onClick={() => ask(it)}
            >
              {ACT_WORDS[it]}…
            </button>
          ))}
        <button type="button" id="test" onClick={() => ask("test")}>
          Test…
        </button>
        <button type="button" id="clone" onClick={() => ask("clone")}>
          Copy…
        </button>
        {acts.includes("delete") && (
          <button type="button" id="delete" onClick={() => ask("delete")}>
            Delete…
          </button>
        )}
      </div>
      {asked === "start" && <StartDialog {...dialog} />}
      {asked === "clone" && <CloneDialog {...dialog} />}
      {asked === "test" && <TestDialog {...dialog} />}
      {asked === "withdraw" && <WithdrawDialog {...dialog} />}
      {asked && asked !== "start" && asked !== "withdraw" && asked !== "clone" && asked !== "test" && (
        <ActDialog {...dialog} what={asked} />
      )}
    </>
  );
}

interface DialogProps extends Props {
  onClose: () => void;
}

/** Shows the effect of an action, with counts, before it is carried out. */
function ActDialog({
  app,
  campaign,
  refresh,
  onClose,
  what,
}: DialogProps & { what: Exclude<Act, "start" | "withdraw"> }) {
  const { go } = useFilters();
  const reload = async () => {
    await refresh();
    onClose();
  };
  const edit = useEdit({
    begun: campaign,
    load: (stop) => loadCampaign(app.id, campaign.id, stop),
    written: ({ state, changed_at }) => ({ state, changed_at }),
    reload,
    verb: "Delete anyway",
    isLive: true,
  });
  return (
    <Ask
      title={`${ACT_WORDS[what]} ${campaign.name}?`}
      says={<span id="consequence">{consequence(what, campaign)}</span>}
      button={`${ACT_WORDS[what]} campaign`}
      leave={what === "cancel" ? "Keep" : undefined}
      isGrave={what === "delete"}
      work={async () => {
        if (what === "delete") {
          await edit.save((condition) => act(what, app.id, campaign.id, condition));
          return go("/campaigns");
        }
        await act(what, app.id, campaign.id);
        await reload();
      }}
      onClose={onClose}
    />
  );
}

/** Withdraws its messages, after the number of browsers was typed. */
function WithdrawDialog({ app, campaign, refresh, onClose }: DialogProps) {
  const accepted = campaign.progress?.total.accepted ?? 0;
  const work = async () => {
    await act("withdraw", app.id, campaign.id);
    await refresh();
    onClose();
  };
  return (
    <Dialog title={`Withdraw ${campaign.name}?`} onClose={onClose}>
      <TypedForm n={accepted} verb="withdraw" button="Withdraw" id="withdraw-now" work={work} onLeave={onClose}>
        <p id="consequence">{withdrawWords(accepted)}</p>
      </TypedForm>
    </Dialog>
  );
}

/** Counts once more, and starts it when that number was typed: not by one careless click. */
function StartDialog(props: DialogProps) {
  const { app, campaign, onClose } = props;
  const asked = useResource(
    `start ${campaign.id} ${campaign.changed_at}`,
    async (stop) => {
      const plan = await loadPlan(app.id, campaign.id, stop);
      return { plan, counted: await dryRun(app.id, plan.message, stop) };
    },
    { everyS: 3_600 },
  );
  return (
    <Dialog title={`Start ${campaign.name}?`} onClose={onClose}>
      <Shown of={asked} what="the plan and its audience">
        {({ plan, counted }) => <StartForm {...props} plan={plan} counted={counted} />}
      </Shown>
    </Dialog>
  );
}

function StartForm({
  app,
  campaign,
  refresh,
  onClose,
  plan,
  counted,
}: DialogProps & { plan: CampaignPlan; counted: DryRun }) {
  const work = async () => {
    await act("start", app.id, campaign.id);
    await refresh();
    onClose();
  };
  return (
    <TypedForm n={counted.audience_estimate} verb="start" button="Start" id="start-now" work={work} onLeave={onClose}>
      <div id="consequence" class="plan">
        {startWords(plan, counted, clock.shown.value, zone.value).map((words) => (
          <p key={words}>
            <Marked text={words} />
          </p>
        ))}
        <p class="fine">
          After the start, the plan cannot be changed. The campaign can be paused and cancelled. {SENT_WORDS}
        </p>
      </div>
    </TypedForm>
  );
}

function CloneDialog({ app, campaign, onClose }: DialogProps) {
  const { go } = useFilters();
  return (
    <Ask
      title={`Copy ${campaign.name}?`}
      says="Creates a draft with the same plan. Nothing is sent until the copy is started."
      button="Copy"
      work={async (written) => {
        const made = await clone(app.id, campaign.id, written.text("slug"));
        go(`/campaigns/${made.slug}/edit`);
      }}
      onClose={onClose}
    >
      <Field label="Slug of the copy" hint="Lower-case letters, digits and hyphens.">
        {(tie) => (
          <input
            {...tie}
            id="copy-slug"
            name="slug"
            required
            maxLength={64}
            autocomplete="off"
            defaultValue={`${campaign.slug.slice(0, 58)}-copy`}
          />
        )}
      </Field>
    </Ask>
  );
}

/** Sends its message to named users now. */
function TestDialog({ app, campaign, onClose }: DialogProps) {
  const { link } = useFilters();
  const [users, name] = useState("");
  const [sent, setSent] = useState<Accepted>();
  const ids = listed(users);
  const variants = campaign.progress?.variants ?? [];
  const [variant, choose] = useState(variants[0]?.name ?? "");
  const { run, isBusy, problem } = useAction(async () => {
    setSent(undefined);
    setSent(await testSend(app.id, campaign.id, ids, variant || undefined));
  });
  return (
    <Dialog title={`Test ${campaign.name}`} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void run();
        }}
      >
        <p>
          The message is sent to all browsers of these users now. Tests do not count in the results of the campaign.
        </p>
        <Field label="User ids of your site" hint="Separated by commas or lines.">
          {(tie) => (
            <textarea
              {...tie}
              id="test-users"
              name="users"
              rows={2}
              value={users}
              onInput={(event) => name(event.currentTarget.value)}
            />
          )}
        </Field>
        {variants.length > 1 && (
          <Field label="Variant">
            {(tie) => (
              <select {...tie} name="variant" value={variant} onChange={(event) => choose(event.currentTarget.value)}>
                {variants.map((variant) => (
                  <option key={variant.name} value={variant.name}>
                    {variant.name}
                  </option>
                ))}
              </select>
            )}
          </Field>
        )}
        <Refused problem={problem} />
        {sent && (
          <p role="status" id="tested">
            {sent.audience_estimate === 0
              ? "Not sent: the user has no active browser."
              : `Sent to ${things(sent.audience_estimate, "browser")}.`}{" "}
            <a href={link(`/messages/${sent.id}`)}>Show progress</a>
          </p>
        )}
        <p class="row end">
          <button type="button" onClick={onClose}>
            Close
          </button>
          <button type="submit" class="primary" id="do-it" disabled={isBusy || ids.length === 0}>
            Send to {things(ids.length, "user")}
          </button>
        </p>
      </form>
    </Dialog>
  );
}
