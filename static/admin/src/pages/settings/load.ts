import { api, told } from "../../api/client";
import type { Condition } from "../../api/edit";
import type { components } from "../../api/schema";
import type { AppResponse, MeasurementSettings, PromptFunnel, PromptSettings } from "../../api/types";
import type { Filters } from "../../lib/url";

type Schemas = components["schemas"];
export type VapidKeyResponse = Schemas["VapidKeyResponse"];
export type VapidKeyExport = Schemas["VapidKeyExport"];
export type ApiKey = Schemas["ApiKeyResponse"];
export type CreatedApiKey = Schemas["CreatedApiKey"];
export type IdentityKey = Schemas["IdentityKeyResponse"];
export type CalendarSettings = Schemas["CalendarSettings"];
export type OffPeak = Schemas["CalendarWindow"];
export type Teammate = Schemas["TeammateResponse"];
export type Invited = Schemas["InvitationResponse"];
export type Grant = Schemas["NewGrant"];
export type Passkey = Schemas["PasskeyResponse"];
export type SignedIn = Schemas["SessionListResponse"];
export type Entry = Schemas["AuditEntryResponse"];
export type AppChange = Schemas["AppChange"];
export type NewApp = Schemas["NewApp"];
export type Right = Schemas["BrowserRight"];
export type Scope = Schemas["Scope"];

/** The longest page of a list. Who has more keys or teammates finds the rest by the API. */
const ALL = { limit: 250 };
const of = (app: string) => ({ path: { app } });

export const makeApp = (body: NewApp) => told(api.POST("/v1/apps", { body }));
export const loadApp = (app: string, signal: AbortSignal): Promise<AppResponse> =>
  told(api.GET("/v1/apps/{app}", { params: of(app), signal }));
export const changeApp = (app: string, body: AppChange, header: Condition): Promise<AppResponse> =>
  told(api.PATCH("/v1/apps/{app}", { params: { ...of(app), header }, body }));
export const deleteApp = (app: string, confirm: string) =>
  told(api.DELETE("/v1/apps/{app}", { params: { ...of(app), query: { confirm } } }));

export async function loadVapidKeys(app: string, signal?: AbortSignal): Promise<VapidKeyResponse[]> {
  return (await told(api.GET("/v1/apps/{app}/vapid-keys", { params: { ...of(app), query: ALL }, signal }))).data;
}
export const makeVapidKey = (app: string, body: Partial<Schemas["NewVapidKey"]>) =>
  told(api.POST("/v1/apps/{app}/vapid-keys", { params: of(app), body: body as Schemas["NewVapidKey"] }));
export const changeVapidKey = (app: string, vapid_key: string, subject: string) =>
  told(api.PATCH("/v1/apps/{app}/vapid-keys/{vapid_key}", { params: { path: { app, vapid_key } }, body: { subject } }));
export const exportVapidKey = (app: string, vapid_key: string): Promise<VapidKeyExport> =>
  told(api.POST("/v1/apps/{app}/vapid-keys/{vapid_key}/export", { params: { path: { app, vapid_key } } }));

export async function loadApiKeys(app: string, signal?: AbortSignal): Promise<ApiKey[]> {
  return (await told(api.GET("/v1/apps/{app}/api-keys", { params: { ...of(app), query: ALL }, signal }))).data;
}
export const makeApiKey = (app: string, body: Schemas["NewApiKey"]): Promise<CreatedApiKey> =>
  told(api.POST("/v1/apps/{app}/api-keys", { params: of(app), body }));
export const revokeApiKey = (app: string, api_key: string, keep_descendants: boolean) =>
  told(
    api.DELETE("/v1/apps/{app}/api-keys/{api_key}", {
      params: { path: { app, api_key }, query: { keep_descendants } },
    }),
  );

export async function loadIdentityKeys(app: string, signal: AbortSignal): Promise<IdentityKey[]> {
  return (await told(api.GET("/v1/apps/{app}/identity-keys", { params: of(app), signal }))).data;
}
export const makeIdentityKey = (
  app: string,
  body: Partial<Schemas["NewIdentityKey"]> & { name: string },
): Promise<IdentityKey> =>
  told(api.POST("/v1/apps/{app}/identity-keys", { params: of(app), body: body as Schemas["NewIdentityKey"] }));
export const removeIdentityKey = (app: string, identity_key: string) =>
  told(api.DELETE("/v1/apps/{app}/identity-keys/{identity_key}", { params: { path: { app, identity_key } } }));

export const loadCalendar = (app: string, signal: AbortSignal): Promise<CalendarSettings> =>
  told(api.GET("/v1/apps/{app}/calendar", { params: of(app), signal }));
export const setCalendar = (app: string, body: CalendarSettings, header: Condition): Promise<CalendarSettings> =>
  told(api.PUT("/v1/apps/{app}/calendar", { params: { ...of(app), header }, body }));

export const loadPrompt = (app: string, signal: AbortSignal): Promise<PromptSettings> =>
  told(api.GET("/v1/apps/{app}/prompt", { params: of(app), signal }));
