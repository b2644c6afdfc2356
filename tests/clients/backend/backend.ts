// Uses the client for backends as its README describes: ADDRESS, KEY and secrets are in the environment, webhook requests in webhooks.json.
import { readFileSync } from "node:fs";
import {
  createClient,
  paginate,
  ProblemError,
  signUserHmac,
  signUserToken,
  streamEvents,
  verifyWebhook,
  type Schemas,
} from "@bellwire/server";

const env = (name: string): string => process.env[name] ?? "";
const app = "shop";
const bellwire = createClient({ url: env("ADDRESS"), key: env("KEY") });

for (const topic of ["a", "b", "c", "d", "e"]) {
  await bellwire.PUT("/v1/apps/{app}/topics/{topic}", { params: { path: { app, topic } }, body: {} });
}
const topics: string[] = [];
const list = (page: { iterator?: string }) =>
  bellwire.GET("/v1/apps/{app}/topics", { params: { path: { app }, query: { limit: 2, ...page } } });
for await (const topic of paginate(list)) topics.push(topic.name);

const body: Schemas["MessageRequest"] = { to: { topic: "news" }, tier: "transactional", content: { title: "Hello" } };
const { data: sent } = await bellwire.POST("/v1/apps/{app}/messages", { params: { path: { app } }, body });
const message: string = "id" in sent ? sent.id : "";
const { data: batch } = await bellwire.POST("/v1/apps/{app}/messages/batch", {
  params: { path: { app } },
  body: { messages: [{ to: { users: ["ann"] }, content: { title: "Code" } }] },
});
const { data: shown } = await bellwire.GET("/v1/apps/{app}/messages/{message}", { params: { path: { app, message } } });
const targeted: number | undefined = shown.counts?.targeted;

const untitled = { to: { topic: "a" }, content: { title: 5 } };
// @ts-expect-error: a title is text
await bellwire.POST("/v1/apps/{app}/messages", { params: { path: { app } }, body: untitled }).catch(() => {});
const problem = await bellwire
  .POST("/v1/apps/{app}/messages", { params: { path: { app } }, body: { ...body, ttl: -1 } })
  .then(
    () => undefined,
    (error: unknown) =>
      error instanceof ProblemError
        ? { status: error.status, code: error.code, title: error.title, pointer: error.errors[0]?.pointer }
        : String(error),
  );

const busy = await bellwire.GET("/v1/apps/{app}", { params: { path: { app: "busy" } } }).then(
  () => undefined,
  (error: unknown) => (error instanceof ProblemError ? `${error.status} ${error.code}` : String(error)),
);

let cursor = "0";
const events: [Schemas["AppEventType"], number][] = [];
for await (const event of streamEvents(bellwire, app, cursor)) {
  events.push([event.kind, event.count]);
  cursor = event.cursor;
}
const laterEvents: string[] = [];
for await (const event of streamEvents(bellwire, app, cursor)) laterEvents.push(event.id);
const refusedCursor = await streamEvents(bellwire, app, "x")
  .next()
  .then(
    () => undefined,
    (error: unknown) => (error instanceof ProblemError ? `${error.status} ${error.code}` : String(error)),
  );

const webhooks = JSON.parse(readFileSync("webhooks.json", "utf8")).map(
  ({ headers, body }: { headers: Record<string, string>; body: string }) => {
    try {
      return verifyWebhook(body, headers, env("WEBHOOK_SECRET")).map((event) => event.type);
    } catch {
      return "refused";
    }
  },
);
const tokens = [signUserToken("ann", env("IDENTITY_SECRET"), { app }), signUserHmac("bob", env("HMAC_SECRET"))];
const outcome = { accepted: batch.accepted, message, targeted, problem, busy };
const read = { topics, events, later_events: laterEvents, refused_cursor: refusedCursor };
console.log(JSON.stringify({ ...outcome, ...read, webhooks, tokens }));
