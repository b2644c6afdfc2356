/** Requests of the frequency page. */
import { api, told } from "../../api/client";
import type { Condition } from "../../api/edit";
import type { Cap, EngagementResponse, GuardResponse } from "../../api/types";

/** All caps of an app. */
export interface Caps {
  caps: Cap[];
}

const of = (app: string) => ({ params: { path: { app } } });

export const loadEngagement = (app: string, days: number, signal: AbortSignal): Promise<EngagementResponse> =>
  told(api.GET("/v1/apps/{app}/engagement", { params: { path: { app }, query: { days } }, signal }));

export const loadGuard = (app: string, signal: AbortSignal): Promise<GuardResponse> =>
  told(api.GET("/v1/apps/{app}/guard", { ...of(app), signal }));

export const setGuard = (
  app: string,
  body: { factor: number | null; floor: number | null },
  header: Condition,
): Promise<GuardResponse> => told(api.PUT("/v1/apps/{app}/guard", { params: { path: { app }, header }, body }));

export const release = (app: string): Promise<GuardResponse> => told(api.POST("/v1/apps/{app}/guard/release", of(app)));

export const loadCaps = (app: string, signal: AbortSignal): Promise<Caps> =>
  told(api.GET("/v1/apps/{app}/caps", { ...of(app), signal }));

export const setCaps = async (app: string, caps: Cap[], header: Condition): Promise<void> =>
  void (await told(api.PUT("/v1/apps/{app}/caps", { params: { path: { app }, header }, body: { caps } })));
