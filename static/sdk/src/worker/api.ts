import type { Click } from "../types.js";

export type { Click };

/** Raw payload for the site's own handler. */
export interface RawPush {
  /** Id of the delivery. Repeats do not reach the handler. Absent for payloads without Bellwire's envelope. */
  id?: string;
  /** Number of earlier attempts. */
  retried: number;
  /** Text, or bytes that are not UTF-8. */
  payload: string | Uint8Array;
}

/** Notification to show: `NotificationOptions`, a title, and the URL that a click opens. */
export interface Shown extends NotificationOptions {
  title: string;
  url?: string;
}

/** Returns `true` if it showed a notification itself. After `undefined`, an error or ten seconds, the fallback is shown. */
export type RawHandler = (push: RawPush) => Shown | true | undefined | void | Promise<Shown | true | undefined | void>;

/**
 * Handles a click instead of Bellwire, which then only closes the notification and reports the click. Bellwire opens the URL
 * that the handler returns. It opens the notification's own URL if the handler returns `false` or fails.
 */
export type ClickHandler = (click: Click) => unknown;

/** Interface of `self.bellwire` in a service worker. */
export interface Bellwire {
  /** Sets the handler of raw payloads. It runs before other `push` listeners. Call it during the first run of the script. */
  onPush(handler: RawHandler): void;
  /** Sets the handler of clicks on Bellwire's notifications. Call it during the first run of the script. */
  onClick(handler: ClickHandler): void;
  /**
   * Whether a click navigates an open tab of the site if no tab shows the URL. Default `false`: a new tab opens, and input in
   * other tabs is kept.
   */
  reuseTab?: boolean;
  /** Notification for a push without content. Browsers penalise a push that shows no notification. */
  fallback: Shown;
  /**
   * Address of the app for receipts, such as `https://push.example.com/v1/apps/shop`. Needed only for subscriptions that
   * your own code registered. The SDK sets the address for its own.
   */
  appUrl?: string;
}
