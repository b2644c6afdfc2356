import type { Failure, Reason, Refused } from "../types";
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
    return expected(trouble);
  }
}

/** A failure that was thrown to be returned. Anything else is storage's, and thrown on. */
export function expected(trouble: unknown): Failure {
  if ((trouble as Partial<Failure>).reason) return trouble as Failure;
  throw trouble;
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
  const trouble = (reason: Reason, what: unknown): Failure =>
    ({ reason, message: `The browser's own push service: ${what}`, retrying: reason === "push-service" });
  return new Promise<T>((resolve, reject) => {
    const callOff = clock.later(PUSH_SERVICE_MS, () => reject(trouble("push-service", "no answer.")));
    asked.then(resolve, (error: DOMException) => {
      // Chromium's private windows have none, whatever the person permits, and call that an abort.
      const denied = error.name === "NotAllowedError" ? "denied" : /permission denied/.test(error.message) && "private-mode";
      reject(trouble(denied || "push-service", error));
    }).finally(callOff);
  });
}

const current = (registration: ServiceWorkerRegistration) => push(registration.pushManager.getSubscription());

const subscribe = (registration: ServiceWorkerRegistration, applicationServerKey: string) =>
  push(registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey }));

const leave = (subscription: PushSubscription) => push(subscription.unsubscribe());

async function dropStale(saved: Saved, registration?: ServiceWorkerRegistration): Promise<void> {
  if (!saved.renew) return;
  const subscription = registration && (await current(registration));
  if (subscription) await leave(subscription);
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
  const known = () => subscription?.endpoint === saved.endpoint;
  const handOver = () => !!wish.userId && (wish.userId !== saved.userId || !saved.token);
  const unchanged = () => known() && settled(saved) && !handOver();
  if (unchanged() && clock.now() - saved.checked < (wish.freshForMs ?? 0)) return;

  const config = await call("GET", `${base(saved)}/config`);
  if (config.status !== 200) throw refusal(config);
  const { application_server_key: key } = config.body;
  const view = await lookUp(saved);
  if (view?.state === "unsubscribed" && !wish.explicit) {
    // Ended elsewhere, say on a page of preferences: that is the person's word too.
    return letGo(saved, registration);
  }
  const tell = () => register(saved, registration, subscription!, config.body, view, wish);
  if (subscription && (keyOf(subscription, saved) !== key || (known() && view?.state === "gone"))) {
    await leave(subscription);
    subscription = null;
  } else if (subscription && known() && handOver()) {
    // Whoever used this browser before may have kept endpoint and keys: who logs in begins with others. But first the
    // server agrees, so that a refusal leaves all as it was; and where the browser cannot let go, it stays at that.
    await tell();
    await save(saved);
    await leave(subscription).then(() => (subscription = null), () => {});
  }
  subscription ??= await subscribe(registration, key);
  if (view?.state !== "active" || !unchanged() || saved.key !== key) await tell();
  saved.checked = clock.now();
  await save(saved);
}

async function letGo(saved: Saved, registration: ServiceWorkerRegistration): Promise<void> {
  end(saved);
  await save(saved);
  return dropStale(saved, registration);
}

/**
 * The subscription as the server has it. It may not know it any more, or not by our token: that ends with every change of
 * user, whoever makes it, and when somebody else registers the endpoint.
 */
async function lookUp(saved: Saved): Promise<View | undefined> {
  if (!saved.token) return;
  const answer = await call("GET", `${base(saved)}/subscriptions/${saved.id}`, undefined, saved.token);
  if (answer.status === 200) {
    adopt(saved, answer.body);
    return answer.body;
  }
  if (transient(answer.status)) throw refusal(answer);
  delete saved.token;
}

/** Once a subscription has ended, the server's lists say nothing of what the person wished. */
function adopt(saved: Saved, { state, topics, tags, attributes, user_id }: View): void {
  if (state === "active") Object.assign(saved.said, { topics, tags, attributes });
  saved.userId = user_id;
}

async function register(
  saved: Saved,
  registration: ServiceWorkerRegistration,
  subscription: PushSubscription,
  { application_server_key: key, vapid_key_id }: { application_server_key: string; vapid_key_id: string },
  view: View | undefined,
  wish: Wish,
): Promise<void> {
  const { id, token, endpoint } = saved;
  const known = () => endpoint === subscription.endpoint;
  const { userId: user_id, userToken: user_token } = wish;
  const post = (past?: object, token?: string) => {
    // The server keeps what was said of a subscription that it knows, also for what replaces it, and knows better by now.
    const { consentSource: source, ...said } = { ...(view && (past || known()) ? {} : saved.said), ...saved.unsaid };
    const consent = source ? { source } : undefined;
    // What replaces a subscription is nobody's unless we say whose it is.
    const user = user_id && !(view && known() && user_id === saved.userId) && { user_id, user_token };
    return call("POST", `${base(saved)}/subscriptions`, { subscription, vapid_key_id, ...said, consent, ...user, ...past }, token);
  };
  const agreed = () => {
    Object.assign(saved.said, saved.unsaid);
    saved.unsaid = {}; // with what was left out, which would be left out again and again
  };
  const anew = () => post(token ? { replaces: { id, token } } : undefined);

  let answer = await (known() ? post(undefined, token) : anew());
  const code = answer.body?.code;
  if (code === "belongs_to_user" && known()) {
    // The server has said whose it is, and our token ended with that.
    if (user_id === null) return letGo(saved, registration);
    const { topics, tags, attributes } = saved.unsaid;
    if (topics || tags || attributes) throw refusal(answer);
    return agreed();
  }
  if (["endpoint_taken", "vapid_key_differs", "belongs_to_user"].includes(code)) {
    // Known with other keys, under another VAPID key, or as somebody's: this endpoint is of no use to us.
    await leave(subscription);
    subscription = await subscribe(registration, key);
    answer = await anew();
  }
  const mayNotReplace = answer.body?.errors?.some(({ pointer }: { pointer?: string }) => pointer?.startsWith("/replaces"));
  if (answer.status === 401 || mayNotReplace) answer = await post();
  if (answer.status !== 200 && answer.status !== 201) throw refusal(answer);

  saved.id = answer.body.id;
  saved.token = answer.body.token;
  saved.endpoint = subscription.endpoint;
  saved.key = key;
  agreed();
  adopt(saved, answer.body);
  wish.refused ??= answer.body.refused;
}

/** The key that a subscription was made with; browsers that do not tell it are believed to hold what they were given. */
function keyOf(subscription: PushSubscription, saved: Saved): string | undefined {
  const octets = subscription.options?.applicationServerKey;
  if (!octets) return saved.key;
  const base64 = btoa(String.fromCharCode(...new Uint8Array(octets)));
  return base64.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

function refusal({ status, body }: Answer): Failure {
  const retrying = transient(status);
  const silence = "No answer from the server: no network, it is down, or the page's CSP does not let us ask.";
  const message = body?.detail ?? (status ? `HTTP ${status}` : silence);
  return { reason: retrying ? "offline" : "refused", message, code: body?.code, retrying };
}
