import "fake-indexeddb/auto";
import { IDBFactory } from "fake-indexeddb";
import { vi } from "vitest";
import type { Client, Options } from "../../src/bellwire";
import { FakeLocks, FakeRegistration } from "../shared/browser";
import { FakeServer, ORIGIN } from "../shared/server";

export const SCOPE = "https://shop.example/";

/** One browser with its tabs. A new one forgets everything. */
export class Browser {
  server = new FakeServer();
  registration: FakeRegistration | undefined;
  permission: NotificationPermission = "default";
  /** Answer of the person to the browser's question. */
  answer: NotificationPermission = "granted";
  asked = 0;
  gesture = true;
  now = 1_000_000_000_000;
  waits: number[] = [];
  /** Scheduled work of tabs, with the delay in milliseconds. */
  planned: { ms: number; work: () => void }[] = [];
  container = Object.assign(new EventTarget(), {
    getRegistration: vi.fn(async (): Promise<unknown> => this.registration),
    register: vi.fn(async (url: string, { scope }: { scope: string }): Promise<unknown> => {
      return (this.registration ??= new FakeRegistration(scope, url));
    }),
  });

  constructor() {
    const browser = this;
    this.server.now = () => this.now;
    vi.stubGlobal("indexedDB", new IDBFactory());
    vi.stubGlobal("fetch", this.server.fetch);
    vi.stubGlobal("isSecureContext", true);
    vi.stubGlobal("PushManager", class {});
    vi.stubGlobal("Notification", {
      get permission() {
        return browser.permission;
      },
      requestPermission: async () => {
        browser.asked++;
        return (browser.permission = browser.answer);
      },
    });
    this.define("serviceWorker", this.container);
    this.define("locks", new FakeLocks());
    this.define("userActivation", {
      get isActive() {
        return browser.gesture;
      },
    });
    this.define(
      "clearAppBadge",
      vi.fn(async () => {}),
    );
  }

  define(name: string, value: unknown): void {
    Object.defineProperty(navigator, name, { value, configurable: true });
  }

  get push() {
    return this.registration!.pushManager;
  }

  /** Opens a tab: code of its own, on the same storage. */
  async tab(options: Partial<Options> = {}): Promise<Client> {
    vi.resetModules();
    const { clock } = await import("../../src/shared/clock");
    clock.now = () => this.now;
    clock.jitter = () => 1;
    clock.wait = async (ms) => void this.waits.push(ms);
    clock.later = (ms, work) => {
      const plan = { ms, work };
      this.planned.push(plan);
      return () => void (this.planned = this.planned.filter((other) => other !== plan));
    };
    const { init } = await import("../../src/bellwire");
    return init({ app: "shop", server: ORIGIN, checkEvery: 0, ...options });
  }

  /** Visits twice, as far apart as a subscription under a former key needs to be replaced. */
  async visitTwice(options: Partial<Options> = {}): Promise<Client> {
    await this.visit(options);
    this.now += 2_000;
    return this.visit(options);
  }

  /** Opens a tab and waits until its first comparison is over. */
  async visit(options: Partial<Options> = {}): Promise<Client> {
    const client = await this.tab(options);
    await client.ready;
    return client;
  }
}
