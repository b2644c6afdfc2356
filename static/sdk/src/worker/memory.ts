import { clock } from "../shared/clock";
import { within } from "../shared/database";

/** Event of a notification, or what a withdrawal found. */
export type Kind = "displayed" | "clicked" | "closed" | "removed" | "prevented" | "missed";

/** Report that the server has not accepted yet. */
export interface Receipt {
  url: string;
  at: number;
  report: { receipt: string; kind: Kind; action?: string };
}

export const SEEN_MAX = 500;
export const WAITING_MAX = 1_000;
export const KEPT_MS = 7 * 86_400_000;

/** Replaces a failing database. Repeats are then detected only while this worker runs. */
const seenHere = new Set<string>();

export async function wasSeen(id: string): Promise<boolean> {
  if (seenHere.has(id)) return true;
  const found = await within(["seen"], "readonly", (store) => store("seen").get(id)).catch(() => undefined);
  return found !== undefined;
}

/** Replacement of a delivery's content, which must no longer be shown. */
type Change = "withdrawn" | "updated";

/** Whether a delivery was withdrawn or updated. */
export const wasChanged = (id: string, change: Change) => wasSeen(`${change}:${id}`);

/** Stores that a delivery is withdrawn or updated. */
export async function rememberChange(id: string, change: Change): Promise<void> {
  await remember([id, `${change}:${id}`], undefined);
}

/** Stores deliveries and a receipt in one transaction. */
export async function remember(ids: (string | undefined)[], receipt: Receipt | undefined): Promise<void> {
  if (seenHere.size >= SEEN_MAX) seenHere.clear();
  const known = ids.filter((id) => id !== undefined);
  known.forEach((id) => seenHere.add(id));
  const at = clock.now();
  await within(["seen", "receipts"], "readwrite", (store) => {
    known.forEach((id) => store("seen").put({ id, at }));
    if (receipt) store("receipts").add(receipt);
    prune(store("seen").index("at"), SEEN_MAX, at);
    prune(store("receipts"), WAITING_MAX, at);
  });
}

/** Deletes the oldest entries beyond `max`, and entries older than a week. */
function prune(store: IDBObjectStore | IDBIndex, max: number, now: number): void {
  store.count().onsuccess = ({ target }) => {
    let excess = (target as IDBRequest<number>).result - max;
    store.openCursor().onsuccess = ({ target }) => {
      const cursor = (target as IDBRequest<IDBCursorWithValue | null>).result;
      if (!cursor || (excess-- <= 0 && now - cursor.value.at < KEPT_MS)) return;
      cursor.delete();
      cursor.continue();
    };
  };
}

/** Returns the oldest waiting receipts, at most `max`. */
export async function waiting(max: number): Promise<[IDBValidKey, Receipt][]> {
  const found: [IDBValidKey, Receipt][] = [];
  await within(["receipts"], "readonly", (store) => {
    store("receipts").openCursor().onsuccess = ({ target }) => {
      const cursor = (target as IDBRequest<IDBCursorWithValue | null>).result;
      if (!cursor || found.length >= max) return;
      found.push([cursor.primaryKey, cursor.value]);
      cursor.continue();
    };
  });
  return found;
}

export const forget = (keys: IDBValidKey[]) =>
  within(["receipts"], "readwrite", (store) => keys.forEach((key) => store("receipts").delete(key)));

/** For tests: clears the memory, like a new worker. */
export const forgetMemory = () => seenHere.clear();
