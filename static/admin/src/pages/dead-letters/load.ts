import { api, told } from "../../api/client";
import type { DeadLetterResponse, DeadLetterGroup, DeadLetterActionResult, DeadLetterDetail } from "../../api/types";
import { clock } from "../../lib/clock";
import type { Filters } from "../../lib/url";

const DAY_MS = 86_400_000;

/** Dead letters of one reason: how many are open, how many died lately. */
export interface Kind {
  reason: string;
  open: number;
  newest: string;
  lastDay: number;
  dayBefore: number;
}

/** Open dead letters by reason, of all messages or of one, with what died today and yesterday to compare. */
export async function loadKinds(app: string, message: string | undefined, signal: AbortSignal): Promise<Kind[]> {
  const now = clock.now().getTime();
  const [yesterday, before] = [now - DAY_MS, now - 2 * DAY_MS].map((ms) => new Date(ms).toISOString());
  const by = async (more: { since?: string; until?: string }): Promise<DeadLetterGroup[]> => {
    const query = { by: "reason", state: "open", message, ...more } as const;
    return (await told(api.GET("/v1/apps/{app}/dead-letters/groups", { params: { path: { app }, query }, signal })))
      .data;
  };
  const [open, lastDay, dayBefore] = await Promise.all([
    by({}),
    by({ since: yesterday }),
    by({ since: before, until: yesterday }),
  ]);
  const of = (groups: DeadLetterGroup[], reason: string) => groups.find(({ key }) => key === reason)?.count ?? 0;
  return open.map(({ key, count, newest }) => {
    const reason = key ?? "";
    return { reason, open: count, newest, lastDay: of(lastDay, reason), dayBefore: of(dayBefore, reason) };
  });
}

/** Open dead letters of one reason by the push service’s words; the most frequent first. */
export async function loadErrors(
  app: string,
  reason: string,
  message: string | undefined,
  signal: AbortSignal,
): Promise<DeadLetterGroup[]> {
  const query = { by: "detail", state: "open", reason, message } as const;
  return (await told(api.GET("/v1/apps/{app}/dead-letters/groups", { params: { path: { app }, query }, signal }))).data;
}

/** Words of a group in the URL: a value that no push service sends stands for none. */
export const NO_WORDS = "-";
const detailOf = (error: string | undefined): string | undefined => (error === NO_WORDS ? "" : error);

export interface LetterPage {
  letters: DeadLetterResponse[];
  next: string | null | undefined;
  previous: string | null | undefined;
}

export async function loadLetters(
  app: string,
  { reason, message, error, after }: Filters,
  signal: AbortSignal,
  limit = 50,
): Promise<LetterPage> {
  const query = { state: "open", reason, message, detail: detailOf(error), limit, iterator: after } as const;
  const { data, iterator, prev_iterator } = await told(
    api.GET("/v1/apps/{app}/dead-letters", { params: { path: { app }, query }, signal }),
  );
  return { letters: data, next: iterator, previous: prev_iterator };
}

export type Handling = "replay" | "discard";

/** Letters of an action; `error` as in the URL. */
export interface LetterFilter {
  reason: string;
  message: string | undefined;
  error: string | undefined;
}

/** Replays or discards what is open and fits, or counts what that would be. */
export function handle(
  handling: Handling,
  app: string,
  { error, ...filter }: LetterFilter,
  dry_run: boolean,
): Promise<DeadLetterActionResult> {
  const to = { params: { path: { app } }, body: { filter: { ...filter, detail: detailOf(error) }, dry_run } };
  return handling === "replay"
    ? told(api.POST("/v1/apps/{app}/dead-letters/replay", to))
    : told(api.POST("/v1/apps/{app}/dead-letters/discard", to));
}

export const loadLetter = (app: string, dead_letter: string, signal: AbortSignal): Promise<DeadLetterDetail> =>
  told(api.GET("/v1/apps/{app}/dead-letters/{dead_letter}", { params: { path: { app, dead_letter } }, signal }));

/** Replays or discards one dead letter; it stands in the audit log. */
export function handleOne(handling: Handling, app: string, dead_letter: string): Promise<DeadLetterDetail> {
  const to = { params: { path: { app, dead_letter } } };
  return handling === "replay"
    ? told(api.POST("/v1/apps/{app}/dead-letters/{dead_letter}/replay", to))
    : told(api.POST("/v1/apps/{app}/dead-letters/{dead_letter}/discard", to));
}

/** URL of an export; the browser saves it. */
export function exportPath(app: string, format: "csv" | "ndjson", { reason, message, error }: Filters): string {
  const detail = detailOf(error);
  const query = new URLSearchParams({
    format,
    state: "open",
    ...(reason ? { reason } : {}),
    ...(message ? { message } : {}),
    ...(detail === undefined ? {} : { detail }),
  });
  return `/v1/apps/${encodeURIComponent(app)}/dead-letters/export?${query.toString()}`;
}
