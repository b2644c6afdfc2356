import { describe, expect, it } from "vitest";
import { keyState, notes, rotation, teammateState } from "../src/lib/attention";

const NOW = new Date("2027-01-15T08:00:00Z");
const daysFromNow = (days: number) => new Date(NOW.getTime() + days * 86_400_000).toISOString();
type Known = Parameters<typeof notes>[0][number];

const apiKey = (more: Partial<Known["apiKeys"][number]> = {}): Known["apiKeys"][number] => ({
  id: "ak_1",
  name: "backend",
  hint: "bw_abcd",
  scopes: ["send"],
  created_at: daysFromNow(-200),
  created_by: "local",
  expires_at: null,
  last_used_on: daysFromNow(0).slice(0, 10),
  revoked_at: null,
  ...more,
});
const vapidKey = (state: "active" | "retired", subscriptions: number): Known["vapidKeys"][number] => ({
  id: `vk_${state}`,
  public_key: "B",
  subject: "mailto:a@example.com",
  state,
  created_at: daysFromNow(-3),
  retired_at: null,
  subscriptions,
});
type Teammate = NonNullable<Parameters<typeof notes>[1]>[number];
const teammate = (more: Partial<Teammate> = {}): Teammate => ({
  id: "tm_1",
  email: "ann@example.com",
  roles: [],
  has_password: true,
  passkeys: 0,
  link_expires_at: null,
  oidc_linked_at: null,
  created_at: NOW.toISOString(),
  disabled_at: null,
  ...more,
});
const shop = { slug: "shop", name: "Shop" };

describe("what needs somebody", () => {
  it("lists keys by their next event", () => {
    const states = [
      apiKey(),
      apiKey({ expires_at: daysFromNow(29) }),
      apiKey({ expires_at: daysFromNow(31) }),
      apiKey({ expires_at: daysFromNow(-1) }),
      apiKey({ last_used_on: daysFromNow(-91).slice(0, 10) }),
      apiKey({ last_used_on: daysFromNow(-89).slice(0, 10) }),
      apiKey({ last_used_on: null }),
      apiKey({ last_used_on: null, created_at: daysFromNow(-5) }),
      apiKey({ revoked_at: daysFromNow(-1), expires_at: daysFromNow(1) }),
    ].map((key) => keyState(key, NOW));
    expect(states).toEqual([
      "valid",
      "expires soon",
      "valid",
      "expired",
      "unused",
      "valid",
      "unused",
      "valid",
      "revoked",
    ]);
  });

  it("is a rotation while retired keys are used", () => {
    expect(rotation([vapidKey("active", 62), vapidKey("retired", 38)])).toMatchObject({ moved: 62, of: 100 });
    expect(rotation([vapidKey("active", 0), vapidKey("retired", 5)])).toMatchObject({ moved: 0, of: 5 });
    expect([
      rotation([vapidKey("active", 5), vapidKey("retired", 0)]),
      rotation([vapidKey("active", 0)]),
      rotation([]),
    ]).toEqual([undefined, undefined, undefined]);
  });

  it("is a teammate without access", () => {
    const of = (more: Partial<Teammate>) => teammateState(teammate(more), NOW);
    expect([
      of({}),
      of({ has_password: false, link_expires_at: daysFromNow(1) }),
      of({ has_password: false, link_expires_at: daysFromNow(-1) }),
      of({ has_password: false, oidc_linked_at: daysFromNow(-1) }),
      of({ disabled_at: NOW.toISOString(), link_expires_at: daysFromNow(1) }),
    ]).toEqual(["active", "invited", "link expired", "active", "disabled"]);
  });

  it("lists the gravest first with its page", () => {
    const known = {
      app: shop,
      vapidKeys: [vapidKey("active", 62), vapidKey("retired", 38)],
      apiKeys: [apiKey({ id: "ak_2", last_used_on: null }), apiKey({ expires_at: daysFromNow(9) })],
    };
    const found = notes([known], [teammate({ has_password: false, link_expires_at: daysFromNow(2) })], NOW);
    expect(found.map(({ tone, words, path, app }) => [tone, words, path, app])).toEqual([
      ["lost", "The API key “backend” of Shop expires in 9 days", "/settings/keys", "shop"],
      ["retrying", "The API key “backend” of Shop is not used", "/settings/keys", "shop"],
      ["waiting", "Shop rotates its VAPID key: 62 % of 100 subscriptions moved", "/settings/keys", "shop"],
      ["waiting", "ann@example.com has an unused invitation link", "/settings/team", undefined],
    ]);
    expect(notes([{ app: shop, vapidKeys: [vapidKey("active", 9)], apiKeys: [apiKey()] }], undefined, NOW)).toEqual([]);
  });
});
