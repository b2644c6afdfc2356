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
  notification: {
    title: "T",
    navigate: "/x",
    mutable: true,
    ...notification,
    data: { ...(notification as any).data, bellwire: stamp(id) },
  },
});

/** An open page of the site. */
export class FakeClient {
  focused = false;
  controlled = true;
  /** Clicks that the page's own router took; undefined without one. */
  clicks: object[] | undefined;
  /** Pages without the SDK answer nothing. */
  answers = true;
  constructor(public url: string) {}
  focus = async () => ((this.focused = true), this);
  postMessage = ({ click }: { click?: object }, ports: MessagePort[] = []) => {
    if (click) this.clicks!.push(click);
    else if (this.answers) ports[0]!.postMessage(!!this.clicks);
  };
  navigate = async (url: string) => {
    if (!this.controlled) throw new TypeError("not controlled");
    this.url = url;
    return this;
  };
}

interface FakeEvent {
  timeStamp: number;
  waiting: Promise<unknown>[];
  waitUntil(promise: Promise<unknown>): void;
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
  private scope!: any; // as much of a global as the code under test uses
  /** A class of its own for each browser, since workers change its prototype. */
  private ExtendableEvent = class implements FakeEvent {
    timeStamp = performance.now();
    waiting: Promise<unknown>[] = [];
    waitUntil(promise: Promise<unknown>): void {
      this.waiting.push(promise);
    }
  };
  script = `${SCOPE}service-worker.js?app=shop&server=${encodeURIComponent(ORIGIN)}`;
  /** Set to add listeners of the site's own above our line. */
  above: () => void = () => {};
  private listeners = new Map<string, ((event: any) => void)[]>();

  constructor() {
    vi.stubGlobal("indexedDB", new IDBFactory());
    vi.stubGlobal("fetch", this.server.fetch);
    vi.stubGlobal("Notification", { permission: "granted" });
    vi.stubGlobal("navigator", {
      userAgent:
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36",
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
    this.above();
    this.bellwire = install(
      (this.scope = {
        location,
        registration: this.registration,
        ExtendableEvent: this.ExtendableEvent,
        addEventListener: (type: string, listener: () => void) => this.add(type, listener),
        clients: { matchAll: async () => this.pages, openWindow: async (url: string) => void this.opened.push(url) },
      }) as never,
    );
    return this;
  }

  restart = () => this.start();

  /** Fires an event and waits for all that it asked to be waited for. */
  async fire(type: string, event: object = {}): Promise<void> {
    let stopped = false;
    const given: FakeEvent = Object.assign(new this.ExtendableEvent(), event, {
      stopImmediatePropagation: () => void (stopped = true),
    });
    for (const listener of this.listeners.get(type) ?? []) if (!stopped) listener(given);
    for (let n = 0; n < given.waiting.length; n++) await given.waiting[n];
  }

  /** Adds a listener of the site's own, below our line. */
  listen(type: string, listener: (event: any) => void): void {
    this.scope.addEventListener(type, listener);
  }

  /** Adds a listener above our line. For `above`. */
  add(type: string, listener: (event: any) => void): void {
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
