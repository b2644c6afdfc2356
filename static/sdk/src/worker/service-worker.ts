import type { Bellwire } from "./api";
import { install } from "./install";

declare const self: ServiceWorkerGlobalScope & { bellwire?: Bellwire };

// Imported twice, it still shows everything once.
self.bellwire ??= install(self);
