// Types of page and worker.

/** Values stored with a subscription, for segments. Each list replaces the stored one. */
export interface Details {
  topics?: string[];
  tags?: string[];
  attributes?: Record<string, string | number | boolean>;
  /**
   * Place of consent, at most 200 characters, such as the text of the question. Stored once per subscribing, with the server's
   * time. For `subscribe()` and `prompt()`.
   */
  consentSource?: string;
}

/** Mute of a subscription, which only transactional messages reach meanwhile. */
export interface Muted {
  /** Time of the end, in RFC 3339. Null: the mute has no end. */
  until: string | null;
}

/** Details of a conversion. A value needs its currency, and a currency its value. */
export type Conversion = {
  /** Id of your own, such as the number of an order. Calls with the same id count once. By default each call counts. */
  id?: string;
  properties?: Record<string, unknown>;
} & (
  | {
      /** 0 to 1,000,000,000, with at most 4 decimals. */
      value: number;
      /** Three capital letters of ISO 4217, such as `EUR`. */
      currency: string;
    }
  | { value?: undefined; currency?: undefined }
);

/** Value of `Details` that the server left out, because pages of this app may not set it or it is malformed. Other values are stored. */
export interface Refused {
  /** JSON pointer, such as `/topics/1`, `/tags` or `/attributes`. */
  pointer: string;
  code: /** Malformed, such as an unknown time zone. */
    | "unreadable"
    /** The topic does not exist, and pages of this app may not create it. */
    | "topic_unknown"
    /** Only servers may add subscriptions to the topic. */
    | "topic_closed"
    /** Pages reached the limit of topics that they may create. */
    | "topics_of_browsers"
    /** Only servers may set tags. */
    | "tags_of_browsers"
    /** Only servers may set attributes. */
    | "attributes_of_browsers";
  /** Remedy for developers, in English. */
  detail: string;
}

/** Reason why no action of the page can subscribe this browser. */
export type Obstacle =
  /** Invalid options of `init`. The console names the option and the remedy. */
  | "invalid-options"
  /** No page: the code runs on a server that renders the page. */
  | "no-window"
  /** The page is neither on HTTPS nor on localhost. */
  | "insecure"
  /** The browser has no web push. */
  | "unsupported"
  /** No storage for this site, in a private window or because it is blocked. */
  | "private-mode"
  /** On iPhones and iPads only sites on the Home Screen may ask. */
  | "not-installed";

export type Reason =
  | Obstacle
  | "denied"
  /** The person closed the browser's question. It may be shown again later. */
  | "dismissed"
  /** Called outside a click or key press, where browsers show no question. */
  | "no-gesture"
  /** No subscription. The change, event or conversion was not stored. `subscribe()` takes topics, tags and attributes. */
  | "not-subscribed"
  /** The server is unreachable. The change is stored and retried. */
  | "offline"
  /** The server refused the request. See `code` and `message`. */
  | "refused"
  /** The service worker cannot be registered. */
  | "worker"
  /** Unexpected error. The console has the details. */
  | "unexpected"
  /** The browser's push service fails or does not respond. Bellwire is not involved. */
  | "push-service";

export interface Failure {
  reason: Reason;
  /** Text for developers, in English. Choose the text for people by `reason`. */
  message: string;
  /** The server's problem code. */
  code?: string;
  /** Whether the SDK retries by itself. */
  retrying: boolean;
}

/** A click on a notification. */
export interface Click {
  /** Absolute URL of the notification, or of the button that was clicked, with the link tags of the app. */
  url: string;
  /** Name of the button. Empty for the notification itself. */
  action: string;
  /** The `data` of the content. */
  data: Record<string, unknown>;
}

/** A push that arrived while the page is open. */
export interface Message {
  /** Id of the delivery, equal on each repeat. Absent for payloads without Bellwire's envelope. */
  id?: string;
  title?: string;
  body?: string;
  url?: string;
  /** The `data` of the content. */
  data?: Record<string, unknown>;
  /** Raw payload: text, or bytes that are not UTF-8. */
  payload?: string | Uint8Array;
}
