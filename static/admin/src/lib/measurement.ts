/** Settings by which an app measures its campaigns, as a form has them. Pure. */
import type { MeasurementSettings } from "../api/types";
import { entriesOf, parametersFault, parametersOf, parametersText } from "./link-parameters";

export interface MeasurementDraft {
  /** Period such as `7d`. Empty: nothing is measured. */
  window: string;
  after: NonNullable<MeasurementSettings["after"]>;
  attribution: NonNullable<MeasurementSettings["attribution"]>;
  isTagged: boolean;
  /** One on each line. */
  hosts: string;
  /** `name=value`, one on each line. */
  parameters: string;
}

/** Parameters that the server adds by default. */
export const USUAL_PARAMETERS = parametersText({
  utm_source: "push",
  utm_medium: "web-push",
  utm_campaign: "{campaign}",
  utm_content: "{variant}",
});

export function measurementDraft({
  window,
  after = "clicked",
  attribution = "last",
  link_tags,
}: MeasurementSettings): MeasurementDraft {
  return {
    window: window ?? "",
    after,
    attribution,
    isTagged: link_tags != null,
    hosts: link_tags?.hosts.join("\n") ?? "",
    parameters: link_tags?.parameters ? parametersText(link_tags.parameters) : USUAL_PARAMETERS,
  };
}

export function measurementOf(draft: MeasurementDraft): MeasurementSettings {
  const { window, after, attribution, isTagged, hosts, parameters } = draft;
  return {
    window: window.trim() || null,
    after,
    attribution,
    link_tags: isTagged ? { hosts: entriesOf(hosts), parameters: parametersOf(parameters) } : null,
  };
}

/** Missing or invalid part. Undefined: complete as far as the page can check. */
export function lacksOfMeasurement({ isTagged, hosts, parameters }: MeasurementDraft): string | undefined {
  if (!isTagged) return undefined;
  if (entriesOf(hosts).length === 0) return "Enter the hosts whose links get parameters.";
  return parametersFault(parameters) && "Correct the parameters.";
}

/** Whether there is something to remove. */
export const isMeasured = ({ window, link_tags }: MeasurementSettings): boolean => window != null || link_tags != null;

/** Members with a field, which shows their fault. */
export const MEASUREMENT_FIELDS = /^\/(window|after|attribution|link_tags\/(hosts|parameters)(\/.*)?)$/;
