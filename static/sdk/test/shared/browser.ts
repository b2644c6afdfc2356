/** The browser's push machinery, as far as the SDK and the worker see it. */
import { vi } from "vitest";

let made = 0;

export class FakeSubscription {
  readonly endpoint = `https://gateway.example/${++made}`;
  p256dh = `p256dh-${made}`;
  readonly options: { applicationServerKey: ArrayBuffer | null };
  expirationTime = null;

  constructor(
    private readonly manager: FakePushManager,
    key: string,
  ) {
    const binary = atob(key.replace(/-/g, "+").replace(/_/g, "/"));
    this.options = { applicationServerKey: Uint8Array.from(binary, (c) => c.charCodeAt(0)).buffer };
  }

  toJSON() {
    return { endpoint: this.endpoint, expirationTime: null, keys: { p256dh: this.p256dh, auth: "auth" } };
  }

  async unsubscribe() {
    if (this.manager.subscription === this) this.manager.subscription = null;
    return true;
  }
}

export class FakePushManager {
  subscription: FakeSubscription | null = null;
  failure: DOMException | undefined;
  getSubscription = vi.fn(async () => this.subscription);
  subscribe = vi.fn(async ({ applicationServerKey }: { applicationServerKey: string }) => {
    if (this.failure) throw this.failure;
    return (this.subscription ??= new FakeSubscription(this, applicationServerKey));
  });
}

export class FakeNotification {
  closed = false;
  constructor(
    readonly title: string,
    readonly options: any = {},
  ) {}
  get body() {
    return this.options.body ?? "";
  }
  get icon() {
    return this.options.icon ?? "";
  }
  get lang() {
    return "";
  }
  get dir() {
    return "auto";
  }
  get tag() {
    return this.options.tag ?? "";
  }
  get requireInteraction() {
    return this.options.requireInteraction ?? false;
  }
  get data() {
    return this.options.data;
  }
  close = () => {
    this.closed = true;
  };
}

export class FakeRegistration {
  pushManager = new FakePushManager();
  active: { scriptURL: string; state: string; postMessage: (m: unknown) => void } | null;
  installing = null;
  waiting = null;
  /** Every notification that was ever shown, in order. */
  shown: FakeNotification[] = [];
  objectsTo: (title: string, options: any) => boolean = () => false;
  sync: { register: (tag: string) => Promise<void> } | undefined = { register: vi.fn(async () => {}) };

  constructor(
    readonly scope: string,
    scriptURL: string,
  ) {
    this.active = { scriptURL, state: "activated", postMessage: vi.fn() };
  }

  showNotification = (title: string, options: any = {}): Promise<void> => this.show(title, options);
  show = vi.fn(async (title: string, options: any = {}): Promise<void> => {
    if (this.objectsTo(title, options)) throw new TypeError("no");
    for (const other of this.shown) if (options.tag && other.tag === options.tag) other.closed = true;
    this.shown.push(new FakeNotification(title, structuredClone(options)));
  });

  getNotifications = vi.fn(async ({ tag }: { tag?: string } = {}) =>
    this.shown.filter((shown) => !shown.closed && (!tag || shown.tag === tag)),
  );

  displayed = () => this.shown.filter(({ closed }) => !closed);
}

/** Web Locks of one origin, without modes and options. */
export class FakeLocks {
  private tails = new Map<string, Promise<unknown>>();
  request = <T>(name: string, work: () => Promise<T>): Promise<T> => {
    const done = (this.tails.get(name) ?? Promise.resolve()).then(work);
    this.tails.set(
      name,
      done.catch(() => {}),
    );
    return done;
  };
}
