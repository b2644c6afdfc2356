/** Objects that a search looks through: read from the lists of apps, as far as the user's role may read them. */
import { api, told } from "../api/client";
import type { AppResponse } from "../api/types";
import { audienceWords } from "../lib/messages";
import { APPS_MAX, ROWS_MAX, type Entry } from "../lib/search";
import { loadPage as loadCampaigns } from "../pages/campaigns/load";
import { loadMessages } from "../pages/messages/load";
import { loadSegments } from "../pages/segments/load";
import { loadTemplates } from "../pages/templates/load";

/** Named objects of these apps. */
export async function loadObjects(apps: readonly AppResponse[], signal: AbortSignal): Promise<Entry[]> {
  return (await Promise.all(apps.slice(0, APPS_MAX).map((app) => ofApp(app, signal)))).flat();
}

async function ofApp({ id, slug, name }: AppResponse, signal: AbortSignal): Promise<Entry[]> {
  const filters = { app: slug };
  const [messages, campaigns, segments, templates, topics] = await Promise.all([
    loadMessages(id, {}, signal, ROWS_MAX),
    loadCampaigns(id, { state: undefined, limit: ROWS_MAX, iterator: undefined }, signal),
    loadSegments(id, undefined, signal, ROWS_MAX),
    loadTemplates(id, undefined, signal, ROWS_MAX),
    told(api.GET("/v1/apps/{app}/topics", { params: { path: { app: id }, query: { limit: ROWS_MAX } }, signal })),
  ]);
  return [
    ...messages.messages.flatMap(({ id, title, key, to, accepted_at }): Entry[] => {
      const shown = title ?? key;
      return shown
        ? [
            {
              kind: "Message",
              title: shown,
              about: `${audienceWords(to)}, ${accepted_at.slice(0, 10)}, ${name}`,
              words: key ?? "",
              path: `/messages/${id}`,
              filters,
            },
          ]
        : [];
    }),
    ...campaigns.campaigns.map(
      (campaign): Entry => ({
        kind: "Campaign",
        title: campaign.name,
        about: `${campaign.slug}, ${name}`,
        path: `/campaigns/${campaign.slug}`,
        filters,
      }),
    ),
    ...segments.segments.map(
      (segment): Entry => ({
        kind: "Segment",
        title: segment.name,
        about: `${segment.description ?? segment.expression}, ${name}`,
        path: `/segments/${segment.name}`,
        filters,
      }),
    ),
    ...templates.templates.map(
      (template): Entry => ({
        kind: "Template",
        title: template.name,
        about: name,
        path: `/templates/${template.name}`,
        filters,
      }),
    ),
    ...topics.data.map(
      (topic): Entry => ({
        kind: "Topic",
        title: topic.name,
        about: name,
        path: "/subscribers",
        filters: { ...filters, topic: topic.name },
      }),
    ),
  ];
}

/** Users with exactly this id. */
export async function loadUsers(apps: readonly AppResponse[], user: string, signal: AbortSignal): Promise<Entry[]> {
  const found = await Promise.all(
    apps.slice(0, APPS_MAX).map(async ({ id, slug, name }): Promise<Entry[]> => {
      const { data } = await told(
        api.GET("/v1/apps/{app}/subscriptions", {
          params: { path: { app: id }, query: { user_id: user, limit: 1 } },
          signal,
        }),
      );
      return data.length > 0
        ? [
            {
              kind: "User",
              title: user,
              about: name,
              path: `/subscribers/${slug}/users/${encodeURIComponent(user)}`,
              filters: { app: slug },
            },
          ]
        : [];
    }),
  );
  return found.flat();
}
