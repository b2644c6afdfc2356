import type { Message } from "../types";

/** What worker and tabs of a site tell each other. */
export type News = { scope: string } & ({ type: "change" } | { type: "message"; message: Message });

/** Opens the site's channel. */
export const newsChannel = () => new BroadcastChannel("bellwire");

/** What a page posts to the worker: time to send what waits. */
export const FLUSH = "bellwire:flush";
