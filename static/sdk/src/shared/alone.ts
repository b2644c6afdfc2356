let queue: Promise<unknown> = Promise.resolve();

/**
 * Runs `work` while no other tab and no worker of this site does the same. Without Web Locks only within this tab: two
 * tabs may then register the same endpoint twice, which the server takes as a refresh.
 */
export function alone<T>(scope: string, work: () => Promise<T>): Promise<T> {
  if (navigator.locks) return navigator.locks.request(`bellwire ${scope}`, work) as Promise<T>;
  const done = queue.then(work);
  queue = done.catch(() => {});
  return done;
}
