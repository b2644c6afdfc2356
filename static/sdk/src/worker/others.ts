import { clock } from "../shared/clock";

/** Time for a push listener of the site that shows a notification after an `await`, without `waitUntil`. */
const SHOWS_LATER_MS = 5_000;
/** Time without a known push listener. Listeners that were added before Bellwire's are unknown until they act. */
const UNKNOWN_MS = 1_000;

type Extend = (promise: Promise<unknown>) => void;

/** Observes how the site's own listeners treat a push. */
export interface Others {
  /** Whether another listener extended the event's life or showed a notification since the event began. */
  acted(event: ExtendableEvent): boolean;
  /** Resolves with whether another listener treats the event, at the latest after a few seconds. */
  treat(event: ExtendableEvent): Promise<boolean>;
  /** Runs Bellwire's work on the event. It does not count as work of another listener. */
  extend(event: ExtendableEvent, work: Promise<unknown>): void;
}

let isOurs = false;

/** Runs Bellwire's own call of `showNotification`. It does not count as a call of another listener. */
export function asOurs<T>(call: () => T): T {
  isOurs = true;
  try {
    return call();
  } finally {
    isOurs = false;
  }
}

/**
 * Wraps `waitUntil`, `showNotification` and `addEventListener`, whose behaviour does not change. Listeners that were added
 * before this call are detected only by their calls.
 */
export function observeOthers(worker: ServiceWorkerGlobalScope): Others {
  const { registration } = worker;
  const extended = new WeakSet<object>();
  const waiting: (() => void)[] = [];
  let shownAt = -Infinity;
  let listens = false;

  const prototype = (worker as { ExtendableEvent?: typeof ExtendableEvent }).ExtendableEvent?.prototype;
  const original: Extend | undefined = prototype?.waitUntil;
  if (prototype && original) {
    prototype.waitUntil = function (promise) {
      extended.add(this);
      return original.call(this, promise);
    };
  }

  const showNotification = registration.showNotification.bind(registration);
  registration.showNotification = (...notification) => {
    if (!isOurs) {
      shownAt = performance.now();
      waiting.shift()?.(); // each notification answers one push
    }
    return showNotification(...notification);
  };

  const add = worker.addEventListener.bind(worker) as (...listener: unknown[]) => void;
  worker.addEventListener = (...listener: unknown[]) => {
    listens ||= listener[0] === "push";
    add(...listener);
  };

  const limit = () => (listens || worker.onpush ? SHOWS_LATER_MS : UNKNOWN_MS);
  const acted = (event: ExtendableEvent) => extended.has(event) || shownAt >= event.timeStamp;
  return {
    acted,
    async treat(event) {
      if (acted(event)) return true;
      const shown = new Promise<boolean>((resolve) => waiting.push(() => resolve(true)));
      const answer = waiting.at(-1)!;
      // Listeners that call `waitUntil` in time have done so after this turn.
      await clock.wait(0);
      const treated = acted(event) || (await Promise.race([shown, clock.wait(limit()).then(() => acted(event))]));
      if (waiting.includes(answer)) waiting.splice(waiting.indexOf(answer), 1);
      return treated;
    },
    extend: (event, work) => (original ? original.call(event, work) : event.waitUntil(work)),
  };
}
