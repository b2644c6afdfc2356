import type { Click, Conversion, Details, Failure, Message, Muted, Obstacle, Refused } from "./types.js";

export type * from "./types.js";

/** Options for the call of `init`. */
export interface Options {
  /** Id or slug of the app. */
  app: string;
  /** Origin of the Bellwire server. Needed in a bundle. By default the server that served this module. */
  server?: string;
  /**
   * Id of the user who is logged in. `null`: no user, and the subscription of an earlier user ends as by `logout()`.
   * Left out: the user is unknown, and nothing changes.
   */
  userId?: string | number | null;
  /** Proof of `userId`, signed by your backend. */
  userToken?: string;
  /** A language tag; by default the browser's. */
  locale?: string;
  /** Your service worker. By default `/service-worker.js` with its own directory as scope. */
  serviceWorker?: {
    url?: string;
    scope?: string;
    /** `module` for a module script. By default a classic script. */
    type?: WorkerType;
    /** Registration of a worker that you register yourself. The worker has to import Bellwire's script. */
    registration?: ServiceWorkerRegistration | Promise<ServiceWorkerRegistration>;
  };
  /** Minimum interval between comparisons with the server, in seconds. By default 300. */
  checkEvery?: number;
}

export type Status =
  | { state: "subscribed"; id: string; topics: string[]; tags: string[]; userId: string | null; muted: Muted | null }
  /** The person agreed, but the browser or the server has not finished. The SDK retries, on the next visit at the latest. */
  | { state: "pending" }
  /** `granted`: `subscribe()` shows no question. */
  | { state: "unsubscribed"; permission: "default" | "granted" }
  /** The person or the browser refused. Only the person can change this, in the site's settings. */
  | { state: "denied" }
  | { state: Obstacle };

/** `refused`: values that the server left out of this call. The SDK does not send them again. */
export type Result = { ok: true; status: Status; refused?: Refused[] } | ({ ok: false; status: Status } & Failure);

export interface Events {
  change: Status;
  message: Message;
  /**
   * A notification was clicked. While a page listens, its tab is focused instead of opening a new one: the listener shows
   * `url`, for example with a client-side router.
   */
  click: Click;
  error: Failure;
}

/** Texts of the soft prompt. */
export interface Wording {
  title?: string;
  body?: string;
  accept?: string;
  later?: string;
}

export interface PromptOptions extends Wording, Details {
  /** Shown inside this element instead of as a dialog. */
  into?: Element;
  /** Days for which "Later" suppresses the prompt. By default 14. */
  againAfterDays?: number;
}

/** `not-needed`: no question was due, "Later" still applies, or the page removed the question. */
export type PromptResult = { answer: "not-needed" | "later" } | { answer: "accepted"; result: Result };

export interface Check {
  /**
   * - `support`: the browser has web push.
   * - `manifest`: the site's web app manifest, which iPhones and iPads need. In other browsers the check passes, with advice.
   * - `permission`: the person allowed notifications.
   * - `worker`: scope and script of the service worker.
   * - `line`: the worker imports Bellwire's script.
   * - `subscription`: the browser's push subscription.
   * - `server`: the server responds.
   * - `key`: the subscription has the server's VAPID key.
   * - `registration`: the server's record of the subscription.
   * - `clock`: the difference to the server's clock.
   * - `round-trip`: a test notification and its receipt.
   *
   * Checks that depend on a failed one are left out.
   */
  name:
    | "support"
    | "manifest"
    | "permission"
    | "worker"
    | "line"
    | "subscription"
    | "server"
    | "key"
    | "registration"
    | "clock"
    | "round-trip";
  ok: boolean;
  /** Finding for developers and support, in English, like `advice`. */
  found: string;
  /** Remedy, or a recommendation if the check passed. Null: none is needed. */
  advice: string | null;
}

export interface Diagnosis {
  /** Code by which support finds the report on the admin page for 7 days. Null: the server has no subscription of this browser. */
  code: string | null;
  checks: Check[];
}

export interface DiagnoseOptions {
  /** Element or its CSS selector. The report replaces the content of the element. */
  into?: Element | string | null;
}

/** Methods never reject: expected failures are values. */
export interface Client {
  /** Options of `init`, with the server's address. */
  readonly options: Options & { server: string };
  /** Resolves once the first comparison with the server is over, successful or not. */
  readonly ready: Promise<Status>;
  status(): Promise<Status>;
  /** Asks the browser for permission if need be, so call it from a click or key press, before any `await`. */
  subscribe(details?: Details): Promise<Result>;
  /** Holds in this browser at once, and at the server as soon as it can be reached. */
  unsubscribe(): Promise<Result>;
  /**
   * Logs a user in. A new subscription begins, so a former user of this browser cannot keep access to it. From an anonymous
   * subscription, topics and tags are kept. From another user's subscription nothing is kept, queued messages included, and
   * displayed notifications are removed.
   */
  login(userId: string | number, userToken: string): Promise<Result>;
  /**
   * Logs the user out. Displayed notifications are removed first. The subscription itself ends, not only its link to the
   * user: from this moment, even offline, no message to the user appears here. With `stayAnonymous`, a new subscription
   * without user, topics and tags replaces it.
   */
  logout(options?: { stayAnonymous?: boolean }): Promise<Result>;
  /** Replaces the topics of the subscription. Without a subscription, this and the next three fail with `not-subscribed`. */
  setTopics(topics: string[]): Promise<Result>;
  setTags(tags: string[]): Promise<Result>;
  setAttributes(attributes: NonNullable<Details["attributes"]>): Promise<Result>;
  /**
   * Mutes the subscription: only transactional messages reach this browser. `until`, a date or a text of RFC 3339, is at most
   * 366 days ahead; without it the mute has no end. `null` ends the mute.
   */
  setMuted(muted: null | { until?: string | Date | null }): Promise<Result>;
  /**
   * Reports an event of this browser, or of its user, to campaigns that events trigger. The app's permission `track_events` is
   * required. `name`: 1 to 64 letters, digits, `_`, `-` or `.`. Attempts are repeated for some seconds, but nothing is stored:
   * after `offline`, the page may call it again with the same `id`, which counts once.
   */
  track(name: string, properties?: Record<string, unknown>, options?: { id?: string }): Promise<Result>;
  /**
   * Reports what a person achieved on the page, such as a purchase, for the results of the campaign that led here. The app's
   * permission `report_conversions` is required. `name` and attempts are as of `track()`: after `offline`, the page may call it
   * again with the same `id`, which counts once.
   */
  converted(name: string, conversion?: Conversion): Promise<Result>;
  /**
   * Closes displayed notifications of the app in this browser, or only those with a tag: for pages that show the same. Resolves
   * with their number. Messages with `clear_on_click`, and `POST …/users/{user}/withdraw`, reach other browsers.
   */
  clear(filter?: { tag?: string }): Promise<number>;
  /** Asks in your words first, so that the browser's only question is not wasted on people who would refuse. */
  prompt(options?: PromptOptions): Promise<PromptResult>;
  /**
   * Checks all requirements of notifications, with a test notification to this browser and its receipt. At most three times
   * in ten minutes. Loads a separate module.
   */
  diagnose(options?: DiagnoseOptions): Promise<Diagnosis>;
  /** Id of the subscription and the token to change it, for your backend. Keep the token out of logs. */
  credentials(): Promise<{ id: string; token: string } | null>;
  /** Adds a listener. Returns a function that removes it. */
  on<E extends keyof Events>(event: E, listener: (detail: Events[E]) => void): () => void;
}
