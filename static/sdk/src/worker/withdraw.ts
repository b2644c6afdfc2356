import type { Bellwire } from "./api";
import { type Kind, rememberWithdrawn, wasSeen } from "./memory";
import { closeSoon, display, inTurn, tagOf } from "./notify";
import { appUrl, receiptOf, report } from "./receipts";
import type { Push, Stamp } from "./wire";

/**
 * Removes the notification of another delivery, and remembers that it must not be shown. Browsers demand a notification for each
 * push, so a silent one takes its place for a moment. In Safari, which may not close notifications, its text stays.
 */
export async function withdraw(worker: ServiceWorkerGlobalScope, push: Push, stamp: Stamp, bellwire: Bellwire) {
  const withdrawn = stamp.withdraws!;
  await inTurn(withdrawn, async (seen) => {
    const isRepeat = await wasSeen(stamp.id);
    // First: a worker that ends in between must not show it later.
    await rememberWithdrawn(withdrawn).catch(console.error);
    // A push that withdraws itself clears a tag.
    const cleared = withdrawn === stamp.id ? push.shown?.tag : undefined;
    const all = await worker.registration.getNotifications();
    const there = all.find(({ data, tag }) => (cleared ? tag === cleared : data?.bellwire?.id === withdrawn));
    // A later notification with the same tag stays: only the withdrawn one gives its tag away.
    const tag = there?.tag || `${tagOf(withdrawn)}:withdrawn`;
    const { title = bellwire.fallback.title, body } = push.shown ?? {};
    const data = { bellwire: { url: push.shown?.url ?? "/", actions: {} } };
    await display(worker, title || worker.location.hostname, { body, tag, silent: true, data });
    if (closes(navigator.userAgent)) closeSoon(worker, tag);
    const kind: Kind = there ? "removed" : seen || cleared ? "missed" : "prevented";
    const app = await appUrl(worker, bellwire);
    await report(stamp.id, isRepeat ? undefined : receiptOf(app, stamp.receipt, kind));
    return true;
  });
}

/** Whether the browser closes notifications reliably. All browsers on iOS are Safari. */
const closes = (userAgent: string) => !/AppleWebKit/.test(userAgent) || /Chrom(e|ium)\//.test(userAgent);
