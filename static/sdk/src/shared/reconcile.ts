import type { Failure, Refused } from "../types";
import { clock } from "./clock";
import { base, end, save, settled, type Said, type Saved } from "./saved";
import { type Answer, call, transient } from "./server";

const PUSH_SERVICE_MS = 20_000;

export interface Wish {
  /** Who is logged in, as in `Options`. */
  userId?: string | null;
  userToken?: string;
  /** What the page says of itself today. */
  page?: Said;
  /** The person has just asked, which outweighs an end that the server decided on. */
  explicit?: boolean;
  /** Trust an agreement that is younger than this. Milliseconds. */
  freshForMs?: number;
  /** Set by `reconcile`: what the server left out of what it was told. */
  refused?: Refused[];
}

interface View {
  id: string;
  state: string;
  user_id: string | null;
  topics: string[];
  tags: string[];
  attributes: Said["attributes"];
}

/** Thrown inside this module only. */
class Trouble {
  constructor(readonly failure: Failure) {}
}

/**
 * Makes browser and server agree with the record, and never asks the person anything. Run it under the scope's lock. It
 * can be cut off at any point: what was done is in the record, and the next run goes on from there. The registration is
 * needed wherever the record is wanted or has to be renewed.
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
    // Each is to happen even if the other cannot.
    const stuck = dropStale(saved, registration).then(() => undefined, (trouble: unknown) => trouble);
    const untold = await tellEnds(saved);
    if (await stuck) throw await stuck;
    if (saved.wanted && registration && allowed()) await agree(saved, registration, wish);
    return untold;
  } catch (trouble) {
    if (trouble instanceof Trouble) return trouble.failure;
    throw trouble;
  }
}

/** Some workers do not know; then `subscribe` would. */
const allowed = () => typeof Notification === "undefined" || Notification.permission === "granted";

/** Another person than the subscription is for: nothing of the old one's may reach them. */
function changeUser(saved: Saved, { userId }: Wish): void {
  if (userId === undefined || !saved.userId || saved.userId === userId) return;
  const { wanted } = saved;
  end(saved);
  saved.wanted = wanted && userId !== null;
}

/** Tells of locale and time zone when they differ from what was said last, so that a server's own change is kept. */
function say(saved: Saved, page: Said = {}): void {
  for (const name of ["locale", "timezone"] as const) {
    const now = page[name];
    if (now && now !== saved.said[name]) saved.unsaid[name] = now;
  }
}

/** What the browser's push service is asked. Chromium can wait for it without end, which would hold up every tab. */
function push<T>(asked: Promise<T>): Promise<T> {
  const trouble = (reason: "denied" | "push-service", message: string) =>
    new Trouble({ reason, message, retrying: reason === "push-service" });
  return new Promise<T>((resolve, reject) => {
    const callOff = clock.later(PUSH_SERVICE_MS, () => reject(trouble("push-service", "It does not answer.")));
    asked.then(resolve, (error: DOMException) => {
      reject(trouble(error.name === "NotAllowedError" ? "denied" : "push-service", String(error)));
    }).finally(callOff);
  });
}

const current = (registration: ServiceWorkerRegistration) => push(registration.pushManager.getSubscription());

const subscribe = (registration: ServiceWorkerRegistration, applicationServerKey: string) =>
  push(registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey }));

async function dropStale(saved: Saved, registration?: ServiceWorkerRegistration): Promise<void> {
  if (!saved.renew) return;
  const subscription = registration && (await current(registration));
  if (subscription) await push(subscription.unsubscribe());
  saved.renew = false;
  await save(saved);
}

