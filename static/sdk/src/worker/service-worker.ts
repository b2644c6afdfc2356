import type { Bellwire } from "./api";
import { install } from "./install";

declare const self: ServiceWorkerGlobalScope & { bellwire?: Bellwire };

// A second import has no effect.
self.bellwire ??= install(self);