export const setPrompt = (app: string, body: PromptSettings, header: Condition): Promise<PromptSettings> =>
  told(api.PUT("/v1/apps/{app}/prompt", { params: { ...of(app), header }, body }));
export const loadFunnel = (
  app: string,
  query: Pick<PromptFunnel, "since" | "until" | "by">,
  signal: AbortSignal,
): Promise<PromptFunnel> => told(api.GET("/v1/apps/{app}/prompt/funnel", { params: { ...of(app), query }, signal }));

export const loadMeasurement = (app: string, signal: AbortSignal): Promise<MeasurementSettings> =>
  told(api.GET("/v1/apps/{app}/measurement", { params: of(app), signal }));
export const setMeasurement = (
  app: string,
  body: MeasurementSettings,
  header: Condition,
): Promise<MeasurementSettings> =>
  told(api.PUT("/v1/apps/{app}/measurement", { params: { ...of(app), header }, body }));
export const removeMeasurement = (app: string, header: Condition) =>
  told(api.DELETE("/v1/apps/{app}/measurement", { params: { ...of(app), header } }));

export async function loadTeam(signal?: AbortSignal): Promise<Teammate[]> {
  return (await told(api.GET("/v1/team", { params: { query: ALL }, signal }))).data;
}
const whom = (teammate: string) => ({ params: { path: { teammate } } });
export const invite = (email: string, roles: Grant[]): Promise<Invited> =>
  told(api.POST("/v1/team", { body: { email, roles } }));
export const changeTeammate = (id: string, body: Schemas["TeammateChange"]) =>
  told(api.PATCH("/v1/team/{teammate}", { ...whom(id), body }));
export const resetTeammate = (id: string): Promise<Invited> => told(api.POST("/v1/team/{teammate}/reset", whom(id)));
export const resetPasskeys = (id: string) => told(api.DELETE("/v1/team/{teammate}/passkeys", whom(id)));
export const unlinkTeammate = (id: string) => told(api.DELETE("/v1/team/{teammate}/oidc", whom(id)));
export const removeTeammate = (id: string) => told(api.DELETE("/v1/team/{teammate}", whom(id)));

export const setPassword = (body: Schemas["PasswordChange"]) => told(api.PUT("/v1/session/password", { body }));
export async function loadSessions(signal: AbortSignal): Promise<SignedIn[]> {
  return (await told(api.GET("/v1/sessions", { params: { query: ALL }, signal }))).data;
}
export const endSession = (session: string) =>
  told(api.DELETE("/v1/sessions/{session}", { params: { path: { session } } }));
export const endOtherSessions = () => told(api.DELETE("/v1/sessions"));
export async function loadPasskeys(signal: AbortSignal): Promise<Passkey[]> {
  return (await told(api.GET("/v1/session/passkeys", { signal }))).data;
}
export const removePasskey = (passkey: string) =>
  told(api.DELETE("/v1/session/passkeys/{passkey}", { params: { path: { passkey } } }));
export const askForPasskey = () => told(api.POST("/v1/session/passkeys/options"));
export const addPasskey = (name: string, credential: object) =>
  told(api.POST("/v1/session/passkeys", { body: { name, credential: credential as never } }));

export interface EntryPage {
  entries: Entry[];
  /** Cursors of the previous and the next page. */
  next: string | null | undefined;
  previous: string | null | undefined;
}

/** Of one app, or (undefined) of the whole server. */
export async function loadAudit(
  app: string | undefined,
  filters: Filters,
  signal: AbortSignal,
  limit = 50,
): Promise<EntryPage> {
  const { actor, action, since, until, after } = filters;
  // Days are midnights in UTC, as the page says; until the end of the last one.
  const day = (text: string | undefined, plusDays: number) =>
    text && new Date(Date.parse(`${text}T00:00:00Z`) + plusDays * 86_400_000).toISOString();
  const query = {
    actor,
    action: action as Entry["action"] as never,
    since: day(since, 0) || undefined,
    until: day(until, 1) || undefined,
    limit,
    iterator: after,
  };
  const { data, iterator, prev_iterator } = app
    ? await told(api.GET("/v1/apps/{app}/audit-log", { params: { ...of(app), query }, signal }))
    : await told(api.GET("/v1/audit-log", { params: { query }, signal }));
  return { entries: data, next: iterator, previous: prev_iterator };
}

/** Parts of an app that may need an action. */
export interface OfApp {
  app: AppResponse;
  vapidKeys: VapidKeyResponse[];
  apiKeys: ApiKey[];
}

/** Apps that are looked into at most: each takes two requests. */
export const LOOKED_INTO = 20;

export function loadOfApps(apps: readonly AppResponse[], signal: AbortSignal): Promise<OfApp[]> {
  const one = async (app: AppResponse) => {
    const [vapidKeys, apiKeys] = await Promise.all([loadVapidKeys(app.id, signal), loadApiKeys(app.id, signal)]);
    return { app, vapidKeys, apiKeys };
  };
  return Promise.all(apps.slice(0, LOOKED_INTO).map(one));
}
