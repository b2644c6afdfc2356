import type { Failure, Reason, Refused } from "../types";
import { clock } from "./clock";
import { base, end, loadAll, otherOwner, save, settled, type Said, type Saved } from "./saved";
import { type Answer, call, refusal, transient } from "./server";

const PUSH_SERVICE_MS = 20_000;
/** Time for the push service to deliver the queue of a subscription whose key was replaced. */
export const DRAIN_MS = 60_000;
/** A visit this long after the first one also replaces that subscription. Restored tabs count as one visit. */
const NEXT_VISIT_MS = 2_000;

export interface Wish {
  /** Id of the user, as in `Options`. */
  userId?: string | null;
  userToken?: string;
  /** Current values of the page. */
  page?: Said;
  /** The person has just subscribed, which overrides an end that the server recorded. */
  explicit?: boolean;
  /** Age in milliseconds up to which a confirmation is trusted. */
  freshForMs?: number;
  /** Set by `reconcile`: values that the server left out. */
  refused?: Refused[];
}

/** Values that the server has. */
const KEPT = ["topics", "tags", "attributes", "muted"] as const;

interface View {
  id: string;
  state: string;
  vapid_key_id: string;
  user_id: string | null;
  topics: string[];
  tags: string[];
  attributes: Said["attributes"];
  muted?: Said["muted"];
}

/**
 * Updates browser and server to match the record, without asking the person. Run it under the scope's lock. It may be
 * interrupted at any point: finished steps are in the record, and the next run continues from there. The registration is
 * required if the record is wanted or has to be renewed.
 */
export async function reconcile(
  saved: Saved,
  registration: ServiceWorkerRegistration | undefined,
  wish: Wish = {},
): Promise<Failure | undefined> {
  try {
    changeUser(saved, wish);
    say(saved, wish.page);
    await save(saved);
    if (saved.wanted) await takeOver(saved);
    // Each runs even if the other fails.
    const stuck = dropStale(saved, registration).catch((trouble: unknown) => trouble);
    const untold = await tellEnds(saved);
    if (await stuck) throw await stuck;
    if (saved.wanted && registration && allowed() && !(await otherOwner(saved.scope, saved.app)))
      await agree(saved, registration, wish);
    return untold;
  } catch (trouble) {
    return expected(trouble);
  }
}

/** Ends the record's old subscriptions, and those that another app in this scope could not end yet. */
async function takeOver(saved: Saved): Promise<void> {
  for (const other of await loadAll(saved.scope)) {
    if (other.app === saved.app || other.wanted || !other.renew) continue;
    saved.renew = true;
    await save(saved);
    await save({ ...other, renew: false });
  }
}

/** Returns a thrown failure. Rethrows other errors, which come from the storage. */
export function expected(trouble: unknown): Failure {
  if ((trouble as Partial<Failure>).reason) return trouble as Failure;
  throw trouble;
}

/** Some workers cannot read the permission. Then `subscribe` decides. */
const allowed = () => typeof Notification === "undefined" || Notification.permission === "granted";

/** Whether another person uses the browser than the subscription belongs to. */
function changeUser(saved: Saved, { userId }: Wish): void {
  if (userId === undefined || !saved.userId || saved.userId === userId) return;
  end(saved, userId !== null);
}

/** Sends locale and time zone only if they differ from the last ones sent, so changes by servers are kept. */
function say(saved: Saved, page: Said = {}): void {
  for (const name of ["locale", "timezone"] as const) {
    const now = page[name];
    if (now && now !== saved.said[name]) saved.unsaid[name] = now;
  }
}

/** Calls the browser's push service with a timeout. Chromium can wait for it forever, which would block each tab. */
function push<T>(asked: Promise<T>): Promise<T> {
  const trouble = (reason: Reason, what: unknown): Failure => ({
    reason,
    message: `The browser's own push service: ${what}`,
    retrying: reason === "push-service",
  });
  return new Promise<T>((resolve, reject) => {
    const callOff = clock.later(PUSH_SERVICE_MS, () => reject(trouble("push-service", "no answer.")));
    asked
      .then(resolve, (error: DOMException) => {
        // Chromium's private windows have no push, even with permission, and report an abort.
        const denied =
          error.name === "NotAllowedError" ? "denied" : /permission denied/.test(error.message) && "private-mode";
        reject(trouble(denied || "push-service", error));
      })
      .finally(callOff);
  });
}

