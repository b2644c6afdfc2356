import type { Click, Message } from "../types";

/** Message between the worker and the tabs of a site. */
export type News = { scope: string /** Address of the app that sent the message. */; app?: string } & (
  | { type: "change" }
  | { type: "message"; message: Message }
);

/** Opens the site's channel. */
export const newsChannel = () => new BroadcastChannel("bellwire");

/** Type of the messages with which a worker asks pages whether they handle a click, and then passes the click on. */
export const CLICK = "bellwire:click";

/** Without `click`, a question. The response on the message's port is `true` or `false`. */
export interface ClickQuestion {
  type: typeof CLICK;
  scope: string;
  /** Address of the app that sent the message, if it is known. */
  app?: string;
  click?: Click;
}

/** Message by which a page makes the worker send waiting receipts. A worker that imports Bellwire's script responds `true` on its port. */
export const FLUSH = "bellwire:flush";
