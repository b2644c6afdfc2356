import type { Bellwire } from "./api.js";

export type * from "./api.js";

declare global {
  /** Bellwire in the service worker, below the line that imports its script. */
  var bellwire: Bellwire;
  /** For workers that declare `self` themselves. */
  interface ServiceWorkerGlobalScope {
    readonly bellwire: Bellwire;
  }
}