/** What stays untold is told another time: pushes to it end by themselves once the push service knows. */
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
  const handOver = !!wish.userId && wish.userId !== saved.userId;
  const unchanged = () => subscription?.endpoint === saved.endpoint && settled(saved) && !handOver;
  if (unchanged() && clock.now() - saved.checked < (wish.freshForMs ?? 0)) return;

  const config = await call("GET", `${base(saved)}/config`);
  if (config.status !== 200) throw new Trouble(refusal(config));
  const { application_server_key: key, vapid_key_id } = config.body;
  const view = await lookUp(saved);
  if (view?.state === "unsubscribed" && !wish.explicit) {
    // Ended elsewhere, say on a page of preferences: that is the person's word too.
    end(saved);
    await save(saved);
    return dropStale(saved, registration);
  }
  if (subscription && (keyOf(subscription, saved) !== key || (view?.state === "gone" && unchanged()))) {
    await push(subscription.unsubscribe());
    subscription = null;
  }
  subscription ??= await subscribe(registration, key);
  if (view?.state !== "active" || !unchanged() || saved.key !== key) {
    await register(saved, registration, subscription, { key, vapid_key_id }, view, wish);
  }
  saved.checked = clock.now();
  await save(saved);
}

/** The subscription as the server has it. One that it does not know, or not by our token, is forgotten here too. */
async function lookUp(saved: Saved): Promise<View | undefined> {
  if (!saved.id) return;
  const answer = await call("GET", `${base(saved)}/subscriptions/${saved.id}`, undefined, saved.token);
  if (answer.status === 200) {
    adopt(saved, answer.body);
    return answer.body;
  }
  if (![401, 403, 404].includes(answer.status)) throw new Trouble(refusal(answer));
  delete saved.id, delete saved.token;
}

function adopt(saved: Saved, view: View): void {
  const { topics, tags, attributes } = view;
  Object.assign(saved.said, { topics, tags, attributes });
  saved.userId = view.user_id;
}

async function register(
  saved: Saved,
  registration: ServiceWorkerRegistration,
  subscription: PushSubscription,
  config: { key: string; vapid_key_id: string },
  view: View | undefined,
  wish: Wish,
): Promise<void> {
  const said = { ...(view ? {} : saved.said), ...saved.unsaid };
  const user = wish.userId && !(view && wish.userId === saved.userId) ? { user_id: wish.userId, user_token: wish.userToken } : {};
  const { vapid_key_id } = config;
  const post = (past: object, token?: string) =>
    call("POST", `${base(saved)}/subscriptions`, { subscription, vapid_key_id, ...said, ...user, ...past }, token);

  const { id, token, endpoint } = saved;
  let answer = await (endpoint === subscription.endpoint ? post({}, token) : post(id ? { replaces: { id, token } } : {}));
  if (["endpoint_taken", "vapid_key_differs"].includes(answer.body?.code)) {
    // Known with other keys, or under another VAPID key: this endpoint is of no use to us.
    await push(subscription.unsubscribe());
    subscription = await subscribe(registration, config.key);
    answer = await post(id ? { replaces: { id, token } } : {});
  }
  if (answer.status === 401 || isAbout(answer, "/replaces")) answer = await post({});
  if (answer.status !== 200 && answer.status !== 201) throw new Trouble(refusal(answer));

  saved.id = answer.body.id;
  saved.token = answer.body.token;
  saved.endpoint = subscription.endpoint;
  saved.key = config.key;
  saved.said = { locale: said.locale ?? saved.said.locale, timezone: said.timezone ?? saved.said.timezone };
  saved.unsaid = {}; // what was left out included: it would be left out again and again
  adopt(saved, answer.body);
  wish.refused = answer.body.refused;
}

const isAbout = (answer: Answer, pointer: string) =>
  answer.status === 422 && !!answer.body?.errors?.some((error: { pointer?: string }) => error.pointer?.startsWith(pointer));

/** The key that a subscription was made with; browsers that do not tell it are believed to hold what they were given. */
function keyOf(subscription: PushSubscription, saved: Saved): string | undefined {
  const octets = subscription.options?.applicationServerKey;
  if (!octets) return saved.key;
  const base64 = btoa(String.fromCharCode(...new Uint8Array(octets)));
  return base64.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

function refusal({ status, body }: Answer): Failure {
  if (transient(status)) {
    const message = status ? `HTTP ${status}` : "No answer: no network, server down, or this origin is not one of the app's.";
    return { reason: "offline", message, retrying: true };
  }
  return { reason: "refused", message: body?.detail ?? `HTTP ${status}`, code: body?.code, retrying: false };
}
