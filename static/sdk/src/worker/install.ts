import { alone } from "../shared/alone";
import { FLUSH, type News, newsChannel } from "../shared/news";
import { reconcile } from "../shared/reconcile";
import { loadAll, type Saved, settled } from "../shared/saved";
import type { Bellwire, ClickHandler, RawHandler } from "./api";
import { handleClick, resolve } from "./click";
import { wasChanged, wasSeen } from "./memory";
import { notify, wasReplaced } from "./notify";
import { flush, appUrl, receiptOf, report } from "./receipts";
import { observeOthers } from "./others";
import { replace } from "./replace";
import { type Ours, type Proposed, readPush } from "./wire";

const SYNC_TAG = "bellwire";

type SyncEvent = ExtendableEvent & { tag: string };
type DeclarativePush = PushEvent & { notification?: Proposed | null; appBadge?: unknown };
type WithSync = ServiceWorkerRegistration & { sync?: { register(tag: string): Promise<void> } };

/**
 * Adds Bellwire's listeners to a service worker. It claims no pages, skips no waiting and handles no fetches. Listeners
 * that the site adds later get no pushes with Bellwire's envelope and no clicks on their notifications. They would show a second
 * notification or open another page.
 */
export function install(worker: ServiceWorkerGlobalScope): Bellwire {
  let handler: RawHandler | undefined;
  let clickHandler: ClickHandler | undefined;
  /** Receipt tokens of notifications that a click closed. Firefox reports them like other closed notifications. */
  const clicked = new Set<string | undefined>();
  const fallback = { title: worker.location.hostname, body: "There is something new.", url: "/" };
  const bellwire: Bellwire = {
    onPush: (given) => void (handler = given),
    onClick: (given) => void (clickHandler = given),
    fallback,
  };
  let warned = false;
  const warnOnce = () => {
    if (!warned)
      console.warn(
        "Bellwire: a push listener of this worker runs before Bellwire's line, so pushes may be shown twice. Move the line to the top.",
      );
    warned = true;
  };
  const on = (type: string, listener: (event: never) => void) =>
    worker.addEventListener(type, listener as EventListener);

  on("push", (event: DeclarativePush) => {
    const octets = event.data?.arrayBuffer();
    const push = readPush(octets, event.notification, event.appBadge);
    const { stamp } = push;
    const show = () =>
      stamp?.withdraws || stamp?.updates
        ? replace(worker, push, stamp, bellwire)
        : notify(worker, push, bellwire, handler);
    if (others.acted(event)) warnOnce();
    let work: Promise<void>;
    if (stamp || (push.raw && handler)) {
      event.stopImmediatePropagation();
      work = show();
    } else {
      // A push of the site itself. Browsers penalise a push without notification, so it is shown here if no listener of the site does.
      work = others.treat(event).then((treated) => (treated ? undefined : show()));
    }
    others.extend(
      event,
      work.finally(() => catchUp(worker)),
    );
  });

  on("notificationclick", (event: NotificationEvent) => {
    const ours: Ours | undefined = event.notification.data?.bellwire;
    if (!ours) return; // a notification of the site itself
    event.stopImmediatePropagation();
    clicked.add(ours.receipt);
    event.notification.close();
    const { action } = event;
    const url = resolve((action && ours.actions?.[action]) || ours.url, worker.registration.scope);
    const { bellwire: _, ...data } = event.notification.data;
    const { app, id } = ours;
    const opened = handleClick({ worker, bellwire, handler: clickHandler, app, id }, { url, action, data });
    event.waitUntil(Promise.allSettled([opened, told(worker, bellwire, ours, "clicked", action)]));
  });

  on("notificationclose", (event: NotificationEvent) => {
    const ours: Ours | undefined = event.notification.data?.bellwire;
    if (!ours) return;
    event.stopImmediatePropagation();
    if (!ours.receipt || clicked.delete(ours.receipt) || !isPersonKnown(event.notification)) return;
    const { receipt } = ours;
    const { id } = ours;
    const byPerson = async () =>
      !(await wasReplaced(worker, event.notification.tag)) &&
      !(await wasSeen(receipt)) &&
      !(id && (await wasChanged(id, "withdrawn")));
    event.waitUntil(byPerson().then((was) => (was ? told(worker, bellwire, ours, "closed") : undefined)));
  });

  on("pushsubscriptionchange", (event: ExtendableEvent) => event.waitUntil(catchUp(worker, true)));
  on("message", (event: ExtendableMessageEvent) => {
    if (event.data !== FLUSH) return;
    event.ports?.[0]?.postMessage(true);
    event.waitUntil(catchUp(worker));
  });
  on("sync", (event: SyncEvent) => {
    // A rejection makes the browser retry.
    if (event.tag === SYNC_TAG)
      event.waitUntil(catchUp(worker).then((done) => done || Promise.reject(new Error("later"))));
  });
  const others = observeOthers(worker); // after Bellwire's own listeners, which do not count as others
  return bellwire;
}

/**
 * Whether the event means that the person closed the notification. Firefox also fires it, without a cause, for timeouts and
 * for notifications that the system removes. There, only a notification that requires interaction has no timeout.
 */
const isPersonKnown = ({ requireInteraction }: Notification): boolean =>
  requireInteraction === true || !/\bGecko\//.test(navigator.userAgent);

async function told(
  worker: ServiceWorkerGlobalScope,
  bellwire: Bellwire,
  ours: Ours,
  kind: "clicked" | "closed",
  action?: string,
): Promise<void> {
  await report(undefined, receiptOf(ours.app ?? (await appUrl(worker, bellwire)), ours.receipt, kind, { action }));
  await catchUp(worker);
}

/** Sends waiting receipts, and updates a subscription on which server and browser differ. Never rejects. */
async function catchUp(worker: ServiceWorkerGlobalScope, changed = false): Promise<boolean> {
  const sent = await flush();
  const agreed = await renew(worker, changed).catch(() => false);
  if (sent && agreed) return true;
  await (worker.registration as WithSync).sync?.register(SYNC_TAG).catch(() => {});
  return false;
}

/** Resolves with whether no retryable work is left. */
async function renew(worker: ServiceWorkerGlobalScope, changed: boolean): Promise<boolean> {
  const { registration } = worker;
  const { scope } = registration;
  const idle = async (saved: Saved) => !(changed && saved.wanted) && (await isDone(saved, registration));
  const busy = async () => {
    const records = await loadAll(scope);
    const idles = await Promise.all(records.map(idle));
    return records.filter((_, n) => !idles[n]);
  };
  if (!(await busy()).length) return true;
  return alone(scope, async () => {
    let done = true;
    for (const saved of await busy()) {
      const failure = await reconcile(saved, registration);
      done &&= !failure?.retrying;
    }
    const channel = newsChannel();
    channel.postMessage({ scope, type: "change" } satisfies News);
    channel.close();
    return done;
  });
}

/** Whether the endpoint is no longer the registered one, because a change could not be reported at once. */
async function isDone(saved: Saved, { pushManager }: ServiceWorkerRegistration): Promise<boolean> {
  if (saved.ended.length) return false;
  if (!saved.wanted) return !saved.renew;
  return settled(saved) && (await pushManager.getSubscription())?.endpoint === saved.endpoint;
}
