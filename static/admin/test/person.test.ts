// @vitest-environment happy-dom
import { h, render, type ComponentType } from "preact";
import { LocationProvider, Route, Router } from "preact-iso";
import { beforeEach, expect, it, vi } from "vitest";
import type { AppResponse, Muted, SessionResponse, SubscriptionResponse } from "../src/api/types";
import { clock } from "../src/lib/clock";
import { forgetFigures } from "../src/lib/resource";
import * as load from "../src/pages/subscribers/load";
import PersonPage from "../src/pages/subscribers/person";
import { HereContext } from "../src/shell/context";

vi.mock("../src/pages/subscribers/load", { spy: true });

const APP = { id: "app_1", slug: "shop", name: "Shop" } as AppResponse;
const NOW = new Date("2026-11-29T10:00:00Z");

beforeEach(() => {
  vi.useFakeTimers({ now: NOW });
  clock.shown.value = NOW;
  return () => {
    vi.useRealTimers();
    forgetFigures();
    render(null, document.body);
  };
});

/** Note on the page of a subscription. */
async function noteOf(muted: Muted | null) {
  const device = {
    id: "sub_1",
    state: "active",
    gateway: "fcm",
    created_at: "2026-11-01T10:00:00Z",
    last_seen: "2026-11-28T00:00:00Z",
    since: "2026-11-01T10:00:00Z",
    topics: [],
    tags: [],
    attributes: {},
    vapid_key_id: "vk_1",
    muted,
  } as unknown as SubscriptionResponse;
  const person = { user: undefined, devices: [device], isAll: true, calendar: { timezone: "UTC" } };
  vi.spyOn(load, "loadPerson").mockResolvedValue(person);
  vi.spyOn(load, "loadLatest").mockResolvedValue([]);
  vi.spyOn(load, "loadWaits").mockResolvedValue([]);
  history.replaceState(null, "", "/subscribers/shop/sub_1");
  const here = {
    session: { roles: [] } as unknown as SessionResponse,
    apps: [APP],
    app: APP,
    refreshApps: async () => {},
  };
  const route = h(Route, { path: "/subscribers/:app/:subscription", component: PersonPage });
  render(
    h(LocationProvider, {}, h(HereContext.Provider, { value: here }, h(Router as ComponentType, {}, route))),
    document.body,
  );
  await vi.advanceTimersByTimeAsync(100);
  return document.querySelector("[data-muted]")?.textContent;
}

it("shows that a subscription is muted", async () => {
  expect(await noteOf({ until: "2026-12-06T10:00:00Z" })).toMatch(/^Only important messages until 6 Dec \d\d:00\.$/);
});

it("shows a mute without an end", async () => {
  expect(await noteOf({ until: null })).toBe("Only important messages, without an end.");
});

it("shows nothing without a mute", async () => {
  expect(await noteOf(null)).toBeUndefined();
  expect(document.body.textContent).toContain("Last seen");
});
