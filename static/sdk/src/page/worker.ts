import type { Failure, Options, Reason } from "../api";
import { StorageError } from "../shared/database";

const ACTIVATION_MS = 20_000;

export interface WorkerPlace {
  scope: Promise<string>;
  /** Returns the registration. If absent, creates it if `make`, else returns undefined. Rejects with a [`Failure`]. */
  registration(make: boolean): Promise<ServiceWorkerRegistration | undefined>;
}

/** Failure that no retry can correct, by default of the site's worker or scope. */
export const failure = (message: string, reason: Reason = "worker"): Failure => ({ reason, message, retrying: false });

/** Finds or registers the site's service worker. */
export function workerPlace({ app, serviceWorker = {} }: Options, server: string): WorkerPlace {
  if (serviceWorker.registration) {
    const given = Promise.resolve(serviceWorker.registration).catch((error) => {
      throw failure(String(error));
    });
    return { scope: given.then(({ scope }) => scope), registration: () => given.then(activated) };
  }
  const url = new URL(serviceWorker.url ?? "/service-worker.js", location.href);
  const { pathname } = url;
  for (const [name, value] of Object.entries({ app, server })) {
    if (!url.searchParams.has(name)) url.searchParams.set(name, value);
  }
  const scope = new URL(serviceWorker.scope ?? "./", url).href;

  return {
    scope: Promise.resolve(scope),
    async registration(make) {
      const near = await findRegistration(scope);
      const there = near?.scope === scope ? near : undefined;
      if (!make) return there;
      const script = there && (there.active ?? there.waiting ?? there.installing)?.scriptURL;
      // The same script with another query is the site's own registration. Replacing it would make both alternate.
      if (script && new URL(script).pathname === pathname) return activated(there);
      if (script && !serviceWorker.url) {
        throw failure(`${script} has this scope: import our script there and give serviceWorker.url, or give a scope.`);
      }
      const { type } = serviceWorker;
      return navigator.serviceWorker.register(trusted(url.href), { scope, type }).then(activated, async (error) => {
        // Loaded on demand, because pages without errors do not need it.
        const why = ({ whyBroken }: typeof import("../diagnose.js")) => whyBroken(url.href, scope, server, error);
        throw failure(await import("../diagnose.js").then(why, () => `${url}: ${error}`));
      });
    },
  };
}

/** Returns the registration nearest to a scope. Fails in browsers that block the site's storage. */
async function findRegistration(scope: string): Promise<ServiceWorkerRegistration | undefined> {
  try {
    return await navigator.serviceWorker.getRegistration(scope);
  } catch (error) {
    const { name } = error as DOMException;
    throw name === "SecurityError" ? new StorageError(String(error)) : failure(String(error));
  }
}

type Policy = { createScriptURL(url: string): string };
let policy: Policy | undefined;

/** For sites that require Trusted Types. A policy that lists names has to allow the name `bellwire`. */
function trusted(url: string): string {
  const rules = { createScriptURL: (url: string) => url };
  policy ??= (
    globalThis as { trustedTypes?: { createPolicy(name: string, rules: Policy): Policy } }
  ).trustedTypes?.createPolicy("bellwire", rules);
  return policy?.createScriptURL(url) ?? url;
}

/** Waits until the registration can subscribe. `navigator.serviceWorker.ready` covers only the page's own scope. */
async function activated(registration: ServiceWorkerRegistration): Promise<ServiceWorkerRegistration> {
  const worker = registration.installing ?? registration.waiting;
  if (registration.active || !worker) return registration;
  await new Promise<void>((resolve, reject) => {
    const look = () => {
      if (worker.state === "activated") resolve();
      if (worker.state === "redundant") reject(failure("The worker could not be installed."));
    };
    worker.addEventListener("statechange", look);
    setTimeout(() => reject(failure("The worker starts too slowly.")), ACTIVATION_MS);
    look();
  });
  return registration;
}
