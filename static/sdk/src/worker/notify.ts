import type { Message } from "../types";
import { clock } from "../shared/clock";
import { type News, newsChannel } from "../shared/news";
import type { Bellwire, RawHandler, RawPush, Shown } from "./api";
import { wasSeen } from "./memory";
import { receiptOf, receiptsUrl, report } from "./receipts";
import type { Ours, Push } from "./wire";

const HANDLER_MS = 10_000;

/** Deliveries that are being shown just now, by id. */
const running = new Map<string, Promise<boolean>>();

/** The notification that is being put on display just now. */
let displaying: Promise<unknown> = Promise.resolve();

/**
 * Whether a closed notification was replaced, by a repeat or by a later one under its tag, rather than closed by the
 * person: Firefox tells of both in the same way.
 */
export async function wasReplaced({ registration }: ServiceWorkerGlobalScope, tag: string): Promise<boolean> {
  await displaying;
  return (await registration.getNotifications({ tag })).length > 0;
}

function display({ registration }: ServiceWorkerGlobalScope, title: string, options: NotificationOptions): Promise<void> {
  const shown = registration.showNotification(title, options);
  displaying = shown.catch(() => {});
  return shown;
}

/**
 * Shows a push, once however often it comes. A delivery is remembered only after it was shown, so that a worker that is
 * killed in between shows it on the repeat; two that race in one worker wait for each other.
 */
export async function notify(worker: ServiceWorkerGlobalScope, push: Push, bellwire: Bellwire, handler?: RawHandler) {
  const id = push.stamp?.id;
  if (!id) return void (await showFirst(worker, push, bellwire, handler));
  const turn = (running.get(id) ?? wasSeen(id)).then(async (seen) => {
    if (seen) await showAgain(worker, id, push, bellwire.fallback);
    return seen || showFirst(worker, push, bellwire, handler);
  });
  const settled = turn.catch(() => false);
  running.set(id, settled);
  await turn.finally(() => running.get(id) === settled && running.delete(id));
}

async function showFirst(
  worker: ServiceWorkerGlobalScope,
  push: Push,
  bellwire: Bellwire,
  handler?: RawHandler,
): Promise<boolean> {
  const answer = push.raw && handler ? await handle(handler, push.raw) : push.shown;
  const id = push.stamp?.id;
  if (answer !== true) {
    const [title, options] = dress(worker, answer ?? push.shown ?? bellwire.fallback, push, bellwire.fallback);
    if (!(await show(worker, title, options))) return false;
  }
  setBadge(push.badge);
  tell(worker, push, answer === true ? undefined : answer);
  if (push.stamp) await report(id, receiptOf(await receiptsUrl(worker, bellwire), push.stamp.receipt, "displayed"));
  return true;
}

async function handle(handler: RawHandler, raw: RawPush): Promise<Shown | true | undefined> {
  try {
    const answer = await Promise.race([handler(raw), clock.wait(HANDLER_MS)]);
    return answer === true || typeof answer?.title === "string" ? answer : undefined;
  } catch (error) {
    console.error(error);
    return undefined;
  }
}

/** As told; if the browser objects to something in it, with the words alone. False: it may not show anything. */
async function show(worker: ServiceWorkerGlobalScope, title: string, options: NotificationOptions): Promise<boolean> {
  const { body, tag, data } = options;
  for (const attempt of [options, { body, tag, data }]) {
    try {
      await display(worker, title, attempt);
      return true;
    } catch (error) {
      console.error(error);
    }
  }
  return false;
}

/**
 * A browser wants a notification for a repeat too: Safari ends a subscription after three pushes that showed none. If the
 * first is still on display, it is put there again in silence; if the person has dealt with it, one is shown in silence
 * and taken away at once, under a tag of its own so that it replaces no other.
 */
async function showAgain(worker: ServiceWorkerGlobalScope, id: string, push: Push, fallback: Shown): Promise<void> {
  const { registration } = worker;
  const [title, options] = dress(worker, push.shown ?? fallback, push, fallback);
  const there = (await registration.getNotifications()).find(({ data }) => data?.bellwire?.id === id);
  if (there) {
    const { body, icon, lang, dir, tag, data } = there;
    // What the page's own code made of a raw payload is only known from the display.
    const same = push.raw ? { body, icon: icon || undefined, lang, dir, tag, data } : options;
    return display(worker, there.title, { ...same, silent: true });
  }
  const tag = `${tagOf(id)}:again`;
  await display(worker, title, { body: options.body, tag, silent: true });
  for (const again of await registration.getNotifications({ tag })) again.close();
}

const tagOf = (id: string | undefined) => `bellwire:${id ?? "fallback"}`;

/** Adds what a click will need. Each delivery has a tag, so that a repeat can take its place. */
function dress(
  worker: ServiceWorkerGlobalScope,
  shown: Shown,
  { stamp }: Push,
  fallback: Shown,
): [string, NotificationOptions] {
  const { title, url = fallback.url ?? "/", ...options } = shown;
  const given = (options as { actions?: { action: string; navigate?: string }[] }).actions ?? [];
  const targets = given.flatMap(({ action, navigate }) => (navigate ? [[action, navigate]] : []));
  // A browser that knows `navigate` would go there by itself, and the click would go unreported.
  const actions = given.map(({ navigate: _, ...action }) => action);
  const ours: Ours = { ...stamp, url, actions: Object.fromEntries(targets) };
  const tag = options.tag || (stamp || shown === fallback ? tagOf(stamp?.id) : undefined);
  return [
    title || fallback.title || worker.location.hostname,
    { ...options, actions, tag, data: { ...options.data, bellwire: ours } } as NotificationOptions,
  ];
}

function setBadge(badge: number | undefined): void {
  if (badge === undefined) return;
  void (badge ? navigator.setAppBadge?.(badge) : navigator.clearAppBadge?.())?.catch(() => {});
}

/** Lets open pages know. The page's own code may have put something into `data` that cannot be copied: then nobody hears. */
function tell(worker: ServiceWorkerGlobalScope, { stamp, raw }: Push, shown?: Shown): void {
  const { title, body, url } = shown ?? {};
  const { bellwire: _, ...data } = shown?.data ?? {};
  const message: Message = { id: stamp?.id, title, body, url, data, payload: raw?.payload };
  try {
    const channel = newsChannel();
    channel.postMessage({ scope: worker.registration.scope, type: "message", message } satisfies News);
    channel.close();
  } catch (error) {
    console.error(error);
  }
}
