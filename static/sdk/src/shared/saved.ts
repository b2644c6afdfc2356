import type { Details } from "../types";
import { clock } from "./clock";
import { within } from "./database";

/** `Details` with the mute, and values that the page reads from the browser. */
export interface Said extends Details {
  muted?: { until?: string | Date | null } | null;
  locale?: string;
  timezone?: string;
}

/** State of the subscription to one app in the scope of one service worker. */
export interface Saved {
  /** Version of this shape. A record of another version is replaced. */
  v: 1;
  scope: string;
  app: string;
  server: string;
  /** The person subscribed and has not unsubscribed. */
  wanted: boolean;
  /** The browser's current push subscription must be replaced. */
  renew: boolean;
  id?: string;
  /** Absent: the server bound the subscription to a user, and refuses changes without proof of that user. */
  token?: string;
  endpoint?: string;
  key?: string;
  userId?: string | null;
  /** Values that the server confirmed. */
  said: Said;
  /** Values that the server has not confirmed yet. */
  unsaid: Said;
  /** Ended subscriptions that the server has not confirmed yet. */
  ended: { url: string; token?: string }[];
  /** Time of the last confirmation, in milliseconds since 1970. */
  checked: number;
  /** Time at which a visit first found that the server has a new key. The old subscription is kept until its queue has drained. */
  rotating?: number;
  /** Time until which "Later" suppresses the soft prompt. */
  later: number;
}

const ENDED_MAX = 10;

export const base = (of: { server: string; app: string }) => `${of.server}/v1/apps/${encodeURIComponent(of.app)}`;

/** Key of a record. Earlier versions stored one record per scope, under the scope alone. A scope contains no spaces. */
const keyFor = ({ scope, app }: { scope: string; app: string }) => `${scope} ${app}`;

/** Reads the records of a scope, one per app. Rejects if the browser stores nothing for this site. */
export async function loadAll(scope: string): Promise<Saved[]> {
  const keys = IDBKeyRange.bound(scope, `${scope} \uffff`);
  const found = await within<Saved[]>(["saved"], "readonly", (store) => store("saved").getAll(keys));
  const records = new Map<string, Saved>();
  // The key of an earlier version comes first, and a record under today's key replaces it.
  for (const record of found) {
    if (record.v !== 1) continue;
    records.set(record.app, { ...record, scope });
    // The server would refuse the end of a mute that waited too long for a connection.
    for (const values of [record.said, record.unsaid])
      if (Date.parse(values.muted?.until as string) < clock.now()) delete values.muted;
  }
  return [...records.values()];
}

/** Reads the record of an app in a scope. */
export const load = async (scope: string, app: string): Promise<Saved | undefined> =>
  (await loadAll(scope)).find((saved) => saved.app === app);

/** Returns the record of the app that owns the scope's only subscription. */
export const ownerOf = (records: Saved[]): Saved | undefined =>
  records.find(isSubscribed) ?? records.find(({ wanted }) => wanted) ?? records.find(({ renew }) => renew);

/** Whether the server accepted the subscription. One that it refused, for a mistyped app for example, blocks no other app. */
const isSubscribed = ({ wanted, id }: Saved): boolean => wanted && !!id;

/** Returns another app that is subscribed in this scope. */
export const otherOwner = async (scope: string, app: string): Promise<string | undefined> =>
  (await loadAll(scope)).find((saved) => isSubscribed(saved) && saved.app !== app)?.app;

/** Reads the record of an app in a scope, or makes one. From a record for another server, only the person's choice is kept. */
export async function loadFor(scope: string, app: string, server: string): Promise<Saved> {
  const found = await load(scope, app);
  if (found?.server === server) return found;
  const { wanted = false, ended = [], later = 0 } = found ?? {};
  return { v: 1, scope, app, server, wanted, renew: false, said: {}, unsaid: {}, ended, checked: 0, later };
}

export async function save(saved: Saved): Promise<void> {
  await within(["saved"], "readwrite", (store) => {
    const { scope, app } = saved;
    store("saved").put({ ...saved, scope: keyFor(saved) });
    store("saved").get(scope).onsuccess = ({ target }) => {
      if ((target as IDBRequest<Saved | undefined>).result?.app === app) store("saved").delete(scope);
    };
  });
}

/** Whether the server confirmed all values. */
export const settled = (saved: Saved) => !!saved.id && !saved.renew && !Object.keys(saved.unsaid).length;

/**
 * Ends the subscription in the record. `reconcile` then ends it in the browser and at the server, also after a crash. With
 * `stays`, a new one replaces it.
 */
export function end(saved: Saved, stays = false): void {
  if (saved.id) {
    const ended = { url: `${base(saved)}/subscriptions/${saved.id}`, token: saved.token };
    saved.ended = [...saved.ended, ended].slice(-ENDED_MAX);
  }
  saved.renew ||= saved.wanted; // even without a response: the server may have stored the subscription
  Object.assign(saved, { wanted: saved.wanted && stays, said: {}, unsaid: {}, checked: 0, userId: null });
  delete saved.id, delete saved.token, delete saved.endpoint, delete saved.key, delete saved.rotating;
}
