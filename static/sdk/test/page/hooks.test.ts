// @vitest-environment happy-dom
import { act, createElement } from "react";
import { createRoot } from "react-dom/client";
import { renderToString } from "react-dom/server";
import { describe, expect, it, vi } from "vitest";
import { createApp, createSSRApp, effectScope, h } from "vue";
import type { Client, Result, Status } from "../../src/bellwire";
import { usePush as useReactPush } from "../../src/react";
import { usePush as useVuePush } from "../../src/vue";

const UNSUBSCRIBED: Status = { state: "unsubscribed", permission: "default" };
const SUBSCRIBED: Status = { state: "subscribed", id: "sub_1", topics: ["news"], tags: [], userId: null, muted: null };
const REFUSED: Result = {
  ok: false,
  status: { state: "denied" },
  reason: "denied",
  message: "Blocked.",
  retrying: false,
};

/** A client whose answers the test gives. */
function fakeClient() {
  const listeners = new Set<(status: Status) => void>();
  let answer = (_: Status) => {};
  const status = new Promise<Status>((resolve) => (answer = resolve));
  const call = () => vi.fn(async (): Promise<Result> => ({ ok: true, status: SUBSCRIBED }));
  const calls = {
    subscribe: call(),
    unsubscribe: call(),
    setTopics: call(),
    setTags: call(),
    setAttributes: call(),
    setMuted: call(),
    track: call(),
    converted: call(),
    login: call(),
    logout: call(),
  };
  const on = (_: string, listener: (status: Status) => void) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };
  const client = { ...calls, on, status: vi.fn(() => status) };
  const change = (status: Status) => listeners.forEach((listener) => listener(status));
  return { client: client as unknown as Client, calls, listeners, answer, change };
}

type Fake = ReturnType<typeof fakeClient>;
type Seen = { status: Status | undefined; problem: string | undefined; calls: any };
/** A component that uses the client: its newest state, and how it ends. */
type Mounted = { seen(): Seen; settle(work?: () => unknown): Promise<void>; end(): void };

function mountReact({ client }: Fake): Mounted {
  (globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;
  let seen: Seen;
  function Component() {
    const { status, problem, ...calls } = useReactPush(client);
    seen = { status, problem, calls };
    return null;
  }
  const root = createRoot(document.createElement("div"));
  act(() => root.render(createElement(Component)));
  return {
    seen: () => seen,
    settle: (work) => act(async () => void (await work?.())),
    end: () => act(() => root.unmount()),
  };
}

function mountVue({ client }: Fake): Mounted {
  let push: ReturnType<typeof useVuePush>;
  const app = createApp({
    setup() {
      push = useVuePush(client);
      return () => null;
    },
  });
  app.mount(document.createElement("div"));
  const seen = () => {
    const { status, problem, ...calls } = push;
    return { status: status.value, problem: problem.value, calls };
  };
  return { seen, settle: async (work) => void (await work?.()), end: () => app.unmount() };
}

describe.each([
  ["react", mountReact],
  ["vue", mountVue],
] as const)("usePush of %s", (_, mount) => {
  it("shows the status and its changes", async () => {
    const fake = fakeClient();
    const { seen, settle } = mount(fake);
    expect(seen().status).toBeUndefined();
    await settle(() => fake.answer(UNSUBSCRIBED));
    expect(seen().status).toEqual(UNSUBSCRIBED);
    await settle(() => fake.change(SUBSCRIBED));
    expect(seen().status).toEqual(SUBSCRIBED);
  });

  it("keeps a change that precedes the first answer", async () => {
    const fake = fakeClient();
    const { seen, settle } = mount(fake);
    await settle(() => fake.change(SUBSCRIBED));
    await settle(() => fake.answer(UNSUBSCRIBED));
    expect(seen().status).toEqual(SUBSCRIBED);
  });

  it("shows why a call failed until one succeeds", async () => {
    const fake = fakeClient();
    const { seen, settle } = mount(fake);
    fake.calls.subscribe.mockResolvedValueOnce(REFUSED);
    await settle(async () => expect(await seen().calls.subscribe({ topics: ["news"] })).toBe(REFUSED));
    expect(fake.calls.subscribe).toHaveBeenCalledWith({ topics: ["news"] });
    expect(seen()).toMatchObject({ status: { state: "denied" }, problem: "Blocked." });
    await settle(() => seen().calls.login("ann", "signed"));
    expect(fake.calls.login).toHaveBeenCalledWith("ann", "signed");
    expect(seen()).toMatchObject({ status: SUBSCRIBED, problem: undefined });
  });

  it("mutes, and shows the muted status", async () => {
    const fake = fakeClient();
    const { seen, settle } = mount(fake);
    const muted = { until: "2026-12-01T00:00:00Z" };
    fake.calls.setMuted.mockResolvedValueOnce({ ok: true, status: { ...SUBSCRIBED, muted } });
    await settle(() => seen().calls.setMuted(muted));
    expect(fake.calls.setMuted).toHaveBeenCalledExactlyOnceWith(muted);
    expect(seen().status).toMatchObject({ state: "subscribed", muted });
  });

  it("reports events and conversions without showing failures", async () => {
    const fake = fakeClient();
    const { seen, settle } = mount(fake);
    fake.calls.track.mockResolvedValueOnce(REFUSED);
    await settle(async () => expect(await seen().calls.track("cart_added", { total: 5 })).toBe(REFUSED));
    expect(fake.calls.track).toHaveBeenCalledWith("cart_added", { total: 5 });
    const order = { value: 5, currency: "EUR" };
    fake.calls.converted.mockResolvedValueOnce(REFUSED);
    await settle(async () => expect(await seen().calls.converted("purchase", order)).toBe(REFUSED));
    expect(fake.calls.converted).toHaveBeenCalledWith("purchase", order);
    expect(seen().problem).toBeUndefined();
  });

  it("takes no click event for details", async () => {
    const fake = fakeClient();
    const { seen, settle } = mount(fake);
    await settle(() => seen().calls.subscribe(new MouseEvent("click")));
    await settle(() => seen().calls.logout(new MouseEvent("click")));
    expect(fake.calls.subscribe).toHaveBeenCalledWith(undefined);
    expect(fake.calls.logout).toHaveBeenCalledWith(undefined);
  });

  it("stops listening with its component", async () => {
    const fake = fakeClient();
    const { end } = mount(fake);
    expect(fake.listeners.size).toBe(1);
    end();
    expect(fake.listeners.size).toBe(0);
  });
});

describe("usePush elsewhere", () => {
  it("renders on a server without asking the client", async () => {
    const { client, listeners } = fakeClient();
    const Component = () => createElement("p", null, useReactPush(client).status?.state ?? "unknown");
    expect(renderToString(createElement(Component))).toBe("<p>unknown</p>");
    const { renderToString: renderVue } = await import("vue/server-renderer");
    const app = createSSRApp({
      setup: () =>
        (
          (push) => () =>
            h("p", push.status.value?.state ?? "unknown")
        )(useVuePush(client)),
    });
    expect(await renderVue(app)).toBe("<p>unknown</p>");
    expect(listeners.size).toBe(0);
  });

  it("follows the client in a scope without component", () => {
    const { client, change, listeners } = fakeClient();
    const scope = effectScope();
    const push = scope.run(() => useVuePush(client))!;
    change(SUBSCRIBED);
    expect(push.status.value).toEqual(SUBSCRIBED);
    scope.stop();
    expect(listeners.size).toBe(0);
  });
});
