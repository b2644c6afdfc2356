/** A raw payload, as handed to the page's own code. */
export interface RawPush {
  /** The same on every repeat; repeats do not come here. Absent for payloads sent without our envelope. */
  id?: string;
  /** Attempts that went before. */
  retried: number;
  /** Text, or octets where it is not UTF-8. */
  payload: string | Uint8Array;
}

/** What to show for it: `NotificationOptions`, a title, and where a click leads. */
export interface Shown extends NotificationOptions {
  title: string;
  url?: string;
}

/** `true`: it has shown a notification itself. Nothing, an error or ten seconds of silence: the fallback is shown. */
export type RawHandler = (push: RawPush) => Shown | true | undefined | void | Promise<Shown | true | undefined | void>;

/** `self.bellwire`. */
export interface Bellwire {
  /** Sets what raw payloads are handed to, before any `push` listener of yours. Call it while the script is first run. */
  onPush(handler: RawHandler): void;
  /** What is shown where a push says nothing that can be shown. Browsers punish a push that shows nothing. */
  fallback: Shown;
  /**
   * The app's address, such as `https://push.example.com/v1/apps/shop`: where receipts go. Needed only for subscriptions
   * that your own code registered; the SDK tells for its own.
   */
  appUrl?: string;
}
