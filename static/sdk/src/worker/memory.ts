import { clock } from "../shared/clock";
import { within } from "../shared/database";
import type { LinkTags } from "./links";

/** Event of a notification, or what a withdrawal found. */
export type Kind = "displayed" | "clicked" | "closed" | "removed" | "prevented" | "missed";

/** Report that the server has not accepted yet. */
export interface Receipt {
  url: string;
  at: number;
  report: { receipt: string; kind: Kind; action?: string };
  /** Id under which link tags of the response are stored. */
  id?: string;
}

export const SEEN_MAX = 500;
export const WAITING_MAX = 1_000;
export const KEPT_MS = 7 * 86_400_000;

/** Replaces a failing database. Repeats are then detected, and links tagged, only while this worker runs. */
const seenHere = new Map<string, LinkTags | undefined>();

/** Entry of the store `seen`. */
interface Seen {
  id: string;
  at: number;
  tags?: LinkTags;
}

const find = (id: string) =>
  within<Seen | undefined>(["seen"], "readonly", (store) => store("seen").get(id)).catch(() => undefined);

export const wasSeen = async (id: string): Promise<boolean> => seenHere.has(id) || !!(await find(id));

/** Returns the link tags of a delivery. */
export const tagsOf = async (id: string): Promise<LinkTags | undefined> => seenHere.get(id) ?? (await find(id))?.tags;

/** Replacement of a delivery's content, which must no longer be shown. */
type Change = "withdrawn" | "updated";

/** Whether a delivery was withdrawn or updated. */
export const wasChanged = (id: string, change: Change) => wasSeen(`${change}:${id}`);

/** Stores that a delivery is withdrawn or updated. */
export async function rememberChange(id: string, change: Change): Promise<void> {
  await remember([id, `${change}:${id}`], undefined);
}

/** Stores deliveries, with their link tags if there are new ones, and a receipt in one transaction. */
export async function remember(
  ids: (string | undefined)[],
  receipt: Receipt | undefined,
  tags?: LinkTags,
): Promise<void> {
  if (seenHere.size >= SEEN_MAX) seenHere.clear();
  const known = ids.filter((id) => id !== undefined);
  known.forEach((id) => seenHere.set(id, tags ?? seenHere.get(id)));
  const at = clock.now();
  await within(["seen", "receipts"], "readwrite", (store) => {
    const seen = store("seen");
    for (const id of known) {
      seen.get(id).onsuccess = ({ target }) => {
        const { result } = target as IDBRequest<Seen | undefined>;
        seen.put({ id, at, tags: tags ?? result?.tags });
        // After the last one, so that the count includes all.
        if (id === known.at(-1)) prune(seen.index("at"), SEEN_MAX, at);
      };
    }
    if (receipt) store("receipts").add(receipt);
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
