import { clock } from "../shared/clock";
import { base, load } from "../shared/saved";
import { call, transient } from "../shared/server";
import type { Bellwire } from "./api";
import { forget, remember, type Receipt, waiting } from "./memory";

const BATCH = 100;

let sending: Promise<boolean> = Promise.resolve(true);

/** Where receipts go: the app that this scope is registered with, else the one that the worker or its URL names. */
export async function receiptsUrl(worker: ServiceWorkerGlobalScope, { appUrl }: Bellwire): Promise<string | undefined> {
  const query = new URL(worker.location.href).searchParams;
  const saved = await load(worker.registration.scope).catch(() => undefined);
  const app = query.get("app");
  const named = app && base({ app, server: query.get("server") ?? worker.location.origin });
  const url = saved ? base(saved) : (appUrl?.replace(/\/+$/, "") ?? named);
  if (!url) console.warn("Bellwire: nobody hears of this notification. Say in the worker which app it is of: bellwire.appUrl = …");
  return url ? `${url}/receipts` : undefined;
}

export function receiptOf(
  url: string | undefined,
  token: string | undefined,
  kind: Receipt["report"]["kind"],
  action?: string,
): Receipt | undefined {
  if (!url || !token) return;
  return { url, at: clock.now(), report: { receipt: token, kind, ...(action ? { action } : {}) } };
}

/** Keeps a receipt and a delivery's id, then sends whatever waits. Without a database it is sent once, for what it is worth. */
export async function report(id: string | undefined, receipt: Receipt | undefined): Promise<boolean> {
  try {
    await remember(id, receipt);
  } catch {
    return receipt ? post(receipt.url, [receipt]) : true;
  }
  return flush();
}

/** Sends what waits, the oldest first. Resolves with whether nothing is left. Two at a time would send the same twice. */
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
    if (!(await post(url, alike.map(([, receipt]) => receipt)))) return false;
    await forget(alike.map(([key]) => key));
  }
}

/** One is sent as itself, several as a list. What the server refuses for good is not sent again. */
async function post(url: string, receipts: Receipt[]): Promise<boolean> {
  const reports = receipts.map(({ report }) => report);
  const { status } = await call("POST", url, JSON.stringify(reports.length > 1 ? reports : reports[0]), undefined, 2);
  return !transient(status);
}
