/**
 * Opens a URL, best in a tab that is there: one that shows it already, else one of this scope, else a new one. Whatever
 * is no web address leads to the scope.
 */
export async function go(worker: ServiceWorkerGlobalScope, url: string): Promise<void> {
  const { scope } = worker.registration;
  const target = resolve(url, scope);
  const windows = [...(await worker.clients.matchAll({ type: "window", includeUncontrolled: true }))];
  const showing = windows.find((client) => client.url === target);
  if (showing) return void (await showing.focus().catch(() => worker.clients.openWindow(target)));

  const own = windows.find((client) => client.url.startsWith(scope) && client.url !== target);
  if (own && new URL(target).origin === worker.location.origin) {
    try {
      // Navigation first: it needs no permission, while focusing uses up the one to open a window.
      const moved = await own.navigate(target);
      return void (await (moved ?? own).focus());
    } catch {
      // A tab that this worker does not control cannot be moved.
    }
  }
  await worker.clients.openWindow(target);
}

/** Against the scope; anything but http and https is refused. */
export function resolve(url: string, scope: string): string {
  try {
    const target = new URL(url, scope);
    return /^https?:$/.test(target.protocol) ? target.href : scope;
  } catch {
    return scope;
  }
}
