/** Requests of the message pages. */
import { api, told } from "../../api/client";
import type { DeadLetterActionResult, MessageResponse, SendState, MessageContentResponse, Tier } from "../../api/types";
import type { Steering } from "../../lib/messages";
import { recentOf, type Recent } from "../../lib/recent";
import type { Filters } from "../../lib/url";

/** Events that change messages. */
export const MOVES = [
  "message.progress",
  "message.done",
  "message.paused",
  "message.resumed",
  "message.cancelled",
  "outcomes",
] as const;

export interface MessagePage {
  messages: MessageResponse[];
  next: string | null | undefined;
  previous: string | null | undefined;
}

/** Many, since repeated single sends become one row. */
const PER_PAGE = 100;

export async function loadMessages(
  app: string,
  { state, tier, topic, after }: Filters,
  signal: AbortSignal,
  limit = PER_PAGE,
): Promise<MessagePage> {
  const query = { state: state as SendState, tier: tier as Tier, topic, limit, iterator: after };
  const { data, iterator, prev_iterator } = await told(
    api.GET("/v1/apps/{app}/messages", { params: { path: { app }, query }, signal }),
  );
  return { messages: data, next: iterator, previous: prev_iterator };
}

export const loadMessage = (app: string, message: string, signal: AbortSignal): Promise<MessageResponse> =>
  told(api.GET("/v1/apps/{app}/messages/{message}", { params: { path: { app, message } }, signal }));

export const loadSaid = (app: string, message: string, signal: AbortSignal): Promise<MessageContentResponse> =>
  told(api.GET("/v1/apps/{app}/messages/{message}/content", { params: { path: { app, message } }, signal }));

/** Messages whose content is read for suggestions. */
const RECENT_MAX = 12;

/** Links and images of the newest messages to many, as far as the user may read their content. */
export async function loadRecent(app: string, signal: AbortSignal): Promise<Recent> {
  const { messages } = await loadMessages(app, {}, signal, 25);
  const toMany = messages
    .filter(({ to, content_deleted }) => !content_deleted && !("users" in to) && !("subscriptions" in to))
    .slice(0, RECENT_MAX);
  const said = await Promise.all(toMany.map(({ id }) => loadSaid(app, id, signal)));
  return recentOf(said.flatMap(({ content }) => content ?? []));
}

/** The newest topics of an app, to choose from. */
export async function loadTopics(app: string, signal: AbortSignal): Promise<string[]> {
  const { data } = await told(
    api.GET("/v1/apps/{app}/topics", { params: { path: { app }, query: { limit: 250 } }, signal }),
  );
  return data.map(({ name }) => name).sort((a, b) => a.localeCompare(b));
}

export function steer(steering: Steering, app: string, message: string): Promise<MessageResponse> {
  const to = { params: { path: { app, message } } };
  switch (steering) {
    case "pause":
      return told(api.POST("/v1/apps/{app}/messages/{message}/pause", to));
    case "resume":
      return told(api.POST("/v1/apps/{app}/messages/{message}/resume", to));
    case "cancel":
      return told(api.POST("/v1/apps/{app}/messages/{message}/cancel", to));
    case "withdraw":
      return told(api.POST("/v1/apps/{app}/messages/{message}/withdraw", to));
  }
}

/** Sends a message again to its failed recipients, or counts them. */
export const sendAgain = (app: string, message: string, dry_run: boolean): Promise<DeadLetterActionResult> =>
  told(
    api.POST("/v1/apps/{app}/dead-letters/replay", {
      params: { path: { app } },
      body: { filter: { message }, dry_run },
    }),
  );
