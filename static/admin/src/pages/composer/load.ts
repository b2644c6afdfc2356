/** Requests of the composer. */
import { api, told } from "../../api/client";
import type { Refusal } from "../../api/problem";
import type {
  CalendarSettings,
  DryRun,
  MessageRequest,
  PolicyPreset,
  PolicyPreviewResponse,
  Accepted,
  Tier,
  LinkCheckResponse,
} from "../../api/types";
import { useAsked } from "../../lib/asked";

/** Checks and counts; nothing is sent. */
export async function dryRun(app: string, body: MessageRequest, signal?: AbortSignal): Promise<DryRun> {
  const asked = api.POST("/v1/apps/{app}/messages", {
    params: { path: { app }, query: { dry_run: true } },
    body,
    ...(signal ? { signal } : {}),
  });
  return (await told(asked)) as DryRun;
}

/** Sends; the same key twice sends once. */
export async function send(app: string, body: MessageRequest, key: string): Promise<Accepted> {
  return (await told(
    api.POST("/v1/apps/{app}/messages", { params: { path: { app }, header: { "Idempotency-Key": key } }, body }),
  )) as Accepted;
}

export const loadCalendar = (app: string, signal: AbortSignal): Promise<CalendarSettings> =>
  told(api.GET("/v1/apps/{app}/calendar", { params: { path: { app } }, signal }));

export const loadPresets = async (app: string, signal: AbortSignal): Promise<PolicyPreset[]> =>
  (await told(api.GET("/v1/apps/{app}/policies/presets", { params: { path: { app } }, signal }))).data;

export function loadTimetable(
  app: string,
  tier: Tier,
  topic: string,
  policy: MessageRequest["policy"],
  signal: AbortSignal,
): Promise<PolicyPreviewResponse> {
  const body = { tier, ...(topic ? { topic } : {}), ...(policy ? { policy } : {}) };
  return told(
    api.POST("/v1/apps/{app}/policies/preview", { params: { path: { app } }, body, signal }),
  ) as Promise<PolicyPreviewResponse>;
}

/** Time zone of this browser. */
export const ownZone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** Result of a dry run: of the newest draft that was checked. */
export interface Check {
  counted?: DryRun;
  problem?: Refusal;
  /** Whether what is shown is of an earlier request. */
  isOld: boolean;
}

/** Checks a request whenever it has changed. */
export function useCheck(app: string, request: MessageRequest): Check {
  const { shown, problem, isOld } = useAsked(request, (request, stop) => dryRun(app, request, stop));
  return { ...(problem ? { problem } : shown ? { counted: shown } : {}), isOld };
}

/** Requests a link from the server, which reports the status. */
export const checkLink = (app: string, url: string, signal: AbortSignal): Promise<LinkCheckResponse> =>
  told(api.POST("/v1/apps/{app}/link-check", { params: { path: { app } }, body: { url }, signal }));
