import { clock } from "./clock";

/**
 * IndexedDB, shared by page and worker.
 *
 *   saved     by scope       what this browser has agreed with the server
 *   seen      by id, at      deliveries that were shown, and receipt tokens of notifications that the page took away
 *   receipts  by number      reports that the server has yet to take
 */
export type Store = "saved" | "seen" | "receipts";

let opening: Promise<IDBDatabase> | undefined;

function open(): Promise<IDBDatabase> {
  opening ??= new Promise<IDBDatabase>((resolve, reject) => {
    const request = indexedDB.open("bellwire", 1);
    request.onupgradeneeded = () => {
      const database = request.result;
      database.createObjectStore("saved", { keyPath: "scope" });
      database.createObjectStore("seen", { keyPath: "id" }).createIndex("at", "at");
      database.createObjectStore("receipts", { autoIncrement: true });
    };
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      const database = request.result;
      // A newer version of this code wants to upgrade, or the browser has cut the connection: open anew when needed.
      database.onversionchange = () => (database.close(), (opening = undefined));
      database.onclose = () => (opening = undefined);
      resolve(database);
    };
  }).catch((error) => {
    opening = undefined;
    throw error;
  });
  return opening;
}

/** Runs one transaction. Resolves, once it is on disk, with the result of the request that `work` returns. */
export async function within<T = undefined>(
  stores: Store[],
  mode: IDBTransactionMode,
  work: (store: (name: Store) => IDBObjectStore) => IDBRequest<T> | void,
): Promise<T> {
  const begin = async () => (await open()).transaction(stores, mode);
  // Safari cuts connections of sleeping pages without telling.
  const transaction = await begin().catch(() => ((opening = undefined), begin()));
  return new Promise((resolve, reject) => {
    const request = work((name) => transaction.objectStore(name));
    transaction.oncomplete = () => resolve(request?.result as T);
    transaction.onabort = () => reject(transaction.error);
  });
}

/** Notes ids in `seen`; those that there are not are left out. The worker forgets the oldest in time. */
export const noteSeen = (ids: (string | undefined)[]) =>
  within(["seen"], "readwrite", (store) => ids.forEach((id) => id && store("seen").put({ id, at: clock.now() })));

/** For tests: the next transaction opens the database anew. */
export function forgetConnection(): void {
  opening = undefined;
}
