import type { AppResponse, Campaign, CampaignPlan } from "../../api/types";
import { audienceWords, paceWords, scheduleWords, testWords } from "../../lib/campaigns";
import { sunsetWords } from "../../lib/draft";
import { clock } from "../../lib/clock";
import { percent } from "../../lib/format";
import { zone } from "../../lib/preferences";
import type { Resource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { useMay } from "../../shell/context";
import { Card } from "../../ui/card";
import { Marked } from "../../ui/marked";
import { Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";

/** Content as its author wrote it. */
export function PlanCard({
  app,
  campaign,
  plan,
}: {
  app: AppResponse;
  campaign: Campaign;
  plan: Resource<CampaignPlan | undefined>;
}) {
  const { link } = useFilters();
  const sender = useMay("sender", app.id);
  const isDraft = campaign.state === "draft";
  return (
    <Card
      title="Plan"
      aside={
        isDraft &&
        sender.may && (
          <a id="edit" href={link(`/campaigns/${campaign.slug}/edit`)}>
            Edit
          </a>
        )
      }
    >
      {sender.may ? (
        <Shown of={plan} what="the plan">
          {(plan) => plan && <Written plan={plan} />}
        </Shown>
      ) : (
        <p class="soft">Content and audience are visible to the role sender. {sender.why}</p>
      )}
    </Card>
  );
}

function Written({ plan }: { plan: CampaignPlan }) {
  const { message, holdout, expires_at, variants = [] } = plan;
  const test = testWords(plan);
  const links = Object.entries(plan.link_parameters ?? {});
  return (
    <dl class="facts">
      <dt>Content</dt>
      <dd>
        <Said message={message} />
        {variants.map(({ name, weight, message }) => (
          <p key={name}>
            <span class="soft">
              {name}, weight {weight ?? 1}:
            </span>{" "}
            <Said message={message} />
          </p>
        ))}
      </dd>
      <dt>Audience</dt>
      <dd>
        {audienceWords(message.to)}
        {message.sunset && <p class="fine">{sunsetWords(message.sunset)}</p>}
      </dd>
      <dt>Schedule</dt>
      <dd id="schedule">
        <Marked text={scheduleWords(plan, clock.shown.value, zone.value).join(" ")} />
      </dd>
      <dt>Send rate</dt>
      <dd>{paceWords(plan)}</dd>
      {test && (
        <>
          <dt>A/B test</dt>
          <dd>{test}</dd>
        </>
      )}
      {holdout ? (
        <>
          <dt>Holdout</dt>
          <dd>{percent(holdout)} of the audience get nothing.</dd>
        </>
      ) : null}
      {links.length > 0 && (
        <>
          <dt>Link parameters</dt>
          <dd id="link-parameters">
            {links.map(([name, value]) => (
              <div key={name}>
                <code>
                  {name}={value}
                </code>
              </div>
            ))}
          </dd>
        </>
      )}
      {expires_at && (
        <>
          <dt>Ends</dt>
          <dd>
            <Time at={expires_at} absolute />: nothing is sent after this time.
          </dd>
        </>
      )}
    </dl>
  );
}

function Said({ message }: { message: Partial<CampaignPlan["message"]> }) {
  const { link } = useFilters();
  const { content, template } = message;
  if (typeof template === "string") {
    return (
      <>
        The template <a href={link(`/templates/${template}`)}>{template}</a>, version of the last save
      </>
    );
  }
  if (!content?.title)
    return <span class="soft">{Object.keys(message).length === 0 ? "unchanged" : "content set through the API"}</span>;
  return (
    <>
      <strong>{content.title}</strong>
      {content.body && <span class="soft"> {content.body}</span>}
    </>
  );
}
