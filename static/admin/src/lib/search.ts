/** Search for pages, settings and objects of apps by name or id. Pure. */
import type { AppResponse } from "../api/types";
import { ALL_PAGES, SETTINGS } from "../pages";
import type { Filters } from "./url";
import { GATEWAY_NAMES, gatewayName, REASON_NAMES, reasonWords } from "./words";

export interface Found {
  path: string;
  filters?: Filters;
}

/** Kinds of entries, in the order of their display. */
export const KINDS = [
  "Id",
  "User",
  "Page",
  "Setting",
  "Message",
  "Campaign",
  "Segment",
  "Template",
  "Topic",
  "App",
  "Push service",
  "Failure",
] as const;
export type Kind = (typeof KINDS)[number];

/** Something that a search finds. */
export interface Entry extends Found {
  kind: Kind;
  title: string;
  /** Place or kind of the result. */
  about?: string | undefined;
  /** Other words for it. */
  words?: string;
}

/** Pages of objects that have an id with this prefix; `%` stands for the id. */
const BY_PREFIX: Record<string, { path: string; what: string }> = {
  msg_: { path: "/messages/%", what: "Message" },
  cmp_: { path: "/campaigns/%", what: "Campaign" },
  sub_: { path: "/subscribers/%", what: "Subscription" },
  dl_: { path: "/dead-letters/%", what: "Failed delivery" },
  wh_: { path: "/webhooks/%", what: "Webhook" },
  app_: { path: "/settings/apps", what: "App" },
  vk_: { path: "/settings/keys", what: "VAPID key" },
  ik_: { path: "/settings/keys", what: "Identity key" },
  ak_: { path: "/settings/keys", what: "API key" },
  tm_: { path: "/settings/team", what: "Teammate" },
  aud_: { path: "/settings/audit", what: "Entry of the audit log" },
  imp_: { path: "/transfers", what: "Import" },
  exp_: { path: "/transfers", what: "Export" },
  al_: { path: "/", what: "Alert" },
};

const ID = /^([a-z]+_)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Objects that a text names by id or number: one, or a delivery by its message and subscription. */
export function byId(text: string): Entry[] {
  const lane = /^(?:lane\s*)?(\d{1,9})$/i.exec(text.trim());
  if (lane)
    return [{ kind: "Id", title: `Lane ${lane[1]}`, about: "Push services", path: `/push-services/${lane[1]}` }];
  const ids = [...new Set(text.trim().split(/[\s/,]+/))].filter((id) => ID.test(id));
  const [message, subscription] = [ids.find((id) => id.startsWith("msg_")), ids.find((id) => id.startsWith("sub_"))];
  const delivery: Entry[] =
    message && subscription
      ? [
          {
            kind: "Id",
            title: "Delivery of this message to this subscription",
            path: "/deliveries",
            filters: { message, who: subscription },
          },
        ]
      : [];
  return [
    ...delivery,
    ...ids.flatMap((id): Entry[] => {
      const of = BY_PREFIX[ID.exec(id)?.[1] ?? ""];
      return of ? [{ kind: "Id", title: of.what, about: id, path: of.path.replace("%", id) }] : [];
    }),
    ...(message && !subscription
      ? [
          {
            kind: "Id" as const,
            title: "Deliveries of this message",
            about: message,
            path: "/deliveries",
            filters: { message },
          },
        ]
      : []),
  ];
}

/** Entries that need no request. */
export function fixed(apps: readonly AppResponse[]): Entry[] {
  return [
    ...ALL_PAGES.map(
      ({ title, path, about, words }): Entry => ({ kind: "Page", title, path, about, ...(words ? { words } : {}) }),
    ),
    ...SETTINGS.map(({ title, path, words }): Entry => ({ kind: "Setting", title, path, about: "Settings", words })),
    ...apps.map(
      ({ name, slug, id }): Entry => ({
        kind: "App",
        title: name,
        about: slug,
        words: id,
        path: "/",
        filters: { app: slug },
      }),
    ),
    ...GATEWAY_NAMES.map(
      (gateway): Entry => ({
        kind: "Push service",
        title: gatewayName(gateway),
        words: gateway,
        path: "/push-services",
        filters: { gateway },
      }),
    ),
    ...REASON_NAMES.map(
      (reason): Entry => ({
        kind: "Failure",
        title: reasonWords(reason).title,
        about: reason,
        path: "/dead-letters",
        filters: { reason },
      }),
    ),
  ];
}

/** Without case and accents. */
const plain = (text: string): string => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

/** Quality of a match: 3 at the start of the title, 2 at the start of a word, 1 elsewhere, 0 none. Each word of the text must match. */
function rank({ title, about, words }: Entry, wanted: readonly string[]): number {
  const name = plain(title);
  const all = plain(`${title} ${about ?? ""} ${words ?? ""}`);
  if (!wanted.every((word) => all.includes(word))) return 0;
  const [first = ""] = wanted;
  if (name.startsWith(first)) return 3;
  return wanted.every((word) => all.startsWith(word) || all.includes(` ${word}`)) ? 2 : 1;
}

/** Newest rows of each list that are searched. */
export const ROWS_MAX = 250;
/** Apps whose objects are searched. */
export const APPS_MAX = 5;

/** Entries of one kind, and of all, that a search shows. */
const OF_KIND_MAX = 6;
export const FOUND_MAX = 24;

/** The best matches of each kind, grouped in the order of `KINDS`; kinds with better matches come first. */
export function search(entries: readonly Entry[], text: string): Entry[] {
  const wanted = plain(text).split(/\s+/).filter(Boolean);
  if (wanted.length === 0) return [];
  const ranked = entries
    .map((entry) => ({ entry, rank: entry.kind === "Id" || entry.kind === "User" ? 4 : rank(entry, wanted) }))
    .filter(({ rank }) => rank > 0);
  const groups = KINDS.map((kind) =>
    ranked.filter(({ entry }) => entry.kind === kind).sort((a, b) => b.rank - a.rank),
  ).filter((group) => group.length > 0);
  const best = (group: (typeof groups)[number]) => group[0]?.rank ?? 0;
  return groups
    .sort((a, b) => best(b) - best(a))
    .flatMap((group) => group.slice(0, OF_KIND_MAX).map(({ entry }) => entry))
    .slice(0, FOUND_MAX);
}

/** Identity of an entry, which stays as other results arrive. */
export const keyOf = ({ kind, title, about, path, filters }: Entry): string =>
  JSON.stringify([kind, title, about, path, filters]);

/** Key of the entry after a step through the results. Undefined: the field, which lies between the last entry and the first. */
export function stepped(found: readonly Entry[], chosen: string | undefined, by: number): string | undefined {
  const keys = [undefined, ...found.map(keyOf)];
  return keys.at((Math.max(0, keys.indexOf(chosen)) + by) % keys.length);
}
