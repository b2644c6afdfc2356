import { clock } from "../shared/clock";
import { base, loadAll, ownerOf } from "../shared/saved";
import { call, transient } from "../shared/server";
import type { Bellwire } from "./api";
import { readTags } from "./links";
import { forget, type Kind, remember, type Receipt, waiting } from "./memory";

const BATCH = 100;
/** Maximum age that the server accepts. It counts no event as earlier than its message. */
const AGE_MAX_S = 2 ** 32 - 1;

let sending: Promise<boolean> = Promise.resolve(true);

/** Returns the address of the app that sends to this scope: the subscribed one, else the one that the worker or its URL names. */
export async function appUrl(worker: ServiceWorkerGlobalScope, bellwire: Bellwire): Promise<string | undefined> {
  const query = new URL(worker.location.href).searchParams;
  const saved = await loadAll(worker.registration.scope).then(ownerOf, () => undefined);
  const app = query.get("app");
  const named = app ? base({ app, server: query.get("server") ?? worker.location.origin }) : undefined;
  const url = saved ? base(saved) : (bellwire.appUrl?.replace(/\/+$/, "") ?? named);
  if (!url)
    console.warn(
      "Bellwire: receipts of this notification cannot be sent. Name in the worker which app it is of: bellwire.appUrl = …",
    );
  return url;
}

/** Returns a report for that app. Link tags of the response are stored under `id`. */
export function receiptOf(
  app: string | undefined,
  token: string | undefined,
  kind: Kind,
  { action, id }: { action?: string; id?: string } = {},
): Receipt | undefined {
  if (!app || !token) return;
  const report = { receipt: token, kind, ...(action ? { action } : {}) };
  return { url: `${app}/receipts`, at: clock.now(), report, id };
}

/** Stores a receipt and a delivery's id, then sends all waiting receipts. Without a database, one attempt is made. */
export async function report(id: string | undefined, receipt: Receipt | undefined): Promise<boolean> {
  try {
    await remember([id], receipt);
  } catch {
    return receipt ? post(receipt.url, [receipt]) : true;
  }
  return flush();
}

/** Sends waiting receipts, the oldest first. Resolves with whether none is left. Concurrent calls would send receipts twice. */
export function flush(): Promise<boolean> {
  sending = sending.then(sendAll).catch(() => false);
  return sending;
}

async function sendAll(): Promise<boolean> {
  for (;;) {
    const batch = await waiting(BATCH);
    if (!batch.length) return true;
    const { url } = batch[0]![1];
    const alike = batch.filter(([, receipt]) => receipt.url === url);
    if (
      !(await post(
        url,
        alike.map(([, receipt]) => receipt),
      ))
    )
      return false;
    await forget(alike.map(([key]) => key));
  }
}

/**
 * Sends one receipt as an object, several as a list. Finally refused receipts are not sent again. The server responds to one
 * receipt with the link tags of its message.
 */
async function post(url: string, receipts: Receipt[]): Promise<boolean> {
  const reports = receipts.map(({ at, report }) => {
    const age = Math.min(Math.floor((clock.now() - at) / 1000), AGE_MAX_S);
    return age > 0 ? { ...report, age } : report; // negative: the clock was set back meanwhile
  });
  const sent = JSON.stringify(reports.length > 1 ? reports : reports[0]);
  const { status, body } = await call("POST", url, sent, undefined, 2);
  const tags = readTags(body?.link_tags);
  if (tags) await remember([receipts[0]!.id], undefined, tags).catch(() => {}); // without a database, this worker keeps them
  return !transient(status);
}
