/** Requests of the campaign pages. */
import { api, told } from "../../api/client";
import { alike, type Condition } from "../../api/edit";
import type {
  Accepted,
  AppResult,
  Campaign,
  CampaignLocaleReports,
  CampaignPlan,
  CampaignResult,
  CampaignRunFigures,
} from "../../api/types";
import type { Act, CampaignState } from "../../lib/campaigns";
import { quarterBefore } from "../../lib/conversions";
import type { Filters } from "../../lib/url";

/** Events that change campaigns: those of their messages. */
export const MOVES = [
  "message.progress",
  "message.done",
  "message.paused",
  "message.resumed",
  "message.cancelled",
  "outcomes",
] as const;

export interface CampaignPage {
  campaigns: Campaign[];
  next: string | null | undefined;
  previous: string | null | undefined;
}

const PER_PAGE = 25;

export async function loadPage(
  app: string,
  query: { state: CampaignState | undefined; limit: number; iterator: string | undefined },
  signal: AbortSignal,
): Promise<CampaignPage> {
  const { data, iterator, prev_iterator } = await told(
    api.GET("/v1/apps/{app}/campaigns", {
      params: {
        path: { app },
        query: { ...query, state: query.state || undefined, iterator: query.iterator || undefined } as never,
      },
      signal,
    }),
  );
  return { campaigns: data as Campaign[], next: iterator, previous: prev_iterator };
}

export const loadCampaigns = (app: string, { state, after }: Filters, signal: AbortSignal): Promise<CampaignPage> =>
  loadPage(app, { state: state as CampaignState, limit: PER_PAGE, iterator: after }, signal);

/** Number of campaigns whose plans are read for a calendar; for others the list's data is shown. */
export const PLANS_MAX = 60;

/** Campaigns that a calendar is made of. */
export const CALENDAR_MAX = 250;

/** The newest campaigns, with their plans where those may be seen. */
export async function loadCalendar(
  app: string,
  maySeePlans: boolean,
  signal: AbortSignal,
): Promise<[Campaign, CampaignPlan | undefined][]> {
  const { campaigns } = await loadPage(app, { state: undefined, limit: CALENDAR_MAX, iterator: undefined }, signal);
  const plans = campaigns.map((campaign, n) =>
    maySeePlans && n < PLANS_MAX ? loadPlan(app, campaign.id, signal) : undefined,
  );
  return Promise.all(
    campaigns.map(async (campaign, n): Promise<[Campaign, CampaignPlan | undefined]> => [campaign, await plans[n]]),
  );
}

export const loadCampaign = (app: string, campaign: string, signal: AbortSignal): Promise<Campaign> =>
  told(
    api.GET("/v1/apps/{app}/campaigns/{campaign}", { params: { path: { app, campaign } }, signal }),
  ) as Promise<Campaign>;

export const loadPlan = (app: string, campaign: string, signal?: AbortSignal): Promise<CampaignPlan> =>
  told(
    api.GET("/v1/apps/{app}/campaigns/{campaign}/plan", {
      params: { path: { app, campaign } },
      ...(signal ? { signal } : {}),
    }),
  ) as Promise<CampaignPlan>;

/** A campaign with its plan, at the start of an edit. */
export interface Planned {
  campaign: Campaign;
  plan: CampaignPlan;
}

/** The campaign comes first: a plan that is newer than it shows by its tag. */
export async function loadPlanned(app: string, named: string, signal: AbortSignal): Promise<Planned> {
  const campaign = await loadCampaign(app, named, signal);
  return alike({ campaign, plan: await loadPlan(app, named, signal) }, campaign);
}

export async function loadRuns(app: string, campaign: string, signal: AbortSignal): Promise<CampaignRunFigures[]> {
  return (
    await told(api.GET("/v1/apps/{app}/campaigns/{campaign}/runs", { params: { path: { app, campaign } }, signal }))
  ).data;
}

/** Results by period, the latest first. Empty: nothing is measured. */
export async function loadResults(app: string, campaign: string, signal: AbortSignal): Promise<CampaignResult[]> {
  return (
    await told(api.GET("/v1/apps/{app}/campaigns/{campaign}/results", { params: { path: { app, campaign } }, signal }))
  ).data;
}

/** Conversions that campaigns caused in a quarter. Without a choice, the quarter before is read if the present one has no conversions. */
export async function loadCaused(app: string, quarter: string | undefined, signal: AbortSignal): Promise<AppResult> {
  const of = (quarter: string | undefined) =>
    told(api.GET("/v1/apps/{app}/results", { params: { path: { app }, query: quarter ? { quarter } : {} }, signal }));
  const result = await of(quarter);
  return quarter || result.conversions.length > 0 ? result : of(quarterBefore(result.quarter));
}

export async function loadLocales(
  app: string,
  campaign: string,
  signal: AbortSignal,
): Promise<CampaignLocaleReports[]> {
  return (
    await told(api.GET("/v1/apps/{app}/campaigns/{campaign}/locales", { params: { path: { app, campaign } }, signal }))
  ).data;
}

export async function act(act: Act, app: string, campaign: string, header: Condition = {}): Promise<void> {
  const to = { params: { path: { app, campaign } } };
  switch (act) {
    case "start":
      return void (await told(api.POST("/v1/apps/{app}/campaigns/{campaign}/start", to)));
    case "pause":
      return void (await told(api.POST("/v1/apps/{app}/campaigns/{campaign}/pause", to)));
    case "resume":
      return void (await told(api.POST("/v1/apps/{app}/campaigns/{campaign}/resume", to)));
    case "cancel":
      return void (await told(api.POST("/v1/apps/{app}/campaigns/{campaign}/cancel", to)));
    case "withdraw":
      return void (await told(api.POST("/v1/apps/{app}/campaigns/{campaign}/withdraw", to)));
    case "delete":
      return void (await told(api.DELETE("/v1/apps/{app}/campaigns/{campaign}", { params: { ...to.params, header } })));
  }
}

export const clone = (app: string, campaign: string, slug: string): Promise<Campaign> =>
  told(
    api.POST("/v1/apps/{app}/campaigns/{campaign}/clone", { params: { path: { app, campaign } }, body: { slug } }),
  ) as Promise<Campaign>;

export const testSend = (
  app: string,
  campaign: string,
  users: string[],
  variant: string | undefined,
): Promise<Accepted> =>
  told(
    api.POST("/v1/apps/{app}/campaigns/{campaign}/test", {
      params: { path: { app, campaign } },
      body: { users, ...(variant ? { variant } : {}) },
    }),
  );

export const create = (app: string, body: CampaignPlan, key: string): Promise<Campaign> =>
  told(
    api.POST("/v1/apps/{app}/campaigns", {
      params: { path: { app }, header: { "Idempotency-Key": key } },
      body: body as never,
    }),
  ) as Promise<Campaign>;

export const replace = (app: string, campaign: string, body: CampaignPlan, header: Condition): Promise<Campaign> =>
  told(
    api.PUT("/v1/apps/{app}/campaigns/{campaign}", {
      params: { path: { app, campaign }, header },
      body: body as never,
    }),
  ) as Promise<Campaign>;
