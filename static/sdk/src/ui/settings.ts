// Settings of the server, and the rules by which the prompt appears.

export type Layout = "card" | "bar" | "dialog";

/** Texts in place of others, by language and name. */
export type PromptTexts = Record<string, Record<string, string>>;

/** Variant of the prompt, for the comparison of several. */
export interface Variant {
  name: string;
  /** Share of the browsers, in proportion to the other weights. */
  weight: number;
  /** Null: that of the prompt. */
  layout: Layout | null;
  /** Texts in place of those of the prompt. */
  texts: PromptTexts;
}

/** `prompt` of `…/config`. */
export interface PromptSettings {
  /** Whether the prompt appears by itself. */
  enabled: boolean;
  layout: Layout;
  /** Topics of the subscription. */
  topics: string[];
  /** Minimum number of visits. */
  visits: number;
  /** Minimum seconds on the page. */
  seconds: number;
  /** Minimum share of the page that was scrolled into view, in percent. */
  scroll_percent: number;
  /** Name that `suggest()` has to be called with. Null: no event is needed. */
  event: string | null;
  /** Share of browsers that are asked, in percent. */
  share_percent: number;
  /** Days without the prompt after a no. */
  no_days: number;
  /** Days without the prompt after "not now". */
  not_now_days: number;
  /** Texts in place of the built-in ones. */
  texts: PromptTexts;
  /** Empty: all browsers see the prompt as it is. */
  variants: Variant[];
}

/** Settings while the server cannot be reached: the prompt does not appear by itself. */
export const PLAIN = { topics: [] as string[], texts: {}, variants: [] as Variant[] } as PromptSettings;

/** State of this browser and of the page view. */
export interface Situation {
  now: number;
  /** Time until which an answer suppresses the prompt. */
  until: number;
  visits: number;
  seconds: number;
  scrolled: number;
  suggested: ReadonlySet<string>;
  /** Random number of this browser, from 0 to less than 1. */
  luck: number;
  /** First start from an icon on the Home Screen, which the person added for the notifications. */
  isFirstStart: boolean;
}

/** Whether the prompt is due. All conditions have to hold. */
export function isDue(settings: PromptSettings, at: Situation): boolean {
  if (at.now < at.until) return false;
  if (at.isFirstStart) return true;
  const { visits, seconds, scroll_percent, event, share_percent } = settings;
  if (at.luck * 100 >= share_percent || at.visits < visits) return false;
  return at.seconds >= seconds && at.scrolled >= scroll_percent && (!event || at.suggested.has(event));
}

/** Returns the variant of the browser with a random number from 0 to less than 1. Servers of earlier versions have no variants. */
export function variantOf({ variants = [] }: PromptSettings, draw: number): Variant | undefined {
  let left = draw * variants.reduce((sum, { weight }) => sum + weight, 0);
  return variants.find(({ weight }) => (left -= weight) < 0);
}
