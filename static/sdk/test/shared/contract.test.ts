import { describe, expect, it } from "vitest";
import contract from "./contract.json";
import { FakeServer, ORIGIN } from "./server";

interface Step {
  ask?: string;
  app?: string;
  origin?: string;
  token?: string;
  body?: unknown;
  status?: number;
  answer?: unknown;
  keep?: Record<string, string>;
  readable?: boolean;
  happens?: string;
  to?: string;
}

/** Something that happens at the real server without a browser's doing. */
const EVENTS: Record<string, (server: FakeServer, id: string) => unknown> = {
  gone: (server, id) => server.lose(id),
  rotation: (server) => (server.keyNumber = 1),
  staff: (server, id) => server.row(id).topics.push("staff"),
  ann: (server, id) => server.assign(id, "ann"),
  receipt: (server, id) => (server.row(id).proven = true),
};

function subscriptionOf(browser: string) {
  const name = browser.replace("*", "");
  return {
    endpoint: `https://gateway.example/${name}`,
    expirationTime: null,
    keys: { p256dh: `key of ${browser}`, auth: "auth" },
  };
}

/** Puts in what `$` stands for. */
function fill(value: unknown, kept: Record<string, unknown>): any {
  if (Array.isArray(value)) return value.map((item) => fill(item, kept));
  if (typeof value === "object" && value)
    return Object.fromEntries(Object.entries(value).map(([name, it]) => [name, fill(it, kept)]));
  if (typeof value !== "string") return value;
  if (value.startsWith("$browser:")) return subscriptionOf(value.slice(9));
  if (value.startsWith("$signed:")) return `signed ${value.slice(8)}`;
  return value.replace(/\$(\w+)/g, (_, name) => String(kept[name]));
}

/** A null member may be left out. */
function expectAnswer(answer: any, wanted: Record<string, unknown>): void {
  for (const [name, value] of Object.entries(wanted)) {
    if (value === null) expect(answer[name] ?? null).toBeNull();
    else if (name === "errors" || name === "refused") expect(answer[name]).toMatchObject(value as object);
    else expect(answer[name]).toEqual(value);
  }
}

describe("the fake server is as the real one", () => {
  it.each(contract.stories.map(({ name, steps }) => [name, steps as Step[]] as const))("%s", async (_, steps) => {
    const server = new FakeServer();
    server.topics = { news: "anyone", offers: "anyone", staff: "server" };
    server.browsersMay = [];
    const kept: Record<string, unknown> = {};
    for (const step of steps) {
      const {
        ask,
        app = "shop",
        origin,
        token,
        body,
        status,
        answer = {},
        keep = {},
        readable = false,
        happens,
        to,
      } = fill(step, kept) as Step;
      if (happens) {
        EVENTS[happens]!(server, to!);
        continue;
      }
      const [method, path] = ask!.split(" ") as [string, string];
      const headers: Record<string, string> = token ? { Authorization: `Bearer ${token}` } : {};
      server.pageOrigin = origin ?? server.origins[0]!;
      const response = await server.fetch(`${ORIGIN}/v1/apps/${app}${path}`, {
        method,
        headers,
        body: body ? JSON.stringify(body) : undefined,
      });
      const told = await response.json().catch(() => ({}));
      expect([ask, response.status, told]).toMatchObject([ask, status, {}]);
      expectAnswer(told, answer as Record<string, unknown>);
      if (readable) expect(told).not.toEqual({}); // what pages may not read is no response at all to `fetch`
      for (const [name, member] of Object.entries(keep)) kept[name] = told[member];
    }
  });
});
