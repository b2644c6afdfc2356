import type { Client, Status } from "../api";
import { base } from "../shared/saved";
import type { UiOptions } from "../ui";
import { type Way, wayOf } from "./device";
import { conclude } from "./funnel";
import { Memory } from "./memory";
import { PLAIN, type PromptSettings } from "./settings";
import { style } from "./style";
import { type Overrides, type Wording, wording } from "./texts";

/** Topic that the app offers in the preferences. */
export interface OfferedTopic {
  name: string;
  title: string;
  description?: string | null;
  texts: Record<string, { title: string; description?: string | null }>;
}

export interface Config {
  prompt: PromptSettings;
  topics: OfferedTopic[];
}

/** State shared by the elements of one client. */
export interface Kit {
  client: Client;
  memory: Memory;
  config: Promise<Config>;
  suggested: Set<string>;
  /** Work of elements that wait for an event. */
  waiting: Set<() => void>;
  texts: Overrides;
  /** Whether steps are reported to the server. */
  reports: boolean;
  /** Ids of displayed notifications in a preview, which reports and stores nothing. */
  preview?: string[];
}

/** Settings of a preview, in place of those of the server. */
export interface PreviewSettings {
  texts?: Overrides;
  topics?: OfferedTopic[];
  /** Number of notifications that the person has not seen. */
  unread?: number;
}

const kits = new WeakMap<Client, Kit>();
let current: Kit | undefined;

const newKit = (client: Client, memory: Memory, config: Promise<Config>): Kit => ({
  client,
  memory,
  config,
  suggested: new Set(),
  waiting: new Set(),
  texts: {},
  reports: true,
});

/** Returns the shared part of a client. The first client is the one of elements that name none. */
export function kitOf(client: Client, { texts, reports }: UiOptions = {}): Kit {
  let kit = kits.get(client);
  if (!kit) {
    kits.set(client, (kit = newKit(client, new Memory(client.options.app), load(client))));
    follow(kit);
  }
  kit.texts = texts ?? kit.texts;
  kit.reports = reports ?? kit.reports;
  current ??= kit;
  return kit;
}

/** Follows the status of the client, because a subscription may be complete only after the question or on a later page. */
function follow(kit: Kit): void {
  const { client, memory } = kit;
  const look = (now: Status) => conclude(kit, now);
  client.on("change", look);
  if (memory.load().asked) void client.ready.then(look);
}

function previewKit(client: Client, { texts = {}, topics = [], unread = 0 }: PreviewSettings): Kit {
  const stored = { read: [] as string[] };
  const memory = { load: () => stored, save: (change: object) => Object.assign(stored, change) } as unknown as Memory;
  return {
    ...newKit(client, memory, Promise.resolve({ prompt: { ...PLAIN, texts }, topics })),
    reports: false,
    preview: Array.from({ length: unread }, (_, n) => `${n}`),
  };
}

async function load({ options }: Client): Promise<Config> {
  const loaded = await fetch(`${base(options)}/config`, { credentials: "omit" })
    .then((response) => response.ok && response.json())
    .catch(() => {}); // the network failed
  return { prompt: PLAIN, topics: [], ...loaded };
}

/** Whether the page was started from an icon on an iPhone or iPad. */
export const isStandalone = () => !!(navigator as { standalone?: boolean }).standalone;

export const isOn = ({ state }: Status): boolean => state === "subscribed" || state === "pending";

export const wayNow = ({ state }: Status): Way | undefined => wayOf(state, navigator.userAgent, isStandalone());

/** Language of the page around an element. Shadow trees that it is in have that of their hosts. */
const languageAt = (element: Element | undefined): string =>
  element
    ? element.closest<HTMLElement>("[lang]")?.lang || languageAt((element.getRootNode() as ShadowRoot).host)
    : navigator.language;

// A server that renders pages has no elements.
const Base = (globalThis.HTMLElement ?? class {}) as typeof HTMLElement;

/** Part of all elements: client, texts, and what ends when the element leaves the page. */
export abstract class BellwireElement extends Base {
  protected root = style(this.attachShadow({ mode: "open" }));
  protected ends: (() => unknown)[] = [];
  #client: Client | undefined;

  /** Client of this element. By default the first one that `ui()` was called with. */
  get client(): Client | undefined {
    return this.#client ?? current?.client;
  }

  set client(client: Client | undefined) {
    const before = this.client;
    this.#client = client;
    if (this.isConnected && client !== before) this.disconnectedCallback(), this.connectedCallback();
  }

  protected get kit(): Kit | undefined {
    return this.client && kitOf(this.client);
  }

  /** Returns whether the element is on the page and was not restarted since. Results that come later must not be drawn. */
  protected run(): () => boolean {
    const { ends } = this;
    return () => ends === this.ends && this.isConnected;
  }

  /** Starts the element once it has a client. */
  protected abstract start(kit: Kit, isCurrent: () => boolean): Promise<void>;

  connectedCallback(): void {
    const { kit } = this;
    if (kit) this.start(kit, this.run()).catch(console.error);
  }

  /** Shows what visitors would see with these settings. Only the client `by` is called: a fake one keeps the server out. */
  preview(settings: object, by?: unknown): void {
    const client = (this.#client = by as Client);
    kits.set(client, previewKit(client, settings));
    this.disconnectedCallback(), this.connectedCallback();
  }

  disconnectedCallback(): void {
    const { ends } = this;
    this.ends = [];
    ends.forEach((end) => end());
  }

  protected listen(target: EventTarget, event: string, work: () => void): void {
    target.addEventListener(event, work);
    this.ends.push(() => target.removeEventListener(event, work));
  }

  /** Texts in the language of the page around the element. */
  protected wording(...overrides: Overrides[]): Promise<Wording> {
    return wording(languageAt(this), ...overrides);
  }

  /** Reports a step to the page, for its own statistics. */
  protected report(step: "shown" | "accepted" | "later" | "no"): void {
    this.dispatchEvent(new CustomEvent("bellwire", { detail: step, bubbles: true, composed: true }));
  }
}