const current = (registration: ServiceWorkerRegistration) => push(registration.pushManager.getSubscription());

const subscribe = (registration: ServiceWorkerRegistration, applicationServerKey: string) =>
  push(registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey }));

const leave = (subscription: PushSubscription) => push(subscription.unsubscribe());

async function dropStale(saved: Saved, registration?: ServiceWorkerRegistration): Promise<void> {
  if (!saved.renew) return;
  // The subscription of another app has already replaced the stale one.
  const replaced = await otherOwner(saved.scope, saved.app);
  const subscription = !replaced && registration && (await current(registration));
  if (subscription) await leave(subscription);
  saved.renew = false;
  await save(saved);
}

/** Reports ended subscriptions to the server. Failed reports are retried later; meanwhile the push service rejects pushes. */
async function tellEnds(saved: Saved): Promise<Failure | undefined> {
  let failure: Failure | undefined;
  const left = [];
  for (const ended of saved.ended) {
    const answer = await call("DELETE", ended.url, undefined, ended.token);
    if (!transient(answer.status)) continue;
    failure = refusal(answer);
    left.push(ended);
  }
  if (left.length < saved.ended.length) {
    saved.ended = left;
    await save(saved);
  }
  return failure;
}

async function agree(saved: Saved, registration: ServiceWorkerRegistration, wish: Wish): Promise<void> {
  let subscription = await current(registration);
  const known = () => subscription?.endpoint === saved.endpoint;
  const handOver = () => !!wish.userId && (wish.userId !== saved.userId || !saved.token);
  const unchanged = () => known() && settled(saved) && !handOver();
  if (unchanged() && !saved.rotating && clock.now() - saved.checked < (wish.freshForMs ?? 0)) return;

  // With the token the server counts the request for the subscription rather than for a shared network.
  const ask = () => call("GET", `${base(saved)}/config`, undefined, saved.token);
  let config = await ask();
  if (config.status === 401) {
    delete saved.token;
    config = await ask();
  }
  if (config.status !== 200 && (config.body?.code || transient(config.status))) throw refusal(config);
  check(config, ["application_server_key", "vapid_key_id"]);
  const view = await lookUp(saved);
  if (view?.state === "unsubscribed" && !wish.explicit) {
    // Ended elsewhere, on a page of preferences for example. The person decided that, too.
    return letGo(saved, registration);
  }
  const old =
    subscription && known() && view?.state === "active" && !handOver() ? keyOf(subscription, saved) : undefined;
  const isReplaced = old && old !== config.body.application_server_key;
  const keeps = isReplaced && !isDrained(saved, wish);
  if (!isReplaced) delete saved.rotating;
  const pair = keeps ? { application_server_key: old, vapid_key_id: view!.vapid_key_id } : config.body;
  const { application_server_key: key } = pair;
  const tell = () => register(saved, registration, subscription!, pair, view, wish);
  const ofOtherSender = subscription && !saved.key && keyOf(subscription, saved) !== key;
  if (ofOtherSender) {
    console.warn("Bellwire: replaces another sender's subscription; import its VAPID key to keep it.");
  }
  if (subscription && (keyOf(subscription, saved) !== key || (known() && view?.state === "gone"))) {
    await leave(subscription);
    subscription = null;
  } else if (subscription && known() && handOver()) {
    // A former user of this browser may have kept endpoint and keys, so a login gets new ones. The server confirms the login
    // first, so a refusal changes nothing. If the browser cannot unsubscribe, the old endpoint stays.
    await tell();
    await save(saved);
    await leave(subscription).then(
      () => (subscription = null),
      () => {},
    );
  }
  subscription ??= await subscribe(registration, key);
  if (view?.state !== "active" || !unchanged() || saved.key !== key) await tell();
  saved.checked = clock.now();
  await save(saved);
}

/**
 * Whether the push service had enough time to deliver the queue of a subscription under a former key. It drops the queue with
 * the subscription.
 */
function isDrained(saved: Saved, { freshForMs }: Wish): boolean {
  const age = clock.now() - (saved.rotating ??= clock.now());
  return age >= DRAIN_MS || age < 0 || (freshForMs !== undefined && age >= NEXT_VISIT_MS);
}

