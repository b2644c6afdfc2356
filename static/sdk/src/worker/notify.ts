import type { Message } from "../types";
import { clock } from "../shared/clock";
import { type News, newsChannel } from "../shared/news";
import type { Bellwire, RawHandler, RawPush, Shown } from "./api";
import { wasChanged, wasSeen } from "./memory";
import { appUrl, receiptOf, report } from "./receipts";
import { asOurs } from "./others";
import type { Ours, Push } from "./wire";

const HANDLER_MS = 10_000;
/** Time that a notification without news stays, so that the event ends before. */
const CLOSE_MS = 300;

/** Deliveries that are currently being shown, by id. */
const running = new Map<string, Promise<boolean>>();

/** Notification that is currently being displayed. */
let displaying: Promise<unknown> = Promise.resolve();

/**
 * Whether a repeat or a later notification with the same tag replaced a closed notification. Firefox reports this like a
 * closing by the person.
 */
export async function wasReplaced(worker: ServiceWorkerGlobalScope, tag: string): Promise<boolean> {
  return (await displayed(worker, { tag })).length > 0;
}

/** Notifications on display. Chromium drops one whose list is read while it is being shown. */
export async function displayed({ registration }: ServiceWorkerGlobalScope, filter = {}): Promise<Notification[]> {
  await displaying;
  return registration.getNotifications(filter);
}

export function display(
  { registration }: ServiceWorkerGlobalScope,
  title: string,
  options: NotificationOptions,
): Promise<void> {
  const shown = asOurs(() => registration.showNotification(title, options));
  displaying = shown.catch(() => {});
  return shown;
}

/**
 * Shows a push once, even if it is repeated. A delivery is stored after it was shown, so a worker that is killed in between
 * shows the repeat. Concurrent repeats in one worker wait for each other.
 */
export async function notify(worker: ServiceWorkerGlobalScope, push: Push, bellwire: Bellwire, handler?: RawHandler) {
  const id = push.stamp?.id;
  if (!id) return void (await showFirst(worker, push, bellwire, handler));
  await inTurn(id, async (seen) => {
    if (seen) await showAgain(worker, id, push, bellwire);
    return seen || showFirst(worker, push, bellwire, handler);
  });
}

/** Runs work on a delivery after earlier work on it. Work gets and returns whether the delivery was seen. */
export async function inTurn(id: string, work: (seen: boolean) => Promise<boolean>): Promise<void> {
  const turn = (running.get(id) ?? wasSeen(id)).then(work);
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
  const app = push.stamp && (await appUrl(worker, bellwire));
  if (answer !== true) {
    const [title, options] = dress(worker, answer ?? push.shown ?? bellwire.fallback, push, bellwire.fallback, app);
    if (!(await show(worker, title, options))) return false;
  }
  setBadge(push.badge);
  tell(worker, push, app, answer === true ? undefined : answer);
  if (push.stamp) await report(id, receiptOf(app, push.stamp.receipt, "displayed", { id }));
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

/** Shows a notification. If the browser rejects an option, shows the texts alone. False: it may not show notifications. */
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
 * A repeat needs a notification, too: Safari ends a subscription after three pushes that showed none. If the first one is
 * still displayed, it is shown again silently. Otherwise a silent one is shown and removed at once. Its own tag prevents it
 * from replacing another notification.
 */
async function showAgain(worker: ServiceWorkerGlobalScope, id: string, push: Push, bellwire: Bellwire): Promise<void> {
  const { fallback } = bellwire;
  const isOld = (await wasChanged(id, "withdrawn")) || (await wasChanged(id, "updated"));
  const shown = isOld ? { title: fallback.title } : (push.shown ?? fallback);
  const [title, options] = dress(worker, shown, push, fallback, await appUrl(worker, bellwire));
  const there = (await displayed(worker)).find(({ data }) => data?.bellwire?.id === id);
  // The notification of a changed delivery shows the new content: it stays as it is.
  if (there && !isOld) {
    const { body, icon, lang, dir, tag, data } = there;
    // The notification that the site's code made of a raw payload is only known from the display.
    const same = push.raw
      ? { body, icon: icon || undefined, lang, dir, tag, data }
      : { ...options, renotify: false, vibrate: undefined };
    return display(worker, there.title, { ...same, silent: true });
  }
  const tag = `${tagOf(id)}:again`;
  await display(worker, title, { body: options.body, tag, silent: true });
  closeSoon(worker, tag);
}

/**
 * Closes notifications after the event. Chromium counts the visible ones at its end, and penalises a push that leaves none.
 * Browsers keep an idle worker for 30 seconds.
 */
export const closeSoon = (worker: ServiceWorkerGlobalScope, tag: string, receipt?: string) =>
  void clock
    .wait(CLOSE_MS)
    .then(() => displayed(worker, { tag }))
    .then((all) => all.forEach((one) => one.data?.bellwire?.receipt === receipt && one.close()))
    .catch(console.error);

export const tagOf = (id: string | undefined) => `bellwire:${id ?? "fallback"}`;

/** Adds the data for a click. Each delivery has a tag, so a repeat can replace its notification. */
export function dress(
  worker: ServiceWorkerGlobalScope,
  shown: Shown,
  { stamp }: Push,
  fallback: Shown,
  app: string | undefined,
): [string, NotificationOptions] {
  const { title, url = fallback.url ?? "/", ...options } = shown;
  const given = (options as { actions?: { action: string; navigate?: string }[] }).actions ?? [];
  const targets = given.flatMap(({ action, navigate }) => (navigate ? [[action, navigate]] : []));
  // A browser that supports `navigate` would open the URL by itself, without a click event to report.
  const actions = given.map(({ navigate: _, ...action }) => action);
  const ours: Ours = { ...stamp, app, url, actions: Object.fromEntries(targets) };
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

/** Notifies open pages. If the site's code put a value into `data` that cannot be copied, no page is notified. */
function tell(worker: ServiceWorkerGlobalScope, { stamp, raw }: Push, app?: string, shown?: Shown): void {
  const { title, body, url } = shown ?? {};
  const { bellwire: _, ...data } = shown?.data ?? {};
  const message: Message = { id: stamp?.id, title, body, url, data, payload: raw?.payload };
  try {
    const channel = newsChannel();
    channel.postMessage({ scope: worker.registration.scope, app, type: "message", message } satisfies News);
    channel.close();
  } catch (error) {
    console.error(error);
  }
}
