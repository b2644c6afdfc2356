/** What the pages about segments ask the server for. */
import { useEffect, useState } from "preact/hooks";
import { api, told } from "../../api/client";
import { refusal, type Refusal } from "../../api/problem";
import type { Segment, SegmentPreview, Subscription } from "../../api/types";

export interface SegmentPage {
  segments: Segment[];
  next: string | null | undefined;
}

export async function loadSegments(app: string, after: string | undefined, signal: AbortSignal, limit = 50): Promise<SegmentPage> {
  const { data, iterator } = await told(api.GET("/v1/apps/{app}/segments", { params: { path: { app }, query: { limit, iterator: after } as never }, signal }));
  return { segments: data, next: iterator };
}

export const loadSegment = (app: string, segment: string, signal: AbortSignal): Promise<Segment> =>
  told(api.GET("/v1/apps/{app}/segments/{segment}", { params: { path: { app, segment } }, signal }));

export const setSegment = (app: string, segment: string, expression: string, description: string): Promise<Segment> =>
  told(api.PUT("/v1/apps/{app}/segments/{segment}", { params: { path: { app, segment } }, body: { expression, ...(description ? { description } : {}) } }));

export const removeSegment = async (app: string, segment: string): Promise<void> => void (await told(api.DELETE("/v1/apps/{app}/segments/{segment}", { params: { path: { app, segment } } })));

/** Reads a segment, stored or not, and says how many belong to it. */
export const preview = (app: string, segment: string, exact: boolean, signal?: AbortSignal): Promise<SegmentPreview> =>
  told(api.POST("/v1/apps/{app}/segments/preview", { params: { path: { app } }, body: { segment, exact }, ...(signal ? { signal } : {}) }));

export interface Members {
  members: Subscription[];
  next: string | null | undefined;
}

export async function loadMembers(app: string, segment: string, after: string | undefined, signal: AbortSignal): Promise<Members> {
  const { data, iterator } = await told(api.GET("/v1/apps/{app}/subscriptions", { params: { path: { app }, query: { segment, limit: 25, iterator: after } }, signal }));
  return { members: data, next: iterator };
}

/** What the server said of the newest text that it was asked about. */
export interface Previewed {
  shown?: SegmentPreview;
  problem?: Refusal;
  /** Whether that is about an earlier text. */
  isOld: boolean;
}

/** Somebody who writes is not asked about with every letter. */
const PAUSE_MS = 300;

/** Previews a text whenever it has changed; an empty one says nothing. */
export function usePreview(app: string, text: string): Previewed {
  const [known, setKnown] = useState<Omit<Previewed, "isOld"> & { of?: string }>({});
  useEffect(() => {
    if (text === "") return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      preview(app, text, false, stop.signal)
        .then((shown) => setKnown({ shown, of: text }))
        .catch((thrown) => stop.signal.aborted || setKnown((before) => ({ ...(before.shown ? { shown: before.shown } : {}), problem: refusal(thrown), of: text })));
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [app, text]);
  const { of, ...rest } = known;
  return { ...rest, isOld: of !== text };
}
