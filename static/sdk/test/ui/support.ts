import { vi } from "vitest";
import type { Client, Result, Status } from "../../src/api";
import type { UiOptions } from "../../src/ui";
import type { PromptSettings } from "../../src/ui/settings";

export const UNSUBSCRIBED: Status = { state: "unsubscribed", permission: "default" };
export const SUBSCRIBED: Extract<Status, { state: "subscribed" }> = {
  state: "subscribed",
  id: "sub_1",
  topics: ["news", "hidden"],
  tags: ["vip"],
  userId: "ann",
  muted: null,
};
export const PROMPT: PromptSettings = {
  enabled: true,
  layout: "card",
  topics: ["news"],
  visits: 1,
  seconds: 0,
  scroll_percent: 0,
  event: null,
  share_percent: 100,
  no_days: 90,
  not_now_days: 7,
  texts: { en: { title: "Hear of new arrivals?" } },
  variants: [],
};
const TOPICS = [
  { name: "news", title: "News", description: "Once a week", texts: { de: { title: "Neuigkeiten" } } },
  { name: "offers", title: "Offers", texts: {} },
];
export const DAY_MS = 86_400_000;

/** Page of one browser. A further page of the same browser shares its storage. */
export async function page({
  status = UNSUBSCRIBED,
  prompt = {},
  lang = "en",
  result = { ok: true, status: SUBSCRIBED } as Result,
  now = 1e12,
  permission = "default" as NotificationPermission,
  options = undefined as UiOptions | undefined,
} = {}) {
  vi.resetModules();
  document.body.replaceChildren();
  document.documentElement.lang = lang;
  const { clock } = await import("../../src/shared/clock");
  const planned: { ms: number; work: () => void }[] = [];
  const time = { now };
  clock.now = () => time.now;
  const waits: number[] = [];
  clock.wait = (ms) => (waits.push(ms), new Promise((resolve) => setTimeout(resolve)));
  clock.later = (ms, work) => (planned.push({ ms, work }), () => {});
  const json = async () => ({ application_server_key: "k", prompt: { ...PROMPT, ...prompt }, topics: TOPICS });
  const fetched = vi.fn(async (_url: string, _init: RequestInit) => ({ ok: true, json }));
  vi.stubGlobal("fetch", fetched);
  vi.stubGlobal("Notification", { permission });
  const posts = () => fetched.mock.calls.filter(([, { method }]) => method === "POST");
  /** Reports of steps so far. */
  const reports = () => posts().map(([, { body }]) => JSON.parse(body as string));
  let current = status;
  const listeners = new Set<(status: Status) => void>();
  const answer = () => vi.fn(async (): Promise<Result> => result);
  const client = {
    options: { app: "shop", server: "https://push.example" },
    ready: Promise.resolve(status),
    status: async () => current,
    subscribe: answer(),
    unsubscribe: answer(),
    setTopics: answer(),
    setMuted: answer(),
    credentials: vi.fn(async (): Promise<{ id: string; token: string } | null> => ({ id: "sub_1", token: "secret" })),
    on: (event: string, listener: any) => (
      event === "change" && listeners.add(listener), () => listeners.delete(listener)
    ),
  };
  const change = (status: Status) => ((current = status), listeners.forEach((listener) => listener(status)));
  const { ui } = await import("../../src/ui");
  // A document defines each element once, but each page has modules of its own.
  const define = vi.spyOn(customElements, "define").mockImplementation(() => {});
  const bellwire = ui(client as unknown as Client, options);
  define.mockRestore();
  const parts = {
    prompt: (await import("../../src/ui/prompt")).Prompt,
    bell: (await import("../../src/ui/bell")).Bell,
    preferences: (await import("../../src/ui/preferences")).Preferences,
  };
  await import("../../src/ui/preferences_form"); // so that the elements find it at once
  const names = { prompt: "", bell: "", preferences: "" };
  for (const name of Object.keys(parts) as (keyof typeof parts)[])
    customElements.define((names[name] = `x-${name}-${++serial}`), parts[name]);
  const add = async (name: keyof typeof parts) => {
    const element = document.createElement(names[name]) as HTMLElement & {
      client: unknown;
      show(): Promise<boolean>;
      preview(settings: object, by?: unknown): Promise<void>;
    };
    document.body.append(element);
    await settle();
    return element;
  };
  return { client, bellwire, change, listeners, add, planned, waits, time, fetched, posts, reports };
}
let serial = 0;

/** Lets all waiting promises and imports of texts settle. */
export async function settle(): Promise<void> {
  for (let round = 0; round < 3; round++) {
    await vi.dynamicImportSettled();
    await new Promise((resolve) => setTimeout(resolve));
  }
}
export const find = <E extends HTMLElement = HTMLElement>(element: HTMLElement, selector: string) =>
  element.shadowRoot!.querySelector<E>(selector);
export const text = (element: HTMLElement, selector: string) => find(element, selector)?.textContent;
export const click = async (element: HTMLElement, selector: string) => (find(element, selector)!.click(), settle());
export const stored = () => JSON.parse(localStorage.getItem("bellwire shop")!);
