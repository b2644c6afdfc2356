import { api, told } from "./api/client";
import type { AppResponse, SessionResponse } from "./api/types";
import { may } from "./lib/roles";

/** Apps that the switcher shows; who has more finds the rest by the address. */
const SHOWN_MAX = 250;

/** Apps that the user may read, by name. A user with roles for single apps cannot list all apps. */
export async function appsOf(session: SessionResponse, signal: AbortSignal): Promise<AppResponse[]> {
  const sees = may(session, "viewer", null) ? await all(signal) : await each(session, signal);
  return sees.filter((app) => !app.deleting_at).sort((a, b) => a.name.localeCompare(b.name));
}

async function all(signal: AbortSignal): Promise<AppResponse[]> {
  return (await told(api.GET("/v1/apps", { params: { query: { limit: SHOWN_MAX } }, signal }))).data;
}

function each(session: SessionResponse, signal: AbortSignal): Promise<AppResponse[]> {
  const ids = session.roles.flatMap(({ app }) => (app ? [app] : [])).slice(0, SHOWN_MAX);
  return Promise.all(ids.map((app) => told(api.GET("/v1/apps/{app}", { params: { path: { app } }, signal }))));
}

/** The app that an address names by id or slug; the only one there is needs no naming. */
export function chosen(apps: readonly AppResponse[], named: string | undefined): AppResponse | undefined {
  if (named) return apps.find(({ id, slug }) => id === named || slug === named);
  return apps.length === 1 ? apps[0] : undefined;
}
