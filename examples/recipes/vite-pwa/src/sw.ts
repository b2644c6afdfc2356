import "@bellwire/web/service-worker"; // first: its listeners have to be added before others
import { precacheAndRoute } from "workbox-precaching";

declare const self: ServiceWorkerGlobalScope & { __WB_MANIFEST: (string | { url: string; revision: string | null })[] };

precacheAndRoute(self.__WB_MANIFEST);
self.bellwire.fallback = { title: "Shop", body: "There is something new.", url: "/" };
