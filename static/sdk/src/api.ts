import type { Details, Failure, Message, Obstacle, Refused } from "./types.js";

export type * from "./types.js";

/** What a page says once, at `init`. */
export interface Options {
  /** Id or slug of the app. */
  app: string;
  /** Origin of the Bellwire server. By default the origin that this module was loaded from: give it when you bundle. */
  server?: string;
  /**
   * Who is logged in. `null`: nobody, and a subscription left behind by somebody ends as by `logout()`. Left out: not
   * known on this page, and nothing changes.
   */
  userId?: string | null;
  /** Your backend's signed word that it is `userId`. */
  userToken?: string;
  /** A language tag; by default the browser's. */
  locale?: string;
  /** Where your service worker is. By default `/service-worker.js`, for the directory that it lies in. */
  serviceWorker?: {
    url?: string;
    scope?: string;
    /** `module`, if it is one. By default it is a classic script. */
    type?: WorkerType;
    /** Yours, if you register it yourself. It has to import Bellwire's script. */
    registration?: ServiceWorkerRegistration | Promise<ServiceWorkerRegistration>;
  };
  /** A visit asks the server whether all is well at most this often, in seconds. By default 300. */
  checkEvery?: number;
}

export type Status =
  | { state: "subscribed"; id: string; topics: string[]; tags: string[]; userId: string | null }
  /** The person agreed, but browser or server have yet to do their part. It is tried again by itself, at the latest on the next visit. */
  | { state: "pending" }
  /** `granted`: subscribing asks nothing any more. */
  | { state: "unsubscribed"; permission: "default" | "granted" }
  /** The person, or the browser for them, said no. Only they can change that, in the site's settings. */
  | { state: "denied" }
  | { state: Obstacle };

/** `refused`: what the server left out of what was told just now. It is not said again by itself. */
export type Result = { ok: true; status: Status; refused?: Refused[] } | ({ ok: false; status: Status } & Failure);

export interface Events {
  change: Status;
  message: Message;
  error: Failure;
}

/** Words of the soft prompt. All are yours to set. */
export interface Wording {
  title?: string;
  body?: string;
  accept?: string;
  later?: string;
}

export interface PromptOptions extends Wording, Details {
  /** Shown inside this element instead of as a dialog. */
  into?: Element;
  /** "Later" is respected for so many days. By default 14. */
  againAfterDays?: number;
}

/** `not-needed`: there was nothing to ask, or it was put off before. */
export type PromptResult = { answer: "not-needed" | "later" } | { answer: "accepted"; result: Result };

/** No method rejects: what can be expected to go wrong is a value. */
export interface Client {
  /** Resolves once the first comparison with the server is over, successful or not. */
  readonly ready: Promise<Status>;
  status(): Promise<Status>;
  /** Asks the browser for permission if need be, so call it from a click or key press, before any `await`. */
  subscribe(details?: Details): Promise<Result>;
  /** Holds in this browser at once, and at the server as soon as it can be reached. */
  unsubscribe(): Promise<Result>;
  /**
   * Somebody now uses this browser for `userId`. A new subscription begins, of which nobody who used the browser before
   * can have kept anything. From nobody, topics and tags come along; from another user, neither they nor what is queued,
   * and what is on display is taken away.
   */
  login(userId: string, userToken: string): Promise<Result>;
  /**
   * The user leaves. What is on display is taken away first. The subscription itself ends, not only its link to the user:
   * from this moment, even offline, nothing addressed to them can appear here. With `stayAnonymous` a new
   * subscription, without user, topics and tags, takes its place.
   */
  logout(options?: { stayAnonymous?: boolean }): Promise<Result>;
  /** Like the next two, about a subscription that there is, or that is pending; without one they fail as `not-subscribed`. */
  setTopics(topics: string[]): Promise<Result>;
  setTags(tags: string[]): Promise<Result>;
  setAttributes(attributes: NonNullable<Details["attributes"]>): Promise<Result>;
  /** Asks in your words first, so that the browser's one question is not spent on people who would say no. */
  prompt(options?: PromptOptions): Promise<PromptResult>;
  /** The subscription's id and this browser's right to change it, for your backend. Keep the token out of logs. */
  credentials(): Promise<{ id: string; token: string } | null>;
  /** Returns what ends the listening. */
  on<E extends keyof Events>(event: E, listener: (detail: Events[E]) => void): () => void;
}
