import type { Details } from "../types";
import { within } from "./database";

/** What the page says of itself besides `Details`. */
export interface Said extends Details {
  locale?: string;
  timezone?: string;
}

/** What this browser has agreed with the server, for one service worker's scope. */
export interface Saved {
  /** Of this shape. A record of another version is begun anew. */
  v: 1;
  scope: string;
  app: string;
  server: string;
  /** The person asked for notifications and has not taken it back. */
  wanted: boolean;
  /** The browser's present subscription is not to be used any more. */
  renew: boolean;
  /** As registered. */
  id?: string;
  /** None: the server has said whose the subscription is, and will not have it changed by whoever merely has this browser. */
  token?: string;
  endpoint?: string;
  key?: string;
  userId?: string | null;
  /** What the server knows, as far as we know. */
  said: Said;
  /** What the server has yet to be told. */
  unsaid: Said;
  /** Subscriptions whose end the server has yet to be told. */
  ended: { url: string; token?: string }[];
  /** When the server last agreed. Milliseconds since 1970. */
  checked: number;
  /** The soft prompt was put off until then. */
  later: number;
}

const ENDED_MAX = 10;

export const base = (of: { server: string; app: string }) => `${of.server}/v1/apps/${encodeURIComponent(of.app)}`;

/** The record of a scope, if there is one. Rejects where the browser keeps nothing for this site. */
export async function load(scope: string): Promise<Saved | undefined> {
  const saved = await within<Saved | undefined>(["saved"], "readonly", (store) => store("saved").get(scope));
  return saved?.v === 1 ? saved : undefined;
}

/** The record of a scope for this app: another app's agreements are forgotten, the person's wish is not. */
export async function loadFor(scope: string, app: string, server: string): Promise<Saved> {
  const found = await load(scope);
  if (found?.app === app && found.server === server) return found;
  const { wanted = false, ended = [], later = 0 } = found ?? {};
  return { v: 1, scope, app, server, wanted, renew: false, said: {}, unsaid: {}, ended, checked: 0, later };
}

export async function save(saved: Saved): Promise<void> {
  await within(["saved"], "readwrite", (store) => void store("saved").put(saved));
}

/** Whether the server knows all that this browser would say. */
export const settled = (saved: Saved) =>
  !!saved.id && !saved.renew && !Object.keys(saved.unsaid).length;

/** Ends the subscription in the record. To make it so is `reconcile`'s part, also after a crash in between. */
export function end(saved: Saved): void {
  if (saved.id) {
    const ended = { url: `${base(saved)}/subscriptions/${saved.id}`, token: saved.token };
    saved.ended = [...saved.ended, ended].slice(-ENDED_MAX);
  }
  saved.renew ||= saved.wanted; // even if no answer ever came: the server may know it all the same
  Object.assign(saved, { wanted: false, said: {}, unsaid: {}, checked: 0, userId: null });
  delete saved.id, delete saved.token, delete saved.endpoint, delete saved.key;
}
