/** Target of a search: pages by name, push services by name or number, failed deliveries by reason, other objects by id. Pure. */
import { ALL_PAGES } from "../pages";
import type { Filters } from "./url";
import { GATEWAY_NAMES, gatewayName, REASON_NAMES } from "./words";

export interface Found {
  path: string;
  filters?: Filters;
}

/** Pages of things that have an id with this prefix. */
const BY_PREFIX: Record<string, string> = { msg_: "/messages", cmp_: "/campaigns", sub_: "/subscribers" };

export function resolve(text: string): Found | undefined {
  const wanted = text.trim();
  const lower = wanted.toLowerCase();
  if (lower === "") return undefined;
  const [prefix] = /^[a-z]+_/.exec(lower) ?? [""];
  const list = BY_PREFIX[prefix];
  if (list) return { path: `${list}/${wanted}` };
  const lane = /^(?:lane\s*)?(\d+)$/.exec(lower);
  if (lane) return { path: `/push-services/${lane[1]}` };
  const gateway = GATEWAY_NAMES.find((name) => name === lower || gatewayName(name).toLowerCase() === lower);
  if (gateway) return { path: "/push-services", filters: { gateway } };
  if (REASON_NAMES.includes(lower)) return { path: "/dead-letters", filters: { reason: lower } };
  if (lower === "lanes") return { path: "/push-services" };
  if ("dead letters".startsWith(lower)) return { path: "/dead-letters" };
  const page = ALL_PAGES.find(({ title }) => title.toLowerCase().startsWith(lower));
  return page && { path: page.path };
}

/** Objects with names, as suggestions. */
export const SUGGESTIONS: readonly string[] = [...ALL_PAGES.map(({ title }) => title), ...GATEWAY_NAMES.map(gatewayName)];
