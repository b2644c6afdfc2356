/** Requests of the segment pages. */
import { api, told } from "../../api/client";
import type { Condition } from "../../api/edit";
import type { SegmentResponse, SegmentPreview, SubscriptionResponse } from "../../api/types";
import { useAsked, type Asked } from "../../lib/asked";

export interface SegmentPage {
  segments: SegmentResponse[];
  next: string | null | undefined;
  previous: string | null | undefined;
}

export async function loadSegments(
  app: string,
  after: string | undefined,
  signal: AbortSignal,
  limit = 50,
): Promise<SegmentPage> {
  const { data, iterator, prev_iterator } = await told(
    api.GET("/v1/apps/{app}/segments", {
      params: { path: { app }, query: { limit, iterator: after } as never },
      signal,
    }),
  );
  return { segments: data, next: iterator, previous: prev_iterator };
}

export const loadSegment = (app: string, segment: string, signal: AbortSignal): Promise<SegmentResponse> =>
  told(api.GET("/v1/apps/{app}/segments/{segment}", { params: { path: { app, segment } }, signal }));

export const setSegment = (
  app: string,
  segment: string,
  expression: string,
  description: string,
  header: Condition,
): Promise<SegmentResponse> =>
  told(
    api.PUT("/v1/apps/{app}/segments/{segment}", {
      params: { path: { app, segment }, header },
      body: { expression, ...(description ? { description } : {}) },
    }),
  );

export const removeSegment = async (app: string, segment: string, header: Condition): Promise<void> =>
  void (await told(api.DELETE("/v1/apps/{app}/segments/{segment}", { params: { path: { app, segment }, header } })));

/** Of a segment, what saving it replaces. */
export const written = ({ expression, description }: SegmentResponse): object => ({ expression, description });

/** Reads the size of a segment, stored or not. */
export const preview = (app: string, segment: string, exact: boolean, signal?: AbortSignal): Promise<SegmentPreview> =>
  told(
    api.POST("/v1/apps/{app}/segments/preview", {
      params: { path: { app } },
      body: { segment, exact },
      ...(signal ? { signal } : {}),
    }),
  );

export interface Members {
  members: SubscriptionResponse[];
  next: string | null | undefined;
  previous: string | null | undefined;
}

export async function loadMembers(
  app: string,
  segment: string,
  after: string | undefined,
  signal: AbortSignal,
  limit = 25,
): Promise<Members> {
  const { data, iterator, prev_iterator } = await told(
    api.GET("/v1/apps/{app}/subscriptions", {
      params: { path: { app }, query: { segment, limit, iterator: after } },
      signal,
    }),
  );
  return { members: data, next: iterator, previous: prev_iterator };
}

/** Previews an expression at each change; an empty one has no preview. */
export const usePreview = (app: string, text: string): Asked<SegmentPreview> =>
  useAsked(text || undefined, (text, stop) => preview(app, text, false, stop));
