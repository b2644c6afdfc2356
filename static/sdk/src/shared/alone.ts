import { StorageError } from "./database";

let queue: Promise<unknown> = Promise.resolve();

/**
 * Runs `work` while no other tab and no worker of this site runs it. Without Web Locks, this holds within one tab only. Two
 * tabs may then register the same endpoint twice, which the server treats as a refresh.
 */
export async function alone<T>(scope: string, work: () => Promise<T>): Promise<T> {
  let begun = false;
  const locked = () => ((begun = true), work());
  try {
    if (navigator.locks) return (await navigator.locks.request(`bellwire ${scope}`, locked)) as T;
  } catch (error) {
    // Browsers that block the site's storage grant no lock.
    throw begun ? error : new StorageError(String(error));
  }
  const done = queue.then(work);
  queue = done.catch(() => {});
  return done;
}