async function letGo(saved: Saved, registration: ServiceWorkerRegistration): Promise<void> {
  end(saved);
  await save(saved);
  return dropStale(saved, registration);
}

/**
 * Reads the subscription from the server. It may be gone, or the token may be invalid. The token ends with
 * each change of user, and when another client registers the endpoint.
 */
async function lookUp(saved: Saved): Promise<View | undefined> {
  if (!saved.token) return;
  const answer = await call("GET", `${base(saved)}/subscriptions/${saved.id}`, undefined, saved.token);
  if (answer.status === 200) {
    check(answer, ["id", "state"]);
    adopt(saved, answer.body);
    return answer.body;
  }
  if (transient(answer.status)) throw refusal(answer);
  delete saved.token;
}

/** After the end of a subscription, the server's lists are no longer the person's choice. */
function adopt(saved: Saved, view: View): void {
  if (view.state === "active") for (const name of KEPT) saved.said[name] = view[name] as never;
  saved.userId = view.user_id;
}

async function register(
  saved: Saved,
  registration: ServiceWorkerRegistration,
  subscription: PushSubscription,
  { application_server_key: key, vapid_key_id }: { application_server_key: string; vapid_key_id: string },
  view: View | undefined,
  wish: Wish,
): Promise<void> {
  const known = () => saved.endpoint === subscription.endpoint;
  const { userId: user_id, userToken: user_token } = wish;
  const post = (past?: object, token?: string) => {
    // The server keeps the values of a known subscription, also for its replacement, and has newer values.
    const { consentSource: source, ...said } = { ...(view && (past || known()) ? {} : saved.said), ...saved.unsaid };
    const consent = source ? { source } : undefined;
    // A replacement has no user unless the request names one.
    const user = user_id && !(view && known() && user_id === saved.userId) && { user_id, user_token };
    return call(
      "POST",
      `${base(saved)}/subscriptions`,
      { subscription, vapid_key_id, ...said, consent, ...user, ...past },
      token,
    );
  };
  const agreed = () => {
    Object.assign(saved.said, saved.unsaid);
    saved.unsaid = {}; // including the refused values, which would be refused each time
  };
  const { id, token } = saved;
  const anew = () => post(token ? { replaces: { id, token } } : undefined);

  let answer = await (known() ? post(undefined, token) : anew());
  const code = answer.body?.code;
  if (code === "belongs_to_user" && known()) {
    // The server bound the subscription to a user, which ended the token.
    if (user_id === null) return letGo(saved, registration);
    if (KEPT.some((name) => saved.unsaid[name] !== undefined)) throw refusal(answer);
    return agreed();
  }
  if (["endpoint_taken", "vapid_key_differs", "belongs_to_user"].includes(code)) {
    // The server has this endpoint with other keys, another VAPID key or another user, so it cannot be used.
    await leave(subscription);
    subscription = await subscribe(registration, key);
    answer = await anew();
  }
  const mayNotReplace = answer.body?.errors?.some(({ pointer }: { pointer?: string }) =>
    pointer?.startsWith("/replaces"),
  );
  if (answer.status === 401 || mayNotReplace) answer = await post();
  if (answer.status !== 200 && answer.status !== 201) throw refusal(answer);
  check(answer, ["id", "state"]);

  saved.id = answer.body.id;
  saved.token = answer.body.token;
  saved.endpoint = subscription.endpoint;
  saved.key = key;
  agreed();
  adopt(saved, answer.body);
  wish.refused ??= answer.body.refused;
}

/** Returns the VAPID key of a subscription. Browsers that do not report it are assumed to use the given one. */
export function keyOf(subscription: PushSubscription, saved: Saved): string | undefined {
  const octets = subscription.options?.applicationServerKey;
  if (!octets) return saved.key;
  const base64 = btoa(String.fromCharCode(...new Uint8Array(octets)));
  return base64.replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
}

/** Throws a failure for a response that no Bellwire server sends: `server` may be wrong, or a proxy responds instead. */
function check(answer: Answer, members: string[]): void {
  const { status, body } = answer;
  if (status < 300 && members.every((name) => typeof body?.[name] === "string")) return;
  const detail = `HTTP ${status}, no Bellwire server. Check init's \`server\`.`;
  throw refusal({ ...answer, body: { detail } });
}
