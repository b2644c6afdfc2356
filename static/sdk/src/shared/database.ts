import { clock } from "./clock";

/**
 * IndexedDB, shared by page and worker:
 *
 *   saved     by scope, app  state of a subscription
 *   seen      by id, at      shown deliveries, with their link tags; receipt tokens of removed notifications.
 *   receipts  by number      reports that the server has not accepted yet.
 */
export type Store = "saved" | "seen" | "receipts";

/** Error of a browser that cannot store data for this site. */
export class StorageError extends Error {}

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
      // A newer version of this code upgrades the database, or the browser cut the connection. The next use reopens it.
      database.onversionchange = () => (database.close(), (opening = undefined));
      database.onclose = () => (opening = undefined);
      resolve(database);
    };
  });
  return opening;
}

/** Runs one transaction. Resolves after its commit with the result of the request that `work` returns. */
export async function within<T = undefined>(
  stores: Store[],
  mode: IDBTransactionMode,
  work: (store: (name: Store) => IDBObjectStore) => IDBRequest<T> | void,
): Promise<T> {
  const begin = async () => (await open()).transaction(stores, mode);
  // Safari cuts connections of sleeping pages without an event.
  const transaction = await begin()
    .catch(() => ((opening = undefined), begin()))
    .catch((error) => {
      throw new StorageError(String(error));
    });
  return new Promise((resolve, reject) => {
    // An error thrown here is not an error of the storage, for example a value that cannot be copied.
    const request = work((name) => transaction.objectStore(name));
    transaction.oncomplete = () => resolve(request?.result as T);
    transaction.onabort = () => reject(new StorageError(String(transaction.error)));
  });
}

/** Stores ids in `seen`, skipping undefined. The worker deletes the oldest entries. */
export const noteSeen = (ids: (string | undefined)[]) =>
  within(["seen"], "readwrite", (store) => ids.forEach((id) => id && store("seen").put({ id, at: clock.now() })));

/** For tests: the next transaction reopens the database. */
export function forgetConnection(): void {
  opening = undefined;
}
