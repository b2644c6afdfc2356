// What page and worker both speak of.

/** What is kept with a subscription and can be sent by. Each list is the whole list. */
export interface Details {
  topics?: string[];
  tags?: string[];
  attributes?: Record<string, string | number | boolean>;
  /**
   * Where the person agreed, in at most 200 characters, such as the words that asked. Kept once, with the server's time, for as
   * long as they stay subscribed. For `subscribe()` and `prompt()`.
   */
  consentSource?: string;
}

/** Something of `Details` that the server left out, while the rest holds: pages may not say it in this app. */
export interface Refused {
  /** Where it stood: `/topics/1`, `/tags`, `/attributes`. */
  pointer: string;
  code:
    /** There is no such topic, and pages make none. */
    | "topic_unknown"
    /** Only your servers put subscriptions into that topic. */
    | "topic_closed"
    /** Pages have made as many topics as they may. */
    | "topics_of_browsers"
    /** Only your servers set tags. */
    | "tags_of_browsers"
    /** Only your servers set attributes. */
    | "attributes_of_browsers";
  /** For developers, in English: what would allow it. */
  detail: string;
}

/** Why this browser cannot be subscribed whatever is done on the page. */
export type Obstacle =
  /** There is no page: this runs on a server, which renders it. */
  | "no-window"
  /** The page is neither on HTTPS nor on localhost. */
  | "insecure"
  /** The browser has no web push. */
  | "unsupported"
  /** The browser keeps nothing for this site: a private window, or storage is blocked. */
  | "private-mode"
  /** On iPhones and iPads only sites on the Home Screen may ask. */
  | "not-installed";

export type Reason =
  | Obstacle
  | "denied"
  /** The browser's question was closed without an answer. It may be asked again, later. */
  | "dismissed"
  /** Called outside a click or key press, where browsers refuse to ask. */
  | "no-gesture"
  /** Nobody is subscribed here, so there is nothing to set topics, tags and attributes of. They were not kept. */
  | "not-subscribed"
  /** The server cannot be reached. What was wished is kept and tried again. */
  | "offline"
  /** The server said no; `code` and `message` tell why. */
  | "refused"
  /** The service worker cannot be registered. */
  | "worker"
  /** The browser's own push service does not answer, or fails. Bellwire has no part in that. */
  | "push-service";

export interface Failure {
  reason: Reason;
  /** For developers, in English. Word what people read by `reason`. */
  message: string;
  /** The server's problem code. */
  code?: string;
  /** Whether it is tried again without you. */
  retrying: boolean;
}

/** A push that arrived while the page is open. */
export interface Message {
  /** The same on every repeat. Absent for payloads sent without our envelope. */
  id?: string;
  title?: string;
  body?: string;
  url?: string;
  /** The `data` of the content. */
  data?: Record<string, unknown>;
  /** A raw payload. */
  payload?: string | Uint8Array;
}
