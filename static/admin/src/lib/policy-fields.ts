/** The fields of each form of delivery policy, with the names that its publisher gave them. */
import type { PolicyLevel } from "../api/types";

/** Input type of a field. */
export type Written = "integer" | "number" | "text" | "choice" | "switch";

export interface Field {
  /** The member within the policy (RFC 6901). */
  pointer: string;
  label: string;
  /** Placeholder of an empty field: the effective default. */
  standard: string;
  kind: Written;
  unit?: string;
  choices?: readonly string[];
  /** Fields of one group stand together, under its name. */
  group?: string;
  help?: string;
}

const sns = (name: string, label: string, standard: string, more: Partial<Field> = {}): Field => ({
  pointer: `/healthyRetryPolicy/${name}`,
  label,
  standard,
  kind: "integer",
  ...more,
});

export const FORM_FIELDS: Record<"guide" | "sns" | "qstash" | "preset", readonly Field[]> = {
  guide: [
    {
      pointer: "/maxAttempts",
      label: "Retries",
      standard: "5",
      kind: "integer",
      help: "The first POST does not count.",
    },
    { pointer: "/immediateRetries", label: "Of these without delay", standard: "0", kind: "integer" },
    { pointer: "/baseDelayMs", label: "First delay", standard: "2000", kind: "integer", unit: "ms" },
    { pointer: "/maxDelayMs", label: "Longest delay", standard: "60000", kind: "integer", unit: "ms" },
    {
      pointer: "/jitterPercent",
      label: "Jitter, as a share",
      standard: "0.2",
      kind: "number",
      help: "0.2 spreads each delay by a fifth either way.",
    },
  ],
  sns: [
    sns("numRetries", "Retries", "3", { help: "All phases together." }),
    sns("numNoDelayRetries", "Of these without delay", "0"),
    sns("numMinDelayRetries", "Then at the shortest delay", "0"),
    sns("numMaxDelayRetries", "Last at the longest delay", "0"),
    sns("minDelayTarget", "Shortest delay", "20", { unit: "s" }),
    sns("maxDelayTarget", "Longest delay", "20", { unit: "s" }),
    sns("backoffFunction", "Growth between them", "linear", {
      kind: "choice",
      choices: ["linear", "arithmetic", "geometric", "exponential"],
    }),
    {
      pointer: "/throttlePolicy/maxReceivesPerSecond",
      label: "Deliveries per second to one subscription",
      standard: "no limit",
      kind: "integer",
      group: "Throttle and label",
    },
    {
      pointer: "/requestPolicy/headerContentType",
      label: "Media type of raw payloads",
      standard: "text/plain; charset=UTF-8",
      kind: "text",
      group: "Throttle and label",
    },
  ],
  qstash: [
    { pointer: "/retries", label: "Retries", standard: "the app’s maximum", kind: "integer" },
    {
      pointer: "/retryDelay",
      label: "Delay in milliseconds, by “retried”",
      standard: "growing by e^2.5, up to a day",
      kind: "text",
      help: "For example pow(2, retried) * 1000; retried is 0 for the first retry. Also sqrt abs exp floor ceil round min max.",
    },
  ],
  preset: [
    {
      pointer: "/preset",
      label: "Preset",
      standard: "",
      kind: "choice",
      choices: ["guide", "sns-customer-managed", "sns-aws-managed"],
    },
  ],
};

const BREAKER = "Breaker and retry tokens";
const breaker = (name: string, label: string, more: Partial<Field> = {}): Field => ({
  pointer: `/${name}`,
  label,
  standard: "default",
  kind: "integer",
  group: BREAKER,
  ...more,
});

/** Fields beside those of the form. */
export const COMMON_FIELDS: Record<PolicyLevel, readonly Field[]> = {
  tier: [
    breaker("circuitFailureThreshold", "Share of failures that opens the breaker", { kind: "number" }),
    breaker("circuitMinAttempts", "Minimum POSTs per minute for this share"),
    breaker("circuitConsecutiveFailures", "Consecutive failures that open the breaker"),
    breaker("circuitOpenMs", "First open period", { unit: "ms" }),
    breaker("circuitOpenMaxMs", "Longest open period", { unit: "ms" }),
    breaker("retryTokenTtlSec", "Lifetime of a retry token", { unit: "s" }),
  ],
  topic: [
    {
      pointer: "/disableSubscriptionOverrides",
      label: "Ignore policies of subscriptions",
      standard: "",
      kind: "switch",
    },
  ],
  subscription: [],
  message: [],
};
