/** Requests of the composer. */
import { api, told } from "../../api/client";
import type { Refusal } from "../../api/problem";
import type { Calendar, DryRun, NewMessage, Preset, Preview, Sent, Tier } from "../../api/types";
import { useAsked } from "../../lib/asked";

/** Checks and counts; nothing is sent. */
export async function dryRun(app: string, body: NewMessage, signal?: AbortSignal): Promise<DryRun> {
  const asked = api.POST("/v1/apps/{app}/messages", { params: { path: { app }, query: { dry_run: true } }, body, ...(signal ? { signal } : {}) });
  return (await told(asked)) as DryRun;
}

/** Sends; the same key twice sends once. */
export async function send(app: string, body: NewMessage, key: string): Promise<Sent> {
  return (await told(api.POST("/v1/apps/{app}/messages", { params: { path: { app }, header: { "Idempotency-Key": key } }, body }))) as Sent;
}

export const loadCalendar = (app: string, signal: AbortSignal): Promise<Calendar> => told(api.GET("/v1/apps/{app}/calendar", { params: { path: { app } }, signal }));

export const loadPresets = (app: string, signal: AbortSignal): Promise<Preset[]> => told(api.GET("/v1/apps/{app}/policies/presets", { params: { path: { app } }, signal }));

export function loadTimetable(app: string, tier: Tier, topic: string, policy: NewMessage["policy"], signal: AbortSignal): Promise<Preview> {
  const body = { tier, ...(topic ? { topic } : {}), ...(policy ? { policy } : {}) };
  return told(api.POST("/v1/apps/{app}/policies/preview", { params: { path: { app } }, body, signal })) as Promise<Preview>;
}

/** Result of a dry run: of the newest draft that was checked. */
export interface Check {
  counted?: DryRun;
  problem?: Refusal;
  /** Whether what is shown is of an earlier request. */
  isOld: boolean;
}

/** Checks a request whenever it has changed. */
export function useCheck(app: string, request: NewMessage): Check {
  const { shown, problem, isOld } = useAsked(request, (request, stop) => dryRun(app, request, stop));
  return { ...(problem ? { problem } : shown ? { counted: shown } : {}), isOld };
}
