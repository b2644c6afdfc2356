/** Predefined campaigns that events trigger: fields of the form to start from. Pure. */
import { BLANK, type Draft } from "./campaign-draft";
import { BLANK_TRIGGER, type TriggerDraft } from "./trigger";

export interface CampaignPreset {
  /** Name in addresses of the page. */
  id: string;
  title: string;
  /** Requirements and effect, in one sentence. Names are marked as code. */
  about: string;
  name: string;
  /** Title and text of the notification. */
  content: { title: string; body: string };
  trigger: TriggerDraft;
}

export const PRESETS: readonly CampaignPreset[] = [
  {
    id: "welcome",
    title: "Welcome after subscribing",
    about: "The first notification of each new subscriber, one minute later.",
    name: "Welcome",
    content: { title: "Welcome!", body: "Notifications work on this device. You hear from us when there is news." },
    trigger: { ...BLANK_TRIGGER, cause: "subscribed", wait: "1", waitUnit: "m", limit: "once" },
  },
  {
    id: "cart",
    title: "Abandoned cart reminder",
    about: "30 minutes after your site reports `cart_added`, unless it reports `bought`.",
    name: "Abandoned cart",
    content: { title: "Still interested?", body: "Your cart is waiting for you." },
    trigger: {
      ...BLANK_TRIGGER,
      cause: "event",
      event: "cart_added",
      wait: "30",
      waitUnit: "m",
      unless: "bought",
      limit: "per",
      limitSpan: "7",
      limitUnit: "d",
    },
  },
];

export const presetOf = (id: string | undefined): CampaignPreset | undefined =>
  PRESETS.find((known) => known.id === id);

/** Changes that fill a draft. Audience, delivery options, send rate and holdout stay. */
export function presetChanges(preset: CampaignPreset, draft: Draft): Partial<Draft> {
  return {
    name: preset.name,
    slug: "",
    message: { ...draft.message, says: "text", template: "", data: "", ...preset.content },
    when: "event",
    trigger: preset.trigger,
    variants: [],
    isTested: false,
  };
}

/** Members of a draft that a preset replaces, to compare them. */
function replaced({ name, slug, message, when, trigger, variants }: Draft): string {
  const { says, template, data, title, body } = message;
  return JSON.stringify([name, slug, says, template, data, title, body, when, trigger, variants]);
}

/** Whether a preset would replace fields that were written or changed. Fields of another preset may be replaced. */
export function hasWork(draft: Draft): boolean {
  const untouched = [BLANK, ...PRESETS.map((preset) => ({ ...BLANK, ...presetChanges(preset, BLANK) }))];
  return !untouched.map(replaced).includes(replaced(draft));
}
