/** Settings that need an action, with the reason. Pure. */
import type { components } from "../api/schema";
import { percent, relative, things } from "./format";
import type { Tone } from "./words";

type VapidKey = components["schemas"]["VapidKeyResponse"];
type ApiKey = components["schemas"]["ApiKeyResponse"];
type Teammate = components["schemas"]["TeammateResponse"];

const DAY_MS = 86_400_000;
/** Days without use after which a key counts as forgotten. */
export const UNUSED_AFTER_DAYS = 90;
/** Days before the end of a key at which a notice appears. */
const ENDS_SOON_DAYS = 30;

/** Number of subscriptions that have moved to the active key. */
export interface Rotation {
  moved: number;
  /** Those of all keys that sign for anybody. */
  of: number;
  /** Time since which the active key is active. */
  since: string;
}

/** The rotation that is under way; none: every subscription is on the active key. */
export function rotation(keys: readonly VapidKey[]): Rotation | undefined {
  const active = keys.find(({ state }) => state === "active");
  const all = keys.reduce((sum, key) => sum + (key.subscriptions ?? 0), 0);
  const moved = active?.subscriptions ?? 0;
  return active && moved < all ? { moved, of: all, since: active.created_at } : undefined;
}

export type KeyState = "valid" | "expires soon" | "unused" | "expired" | "revoked";

export const KEY_STATES: Record<KeyState, { word: string; tone: Tone }> = {
  valid: { word: "Valid", tone: "accepted" },
  "expires soon": { word: "Expires soon", tone: "retrying" },
  unused: { word: "Unused", tone: "retrying" },
  expired: { word: "Expired", tone: "cancelled" },
  revoked: { word: "Revoked", tone: "cancelled" },
};

export function keyState({ revoked_at, expires_at, last_used_on, created_at }: ApiKey, now: Date): KeyState {
  if (revoked_at) return "revoked";
  const left = expires_at ? Date.parse(expires_at) - now.getTime() : Infinity;
  if (left <= 0) return "expired";
  if (left < ENDS_SOON_DAYS * DAY_MS) return "expires soon";
  return now.getTime() - Date.parse(last_used_on ?? created_at) > UNUSED_AFTER_DAYS * DAY_MS ? "unused" : "valid";
}

export type TeammateState = "active" | "invited" | "link expired" | "disabled";

export const TEAMMATE_STATES: Record<TeammateState, { word: string; tone: Tone }> = {
  active: { word: "Active", tone: "accepted" },
  invited: { word: "Invited", tone: "waiting" },
  "link expired": { word: "Link expired", tone: "retrying" },
  disabled: { word: "Disabled", tone: "cancelled" },
};

export function teammateState(
  { disabled_at, has_password, oidc_linked_at, link_expires_at }: Teammate,
  now: Date,
): TeammateState {
  if (disabled_at) return "disabled";
  if (link_expires_at && Date.parse(link_expires_at) > now.getTime()) return "invited";
  return has_password || oidc_linked_at ? "active" : "link expired";
}

/** A setting that needs an action. */
export interface Note {
  id: string;
  tone: Tone;
  words: string;
  why: string;
  /** The page that does something about it. */
  path: string;
  /** The app that it is about, by slug. */
  app?: string;
}

interface Known {
  app: { slug: string; name: string };
  vapidKeys: readonly VapidKey[];
  apiKeys: readonly ApiKey[];
}

/** Settings that need an action, most severe first. `team` is undefined without permission. */
export function notes(apps: readonly Known[], team: readonly Teammate[] | undefined, now: Date): Note[] {
  const found = [
    ...apps.flatMap((known) => ofKeys(known, now)),
    ...apps.flatMap(ofRotation),
    ...(team ?? []).flatMap((teammate) => ofTeammate(teammate, now)),
  ];
  const gravity = ({ tone }: Note) => ["lost", "retrying", "waiting"].indexOf(tone);
  return found.sort((a, b) => gravity(a) - gravity(b));
}

function ofKeys({ app, apiKeys }: Known, now: Date): Note[] {
  return apiKeys.flatMap((key): Note[] => {
    const base = { id: key.id, path: "/settings/keys", app: app.slug };
    switch (keyState(key, now)) {
      case "expires soon":
        return [
          {
            ...base,
            tone: "lost",
            words: `The API key “${key.name}” of ${app.name} expires ${relative(new Date(key.expires_at ?? 0), now)}`,
            why: "Create another key and switch to it before: requests with an expired key fail.",
          },
        ];
      case "unused": {
        const why = key.last_used_on
          ? `It was last used ${relative(new Date(key.last_used_on), now)}.`
          : `It was created ${relative(new Date(key.created_at), now)}, and no use is recorded.`;
        return [
          {
            ...base,
            tone: "retrying",
            words: `The API key “${key.name}” of ${app.name} is not used`,
            why: `${why} Revoke the key if no program needs it.`,
          },
        ];
      }
      default:
        return [];
    }
  });
}

function ofRotation({ app, vapidKeys }: Known): Note[] {
  const under = rotation(vapidKeys);
  if (!under) return [];
  const left = things(under.of - under.moved, "subscription is", "subscriptions are");
  return [
    {
      id: `rotation ${app.slug}`,
      tone: "waiting",
      words: `${app.name} rotates its VAPID key: ${percent(under.moved / under.of)} of ${things(under.of, "subscription")} moved`,
      why: `${left} still on a retired key, which continues to sign. Each subscription moves at its browser’s next visit.`,
      path: "/settings/keys",
      app: app.slug,
    },
  ];
}

function ofTeammate(teammate: Teammate, now: Date): Note[] {
  const base = { id: teammate.id, path: "/settings/team" };
  switch (teammateState(teammate, now)) {
    case "invited":
      return [
        {
          ...base,
          tone: "waiting",
          words: `${teammate.email} has an unused invitation link`,
          why: `The link expires ${relative(new Date(teammate.link_expires_at ?? 0), now)}.`,
        },
      ];
    case "link expired":
      return [
        {
          ...base,
          tone: "retrying",
          words: `${teammate.email} cannot sign in: the invitation link has expired`,
          why: "Create another link, or remove the teammate.",
        },
      ];
    default:
      return [];
  }
}
