import "fake-indexeddb/auto";
import { IDBFactory } from "fake-indexeddb";
import { vi } from "vitest";
import type { Bellwire } from "../../src/worker/api";
import { FakeLocks, FakeNotification, FakeRegistration } from "../shared/browser";
import { FakeServer, ORIGIN } from "../shared/server";

export const SCOPE = "https://shop.example/";
export const ID = "_____________________w";
export const RECEIPT = "r".repeat(64);

export const stamp = (id = ID, retried = 0) => ({ id, receipt: RECEIPT, retried });

export const declarative = (notification: object = {}, top: object = {}, id = ID) => ({
  web_push: 8030,
  mutable: true,
  ...top,
  notification: { title: "T", navigate: "/x", mutable: true, ...notification, data: { ...(notification as any).data, bellwire: stamp(id) } },
});

/** An open page of the site. */
export class FakeClient {
  focused = false;
  controlled = true;
  constructor(public url: string) {}
  focus = async () => ((this.focused = true), this);
  navigate = async (url: string) => {
    if (!this.controlled) throw new TypeError("not controlled");
    this.url = url;
    return this;
  };
}

/** A browser's service worker for one scope. `restart()` gives it a new global; storage and what is on display stay. */
export class FakeWorker {
  server = new FakeServer();
  registration = new FakeRegistration(SCOPE, `${SCOPE}sw.js`);
  pages: FakeClient[] = [];
  opened: string[] = [];
  badges: (number | null)[] = [];
  now = 1_000_000_000_000;
  waits: number[] = [];
  bellwire!: Bellwire;
  script = `${SCOPE}service-worker.js?app=shop&server=${encodeURIComponent(ORIGIN)}`;
  private listeners = new Map<string, ((event: any) => void)[]>();

  constructor() {
    vi.stubGlobal("indexedDB", new IDBFactory());
    vi.stubGlobal("fetch", this.server.fetch);
    vi.stubGlobal("Notification", { permission: "granted" });
    vi.stubGlobal("navigator", {
      locks: new FakeLocks(),
      setAppBadge: async (n: number) => void this.badges.push(n),
      clearAppBadge: async () => void this.badges.push(null),
    });
  }

  async start(): Promise<this> {
    vi.resetModules();
    this.listeners.clear();
    const { clock } = await import("../../src/shared/clock");
    clock.now = () => this.now;
    clock.jitter = () => 1;
    clock.wait = async (ms) => void this.waits.push(ms);
    const { install } = await import("../../src/worker/install");
    const location = new URL(this.script);
    this.bellwire = install({
      location,
      registration: this.registration,
      addEventListener: (type: string, listener: () => void) => this.listen(type, listener),
      clients: { matchAll: async () => this.pages, openWindow: async (url: string) => void this.opened.push(url) },
    } as never);
    return this;
  }

  restart = () => this.start();

  /** Fires an event and waits for all that it asked to be waited for. */
  async fire(type: string, event: object = {}): Promise<void> {
    const waiting: Promise<unknown>[] = [];
    let stopped = false;
    const given = Object.assign(event, {
      waitUntil: (promise: Promise<unknown>) => void waiting.push(promise),
      stopImmediatePropagation: () => void (stopped = true),
    });
    for (const listener of this.listeners.get(type) ?? []) if (!stopped) listener(given);
    await Promise.all(waiting);
  }

  /** Adds a listener of the site's own, below our line. */
  listen(type: string, listener: (event: any) => void): void {
    this.listeners.set(type, [...(this.listeners.get(type) ?? []), listener]);
  }

  push(payload?: object | string | Uint8Array): Promise<void> {
    const text = typeof payload === "object" && !(payload instanceof Uint8Array) ? JSON.stringify(payload) : payload;
    const octets = typeof text === "string" ? new TextEncoder().encode(text) : text;
    return this.fire("push", { data: octets && { arrayBuffer: () => octets.slice().buffer } });
  }

  click(notification: FakeNotification, action = ""): Promise<void> {
    return this.fire("notificationclick", { notification, action });
  }

  get last(): FakeNotification {
    return this.registration.shown.at(-1)!;
  }

  titles = () => this.registration.displayed().map(({ title }) => title);
}
