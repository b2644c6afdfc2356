import type { Failure, Options } from "../api";

const ACTIVATION_MS = 20_000;

export interface WorkerPlace {
  scope: Promise<string>;
  /** The registration, made if `make`; without it undefined where there is none. Rejects with a [`Failure`]. */
  registration(make: boolean): Promise<ServiceWorkerRegistration | undefined>;
}

const failure = (message: string): Failure => ({ reason: "worker", message, retrying: false });

/** Where the site's service worker is, and how it comes about. */
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
      const near = await navigator.serviceWorker.getRegistration(scope);
      const there = near?.scope === scope ? near : undefined;
      if (!make) return there;
      const script = there && (there.active ?? there.waiting ?? there.installing)?.scriptURL;
      // The same script under another query is the site's own registration: to replace it would make them alternate.
      if (there && script && new URL(script).pathname === pathname) return activated(there);
      if (script && !serviceWorker.url) {
        throw failure(`${script} has this scope already: import our script there and give serviceWorker.url, or give a scope.`);
      }
      const { type } = serviceWorker;
      return navigator.serviceWorker.register(trusted(url.href), { scope, type }).then(activated, (error) => {
        throw failure(String(error));
      });
    },
  };
}

type Policy = { createScriptURL(url: string): string };
let policy: Policy | undefined;

/** For sites that require Trusted Types: their policy has to let in the name `bellwire`, if it lets in names at all. */
function trusted(url: string): string {
  const rules = { createScriptURL: (url: string) => url };
  policy ??= (globalThis as { trustedTypes?: { createPolicy(name: string, rules: Policy): Policy } }).trustedTypes?.createPolicy("bellwire", rules);
  return policy?.createScriptURL(url) ?? url;
}

/** Waits until the registration can subscribe. `navigator.serviceWorker.ready` would only know the page's own scope. */
async function activated(registration: ServiceWorkerRegistration): Promise<ServiceWorkerRegistration> {
  const worker = registration.installing ?? registration.waiting;
  if (registration.active || !worker) return registration;
  await new Promise<void>((resolve, reject) => {
    const look = () => {
      if (worker.state === "activated") resolve();
      if (worker.state === "redundant") reject(failure("The service worker could not be installed."));
    };
    worker.addEventListener("statechange", look);
    setTimeout(() => reject(failure("The service worker takes too long to start.")), ACTIVATION_MS);
    look();
  });
  return registration;
}
