/** Requests of the template pages. */
import { api, told } from "../../api/client";
import type { Condition } from "../../api/edit";
import type {
  TemplateResponse,
  Template,
  TemplateCheck,
  TemplateCheckRequest,
  TemplatePreview,
  TemplatePreviewRequest,
} from "../../api/types";
import { names, type Uses } from "../../lib/templates";
import { loadPlan, loadPage } from "../campaigns/load";

export interface TemplatePage {
  templates: TemplateResponse[];
  next: string | null | undefined;
  previous: string | null | undefined;
}

export async function loadTemplates(
  app: string,
  after: string | undefined,
  signal: AbortSignal,
  limit = 50,
): Promise<TemplatePage> {
  const { data, iterator, prev_iterator } = await told(
    api.GET("/v1/apps/{app}/templates", { params: { path: { app }, query: { limit, iterator: after } }, signal }),
  );
  return { templates: data, next: iterator, previous: prev_iterator };
}

export const loadTemplate = (app: string, template: string, signal: AbortSignal): Promise<TemplateResponse> =>
  told(api.GET("/v1/apps/{app}/templates/{template}", { params: { path: { app, template } }, signal }));

export const putTemplate = (
  app: string,
  template: string,
  body: Template,
  header: Condition,
): Promise<TemplateResponse> =>
  told(api.PUT("/v1/apps/{app}/templates/{template}", { params: { path: { app, template }, header }, body }));

export const removeTemplate = async (app: string, template: string, header: Condition): Promise<void> =>
  void (await told(api.DELETE("/v1/apps/{app}/templates/{template}", { params: { path: { app, template }, header } })));

/** Of a template, what saving it replaces. */
export const written = ({ template }: TemplateResponse): object => template ?? {};

/** Fills it in; nothing is sent. */
export const preview = (app: string, body: TemplatePreviewRequest, signal: AbortSignal): Promise<TemplatePreview> =>
  told(api.POST("/v1/apps/{app}/templates/preview", { params: { path: { app } }, body, signal }));

/** Fills it in for everybody whom a message would reach, for up to ten seconds; nothing is sent. */
export const check = (app: string, body: TemplateCheckRequest): Promise<TemplateCheck> =>
  told(api.POST("/v1/apps/{app}/templates/check", { params: { path: { app } }, body }));

/** Campaigns that are looked at, and of those that are not over the ones whose plans are: each takes a request. */
const CAMPAIGNS_MAX = 250;
const PLANS_MAX = 60;

/** Campaigns with the template. Messages have a copy, and segments have no content. */
export async function loadUses(app: string, template: string, signal: AbortSignal): Promise<Uses> {
  const { campaigns } = await loadPage(app, { state: undefined, limit: CAMPAIGNS_MAX, iterator: undefined }, signal);
  const going = campaigns.filter(({ state }) => state !== "done" && state !== "cancelled");
  const looked = going.slice(0, PLANS_MAX);
  const plans = await Promise.all(looked.map(({ id }) => loadPlan(app, id, signal)));
  return {
    by: looked.filter((_, n) => plans[n] && names(plans[n], template)),
    looked: looked.length,
    of: going.length,
  };
}
