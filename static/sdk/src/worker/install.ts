import { alone } from "../shared/alone";
import { clock } from "../shared/clock";
import { FLUSH, type News, newsChannel } from "../shared/news";
import { reconcile } from "../shared/reconcile";
import { load, type Saved, settled } from "../shared/saved";
import type { Bellwire, RawHandler } from "./api";
import { go } from "./click";
import { wasSeen } from "./memory";
import { notify, wasReplaced } from "./notify";
import { flush, receiptOf, receiptsUrl, report } from "./receipts";
import { type Ours, type Proposed, readPush } from "./wire";

const SYNC_TAG = "bellwire";

type SyncEvent = ExtendableEvent & { tag: string };
type DeclarativePush = PushEvent & { notification?: Proposed | null; appBadge?: unknown };
type WithSync = ServiceWorkerRegistration & { sync?: { register(tag: string): Promise<void> } };

/**
 * Makes a service worker ours too. It claims no pages, skips no waiting and handles no fetches: those are the site's. What
 * is ours, a push with our envelope and whatever becomes of its notification, is kept from listeners that were added after
 * ours: they would show it a second time, or lead a click astray.
 */
export function install(worker: ServiceWorkerGlobalScope): Bellwire {
  let handler: RawHandler | undefined;
  /** Receipt tokens of notifications that a click has closed, of which Firefox tells as of any other. */
  const clicked = new Set<string | undefined>();
  const fallback = { title: worker.location.hostname, body: "There is something new.", url: "/" };
  const bellwire: Bellwire = { onPush: (given) => void (handler = given), fallback };
  const on = (type: string, listener: (event: never) => void) => worker.addEventListener(type, listener as EventListener);

  on("push", (event: DeclarativePush) => {
    const octets = event.data?.arrayBuffer();
    const push = readPush(octets, event.notification, event.appBadge);
    const show = () => notify(worker, push, bellwire, handler);
    const extend = event.waitUntil.bind(event);
    let taken = false;
    let work: Promise<void>;
    if (push.stamp || (push.raw && handler)) {
      event.stopImmediatePropagation();
      work = show();
    } else {
      // The site's own. Browsers punish a push that shows nothing, so it is shown here if no listener of the site's, all
      // of which have heard of it after this turn, does anything about it.
      event.waitUntil = (others) => ((taken = true), extend(others));
      work = clock.wait(0).then(() => (taken ? undefined : show()));
    }
    extend(work.finally(() => catchUp(worker)));
  });

  on("notificationclick", (event: NotificationEvent) => {
    const ours: Ours | undefined = event.notification.data?.bellwire;
    if (!ours) return; // the site's own
    event.stopImmediatePropagation();
    clicked.add(ours.receipt);
    event.notification.close();
    const { action } = event;
    const url = (action && ours.actions?.[action]) || ours.url;
    event.waitUntil(Promise.allSettled([go(worker, url), told(worker, bellwire, ours, "clicked", action)]));
  });

  on("notificationclose", (event: NotificationEvent) => {
    const ours: Ours | undefined = event.notification.data?.bellwire;
    if (!ours) return;
    event.stopImmediatePropagation();
    if (!ours.receipt || clicked.delete(ours.receipt)) return;
    const { receipt } = ours;
    const byPerson = async () => !(await wasReplaced(worker, event.notification.tag)) && !(await wasSeen(receipt));
    event.waitUntil(byPerson().then((was) => (was ? told(worker, bellwire, ours, "closed") : undefined)));
  });

  on("pushsubscriptionchange", (event: ExtendableEvent) => event.waitUntil(catchUp(worker, true)));
  on("message", (event: ExtendableMessageEvent) => event.data === FLUSH && event.waitUntil(catchUp(worker)));
  on("sync", (event: SyncEvent) => {
    // A rejection makes the browser try again.
    if (event.tag === SYNC_TAG) event.waitUntil(catchUp(worker).then((done) => done || Promise.reject(new Error("later"))));
  });
  return bellwire;
}

async function told(
  worker: ServiceWorkerGlobalScope,
  bellwire: Bellwire,
  ours: Ours,
  kind: "clicked" | "closed",
  action?: string,
): Promise<void> {
  await report(undefined, receiptOf(await receiptsUrl(worker, bellwire), ours.receipt, kind, action));
  await catchUp(worker);
}

/** Does what is left over: receipts, and a subscription that server and browser do not agree on. Never rejects. */
async function catchUp(worker: ServiceWorkerGlobalScope, changed = false): Promise<boolean> {
  const sent = await flush();
  const agreed = await renew(worker, changed).catch(() => false);
  if (sent && agreed) return true;
  await (worker.registration as WithSync).sync?.register(SYNC_TAG).catch(() => {});
  return false;
}

/** Resolves with whether nothing is left to do that another time could. */
async function renew(worker: ServiceWorkerGlobalScope, changed: boolean): Promise<boolean> {
  const { registration } = worker;
  const { scope } = registration;
  const idle = async (saved?: Saved) => !saved || (!changed && (await isDone(saved, registration)));
  if (await idle(await load(scope))) return true;
  return alone(scope, async () => {
    const saved = await load(scope);
    if (!saved || (await idle(saved))) return true;
    const failure = await reconcile(saved, registration);
    const channel = newsChannel();
    channel.postMessage({ scope, type: "change" } satisfies News);
    channel.close();
    return !failure?.retrying;
  });
}

/** A change that could not be made good at once shows in the endpoint, which is not the registered one any more. */
async function isDone(saved: Saved, { pushManager }: ServiceWorkerRegistration): Promise<boolean> {
  if (saved.ended.length) return false;
  if (!saved.wanted) return !saved.renew;
  return settled(saved) && (await pushManager.getSubscription())?.endpoint === saved.endpoint;
}
