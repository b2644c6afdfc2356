import type { Bellwire } from "./api";
import { type Kind, rememberChange, wasChanged, wasSeen } from "./memory";
import { closeSoon, display, displayed, dress, inTurn, tagOf } from "./notify";
import { appUrl, receiptOf, report } from "./receipts";
import type { Push, Stamp } from "./wire";

/**
 * Removes or updates the notification of another delivery, and remembers that its old content must not be shown. Browsers demand a
 * notification for each push, so a silent one takes the place of a removed one for a moment. In Safari, which may not close
 * notifications, its text stays.
 */
export async function replace(worker: ServiceWorkerGlobalScope, push: Push, stamp: Stamp, bellwire: Bellwire) {
  const { updates } = stamp;
  const replaced = updates ?? stamp.withdraws!;
  await inTurn(replaced, async (seen) => {
    const isRepeat = await wasSeen(stamp.id);
    const isWithdrawn = await wasChanged(replaced, "withdrawn");
    // First: a worker that ends in between must not show the old content later.
    await rememberChange(replaced, updates ? "updated" : "withdrawn").catch(console.error);
    // A push that withdraws itself clears a tag.
    const cleared = replaced === stamp.id ? push.shown?.tag : undefined;
    const all = await displayed(worker);
    const there = all.find(({ data, tag }) => (cleared ? tag === cleared : data?.bellwire?.id === replaced));
    const app = await appUrl(worker, bellwire);
    const shows = updates && !isWithdrawn && (there || !seen);
    // The id stays that of the replaced delivery, so that a later change finds the notification.
    const dressed = { ...push, stamp: { ...stamp, id: replaced } };
    const shown = updates && !shows ? { title: bellwire.fallback.title } : (push.shown ?? bellwire.fallback);
    const [title, options] = dress(worker, shown, dressed, bellwire.fallback, app);
    const silent = options.silent || isRepeat;
    // A later notification with the same tag stays: only the replaced one gives its tag away.
    const tag = there?.tag || (shows ? options.tag : `${tagOf(replaced)}:${stamp.id}`);
    if (shows) {
      const renotify = there && !silent ? true : undefined;
      await display(worker, title, { ...options, tag, silent, renotify } as NotificationOptions);
    } else {
      await display(worker, title, { body: options.body, tag, silent: true, data: options.data });
      if (closes(navigator.userAgent)) closeSoon(worker, tag!, stamp.receipt);
    }
    const gone: Kind = seen || cleared || isWithdrawn ? "missed" : "prevented";
    const kind: Kind = shows ? "displayed" : !updates && there ? "removed" : gone;
    await report(stamp.id, isRepeat ? undefined : receiptOf(app, stamp.receipt, kind, { id: replaced }));
    return true;
  });
}

/** Whether the browser closes notifications reliably. All browsers on iOS are Safari. */
const closes = (userAgent: string) => !/AppleWebKit/.test(userAgent) || /Chrom(e|ium)\//.test(userAgent);
