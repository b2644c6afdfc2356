/** Links and images of recent messages, as suggestions for a new one. Pure. */
import type { Notification } from "../api/types";

export const SUGGESTED = ["url", "icon", "image", "badge"] as const;
export type Suggested = (typeof SUGGESTED)[number];
export type Recent = Record<Suggested, string[]>;

/** Suggestions of one field. */
const MAX = 10;

/** Distinct values of each field, in the order of the messages. */
export function recentOf(contents: readonly Notification[]): Recent {
  const values = (of: Suggested) => [
    ...new Set(
      contents
        .flatMap((content) => [content[of], ...(of === "url" ? (content.actions ?? []).map(({ url }) => url) : [])])
        .filter((value): value is string => Boolean(value)),
    ),
  ];
  return Object.fromEntries(SUGGESTED.map((of) => [of, values(of).slice(0, MAX)])) as Recent;
}
