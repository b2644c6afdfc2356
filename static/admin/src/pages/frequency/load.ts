/** What the page about frequency asks the server for. */
import { api, told } from "../../api/client";
import type { Cap, Engagement, Guard } from "../../api/types";

const of = (app: string) => ({ params: { path: { app } } });

export const loadEngagement = (app: string, days: number, signal: AbortSignal): Promise<Engagement> => told(api.GET("/v1/apps/{app}/engagement", { params: { path: { app }, query: { days } }, signal }));

export const loadGuard = (app: string, signal: AbortSignal): Promise<Guard> => told(api.GET("/v1/apps/{app}/guard", { ...of(app), signal }));

export const setGuard = (app: string, body: { factor: number | null; floor: number | null }): Promise<Guard> => told(api.PUT("/v1/apps/{app}/guard", { ...of(app), body }));

export const release = (app: string): Promise<Guard> => told(api.POST("/v1/apps/{app}/release", of(app)));

export const loadCaps = async (app: string, signal: AbortSignal): Promise<Cap[]> => (await told(api.GET("/v1/apps/{app}/caps", { ...of(app), signal }))).caps;

export const setCaps = async (app: string, caps: Cap[]): Promise<void> => void (await told(api.PUT("/v1/apps/{app}/caps", { ...of(app), body: { caps } })));
