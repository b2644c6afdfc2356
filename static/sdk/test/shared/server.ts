/** A Bellwire server in memory, which answers as the real one does: `contract.json` holds both to the same. */

export interface Row {
  id: string;
  token: string;
  endpoint: string;
  p256dh: string;
  vapid_key_id: string;
  state: string;
  user_id: string | null;
  topics: string[];
  /** Topics that it was in when it was lost. */
  former: string[];
  tags: string[];
  attributes: object;
  muted: { until: string | null } | null;
  locale?: string;
  /** A receipt has confirmed the keys: no others replace them. */
  proven?: boolean;
  /** A user token or the subscription's token vouched for the keys. */
  vouched?: boolean;
}

export interface Asked {
  method: string;
  path: string;
  token: string | undefined;
  type: string | undefined;
  // Tests look at whatever was sent.
  body: any;
}

export const ORIGIN = "https://push.example";
export const KEYS = ["BKeyOne", "BKeyTwo"].map((name) => name.padEnd(86, "A") + "Q") as [string, string];

export class FakeServer {
  rows: Row[] = [];
  asked: Asked[] = [];
  receipts: any[] = [];
  keyNumber = 0;
  /** Apps of the server. All share rows and key, as apps with an imported key may. */
  apps = ["shop"];
  online = true;
  now = () => 0;
  /** Topics of the app, and who may join them. Pages make those that they name unless `browsersMay` lacks it. */
  topics: Record<string, "anyone" | "server"> = {};
  browsersMay = ["create_topics", "set_tags", "set_attributes"];
  /** Origins of the app's pages, and where the page is that asks. */
  origins = ["https://shop.example"];
  pageOrigin = this.origins[0]!;
  /** Response to one receipt of a displayed notification. Undefined: the app tags no links. */
  linkTags: unknown;
  /** Answers instead of the routes, where it gives one. */
  instead: (asked: Asked) => Response | undefined = () => undefined;

  row = (id: string) => this.rows.find((row) => row.id === id)!;
  /** Sets the user of a subscription, like the site's backend can. */
  assign(id: string, user_id: string | null): void {
    const row = this.row(id);
    if (row.user_id !== user_id) row.token += "'";
    row.user_id = user_id;
  }

  /** The push service reported the endpoint as gone. */
  lose(id: string): void {
    const row = this.row(id);
    Object.assign(row, { state: "gone", former: row.topics, topics: [] });
  }

  active = () => this.rows.filter(({ state }) => state === "active");
  requests = (method: string, path = "") =>
    this.asked.filter((asked) => asked.method === method && asked.path.includes(path));

  fetch = async (url: string, init: RequestInit = {}): Promise<Response> => {
    if (!this.online) throw new TypeError("network");
    const headers = init.headers as Record<string, string>;
    const asked: Asked = {
      method: init.method ?? "GET",
      path: new URL(url).pathname,
      token: headers["Authorization"]?.replace("Bearer ", ""),
      type: headers["Content-Type"],
      body: init.body === undefined ? undefined : JSON.parse(init.body as string),
    };
    this.asked.push(asked);
    return this.instead(asked) ?? this.route(asked);
  };

  private route(asked: Asked): Response {
    const [, , , app, kind, id, of] = asked.path.split("/");
    if (!this.apps.includes(app!)) return problem(404, "not_found");
    if (kind !== "receipts" && !this.origins.includes(this.pageOrigin)) return problem(403, "origin_not_allowed");
    if (kind === "config") {
      return Response.json({ application_server_key: KEYS[this.keyNumber], vapid_key_id: `vapid_${this.keyNumber}` });
    }
    if (kind === "receipts") {
      const ours = ({ receipt }: { receipt: string }) => receipt.length === 64;
      const reports = [asked.body].flat();
      this.receipts.push(...reports.filter(ours));
      if (Array.isArray(asked.body)) {
        const accepted = reports.filter(ours).length;
        return Response.json({ accepted, refused: reports.length - accepted }, { status: 202 });
      }
      if (!ours(asked.body)) return problem(400, "invalid_receipt");
      const tags = asked.body.kind === "displayed" ? this.linkTags : undefined;
      return tags ? Response.json({ link_tags: tags }) : new Response(null, { status: 204 });
    }
    if (asked.method === "POST" && !id) return this.register(asked);
    const permission = { events: "track_events", conversions: "report_conversions" }[of!];
    if (permission && !this.browsersMay.includes(permission)) return problem(403, "forbidden");
    const row = this.rows.find((row) => row.id === id && row.token === asked.token);
    if (!row) return problem(404, "subscription_not_found");
    if (asked.method === "GET") return Response.json({ ...row, token: undefined });
    if (permission) return new Response(null, { status: 204 });
    Object.assign(row, { state: "unsubscribed", topics: [], former: [] });
    return new Response(null, { status: 204 });
  }

