import { testWords } from "../../lib/campaigns";
import {
  numberFaults,
  planOf,
  VARIANTS_MAX,
  withoutVariant,
  withVariant,
  type Draft,
  type Variant,
} from "../../lib/campaign-draft";
import { Card } from "../../ui/card";
import { Check, Choice, Segments, Text } from "../composer/fields";
import type { PartProps } from "./composer";

interface BarProps {
  draft: Draft;
  change: (changes: Partial<Draft>) => void;
  chosen: number;
  choose: (n: number) => void;
}

/** Tabs of the variants, with a button for another one. */
export function VariantsBar({ draft, change, chosen, choose }: BarProps) {
  const { variants } = draft;
  const add = () => {
    change(withVariant(draft));
    choose(variants.length === 0 ? 1 : variants.length);
  };
  return (
    <div class="row variants-bar">
      {variants.length > 1 && (
        <Segments
          legend="Variant"
          name="variant"
          value={String(chosen)}
          choices={variants.map(({ name }, n) => [String(n), name || `Variant ${n + 1}`])}
          choose={(n) => choose(Number(n))}
        />
      )}
      {variants.length < VARIANTS_MAX && (
        <button type="button" id="add-variant" class={variants.length === 0 ? "plain" : ""} onClick={add}>
          {variants.length === 0 ? "Add a variant (A/B test)" : "Add a variant"}
        </button>
      )}
    </div>
  );
}

/** Shares of the variants, and the settings of a test. */
export function VariantsCard({ draft, change, problem }: PartProps) {
  const { variants } = draft;
  const faults = numberFaults(draft);
  const put = (n: number, changes: Partial<Variant>) =>
    change({ variants: variants.map((variant, at) => (at === n ? { ...variant, ...changes } : variant)) });
  const hasHours = ["at", "cron", "event"].includes(draft.when) || variants.some(({ hour }) => hour);
  const byRecipient = draft.when === "recipient";
  const mayTest = draft.when !== "event";
  return (
    <Card title="A/B test">
      {variants.map(({ name, weight, hour }, n) => (
        <div class="pair variant" key={n} role="group" aria-label={`Variant ${n + 1}`}>
          <Text
            label="Variant"
            name={`variant-name-${n}`}
            value={name}
            change={(name) => put(n, { name })}
            max={64}
            fault={problem?.fault(`/variants/${n}/name`)}
          />
          <Text
            label="Weight"
            name={`variant-weight-${n}`}
            value={weight}
            change={(weight) => put(n, { weight })}
            max={4}
            fault={problem?.fault(`/variants/${n}/weight`)}
          />
          {hasHours && (
            <Choice
              label="Hour"
              name={`variant-hour-${n}`}
              value={hour}
              choices={[
                ["", "As the campaign"],
                ["best", "Best hour of each subscriber"],
                ["campaign", "Scheduled time"],
              ]}
              choose={(hour) => put(n, { hour: hour as Variant["hour"] })}
              fault={problem?.fault(`/variants/${n}/hour`)}
            />
          )}
          <button type="button" class="plain" onClick={() => change(withoutVariant(draft, n))}>
            Remove<span class="hidden"> {name}</span>
          </button>
        </div>
      ))}
      {mayTest && (
        <Check name="tested" checked={draft.isTested} change={(isTested) => change({ isTested })}>
          Test on a part of the audience first, then send the winner to all others
        </Check>
      )}
      {draft.isTested && byRecipient && (
        <p class="fault">A test is not possible with local send times: recipients have different times.</p>
      )}
      {draft.isTested && mayTest && (
        <div class="pair">
          <Text
            label="Test group (%)"
            name="share"
            value={draft.share}
            change={(share) => change({ share })}
            max={5}
            hint="Up to 50."
            fault={problem?.fault("/test/share")}
            check={faults.share}
          />
          <Text
            label="Test duration (hours)"
            name="test-hours"
            value={draft.testHours}
            change={(testHours) => change({ testHours })}
            max={6}
            fault={problem?.fault("/test/after")}
            check={faults.testHours}
          />
          <Text
            label="Confidence (%)"
            name="confidence"
            value={draft.confidence}
            change={(confidence) => change({ confidence })}
            max={5}
            hint="80 to 99.9."
            fault={problem?.fault("/test/confidence")}
            check={faults.confidence}
          />
          <Choice
            label="Without a winner, all others get"
            name="otherwise"
            value={draft.otherwise}
            choices={[
              ["first", `variant ${variants[0]?.name || "1"}`],
              ["stop", "nothing"],
            ]}
            choose={(otherwise) => change({ otherwise: otherwise as "first" | "stop" })}
          />
          <Choice
            label="Decide by"
            name="decide-by"
            value={draft.decideBy}
            choices={[
              ["clicks", "clicks"],
              ["conversions", "a kind of conversion"],
            ]}
            choose={(decideBy) => change({ decideBy: decideBy as Draft["decideBy"] })}
          />
          {draft.decideBy === "conversions" && (
            <Text
              label="Kind of conversion"
              name="conversion"
              value={draft.conversion}
              change={(conversion) => change({ conversion })}
              placeholder="order"
              max={200}
              hint="As your pages or your backend report it. The app must measure conversions: see Settings, Measurement."
              fault={problem?.fault("/test/by")}
            />
          )}
        </div>
      )}
      {!faults.share && !faults.testHours && !faults.confidence && <p class="fine">{testWords(planOf(draft))}</p>}
      {problem?.fault("/test") && <p class="fault">It {problem.fault("/test")}.</p>}
    </Card>
  );
}