  private register({ body, token }: Asked): Response {
    const { subscription, replaces, user_id, user_token, vapid_key_id, ...said } = body;
    if (user_id && user_token !== `signed ${user_id}`) return problem(403, "user_token_invalid");
    const nothing = { user_id: null, topics: [], former: [], tags: [], attributes: {}, muted: null };
    if (said.topics?.includes("bad")) return problem(422, "invalid", [{ pointer: "/topics/0" }]);
    if (said.muted) {
      said.muted = { until: said.muted.until ?? null };
      if (said.muted.until && !(Date.parse(said.muted.until) > this.now()))
        return problem(422, "invalid", [{ pointer: "/muted/until" }]);
    }
    const old = replaces && this.rows.find((row) => row.id === replaces.id && row.token === replaces.token);
    if (replaces && !old) return problem(422, "invalid", [{ pointer: "/replaces" }]);
    let row = this.rows.find(({ endpoint }) => endpoint === subscription.endpoint);
    let former = old;
    if (row && row.p256dh !== subscription.keys.p256dh) {
      const covered = row.token === token || row === old;
      const isUser = row.user_id && row.user_id === user_id;
      const vouches = covered || isUser || (!row.user_id && user_id);
      const outranked = row.proven || (row.vouched && !vouches);
      if (outranked || (row.state === "unsubscribed" && !covered)) return problem(409, "endpoint_taken");
      row.endpoint = "";
      if (covered || isUser) former = row;
      else this.lose(row.id);
      row = undefined;
    }
    const status = row ? 200 : 201;
    if (row) {
      const isUser = row.user_id && row.user_id === user_id;
      row.vouched ||= row.token === token || !!user_id;
      if (row.token !== token) {
        if (row.user_id && user_id === undefined && row.state === "active") return problem(409, "belongs_to_user");
        if (!isUser && row.user_id) {
          this.assign(row.id, null);
          Object.assign(row, nothing);
        }
      }
      if (row.vapid_key_id !== vapid_key_id) return problem(409, "vapid_key_differs");
    } else {
      const n = this.rows.length + 1;
      const alive = former && ["active", "suspended", "gone", "expired"].includes(former.state) ? former : undefined;
      const { topics, former: lost, tags, attributes, muted } = alive ?? nothing;
      const { endpoint, keys } = subscription;
      const state = "active";
      const ids = { id: `sub_${n}`, token: `bt_${n}`, endpoint, p256dh: keys.p256dh, vapid_key_id };
      const vouched = !!(user_id || replaces || former);
      row = {
        ...ids,
        vouched,
        state,
        user_id: user_id ?? null,
        topics: [...topics, ...lost],
        former: [],
        tags,
        attributes,
        muted,
      };
      this.rows.push(row);
    }
    if (former && former !== row) Object.assign(former, { state: "replaced", topics: [], former: [] });
    if (row.former.length) Object.assign(row, { topics: row.former, former: [] });
    const refused = this.leaveOut(said, row);
    if (user_id !== undefined) this.assign(row.id, user_id);
    Object.assign(row, said, { state: "active" });
    row.topics = [...new Set(row.topics)].sort();
    return Response.json({ ...row, refused: refused.length ? refused : undefined }, { status });
  }

  /** Removes values from `said` that pages may not set, and returns them. */
  private leaveOut(said: any, row: Row): object[] {
    const refused: object[] = [];
    const may = (what: string) => this.browsersMay.includes(what);
    const leave = (pointer: string, code: string) => refused.push({ pointer, code, detail: `Left out: ${code}` });
    for (const name of ["tags", "attributes"] as const) {
      if (said[name] === undefined || may(`set_${name}`)) continue;
      if (JSON.stringify(said[name]) !== JSON.stringify(row[name])) leave(`/${name}`, `${name}_of_browsers`);
      delete said[name];
    }
    const closed = (name: string) => this.topics[name] === "server";
    const kept = row.topics.filter(closed);
    const joins = (name: string, i: number): boolean => {
      if (!this.topics[name] && may("create_topics")) this.topics[name] = "anyone";
      if (!this.topics[name]) leave(`/topics/${i}`, "topic_unknown");
      else if (closed(name) && !kept.includes(name)) leave(`/topics/${i}`, "topic_closed");
      return this.topics[name] === "anyone";
    };
    if (said.topics) said.topics = [...kept, ...said.topics.filter(joins)];
    return refused;
  }
}

export function problem(status: number, code: string, errors?: object[]): Response {
  return Response.json({ code, detail: `Refused: ${code}`, errors }, { status });
}
