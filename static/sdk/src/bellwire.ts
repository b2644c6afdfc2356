import type {
  Client,
  Events,
  Failure,
  Muted,
  Options,
  PromptOptions,
  PromptResult,
  Refused,
  Result,
  Status,
} from "./api.js";
import { MESSAGES, obstacle } from "./page/environment";
import { optionsFault, serverOf } from "./page/options";
import { ask } from "./page/prompt";
import { failure as finalFailure, workerPlace } from "./page/worker";
import { alone } from "./shared/alone";
import { clock } from "./shared/clock";
import { noteSeen, StorageError } from "./shared/database";
import { CLICK, type ClickQuestion, FLUSH, type News, newsChannel } from "./shared/news";
import { DRAIN_MS, expected, reconcile, type Wish } from "./shared/reconcile";
import { base, end, load, loadFor, otherOwner, save, type Saved, settled } from "./shared/saved";
import { call, refusal } from "./shared/server";

export type * from "./api.js";

const RETRY_MIN_MS = 5_000;
const RETRY_MAX_MS = 300_000;
const DAY_MS = 86_400_000;
/** Timeout for a response of the worker, which may have to start first. */
const WORKER_ANSWERS_MS = 5_000;

const foreign = (owner: string) => `this scope belongs to app ${owner}: set serviceWorker.scope`;

/** Starts the client of one app. Shows no question: only `subscribe()`, called in a click, does. */
export function init(options: Options): Client {
  options ??= {} as Options;
  // The build for bundles puts `undefined` here, because bundlers write a path of the build machine or nothing.
  const server = serverOf(options, import.meta.url) ?? "";
  const fault = typeof document === "undefined" ? undefined : optionsFault(options, server);
  if (fault) console.error(`Bellwire: ${fault}`);
  const blocked = fault ? "invalid-options" : obstacle();
  const { app, checkEvery = 300 } = options;
  let userId: string | null | undefined;
  let userToken: string | undefined;
  const listeners: { [E in keyof Events]?: Set<(detail: Events[E]) => void> } = {};
  const place = blocked ? undefined : workerPlace(options, server);
  const channel = blocked ? undefined : newsChannel();
  let lastStatus: string | undefined;
  let asked: boolean | undefined;
  let retryMs = RETRY_MIN_MS;
  let callOff = () => {};
  /** Id or slug of another app that is subscribed in this scope. */
  let owner: string | undefined;
  /** Ids may be numbers, but the server and the record have them as text. */
  function setUser(id?: string | number | null, token?: string): void {
    userId = id == null ? id : `${id}`;
    userToken = token;
  }
  setUser(options.userId, options.userToken);
  function emit<E extends keyof Events>(event: E, detail: Events[E]): void {
    listeners[event]?.forEach((listener) => {
      try {
        listener(detail);
      } catch (error) {
        console.error(error); // an error of the site's code must not stop the SDK
      }
    });
  }

  async function status(): Promise<Status> {
    if (!place) return { state: blocked! };
    const { permission } = Notification;
    if (permission === "denied") return { state: "denied" };
    let saved: Saved | undefined;
    try {
      saved = await load(await place.scope, app);
    } catch (error) {
      if (error instanceof StorageError) return { state: "private-mode" };
      if (!(error as Partial<Failure>).reason) console.error(error);
    }
    if (!saved?.wanted || permission === "default") return { state: "unsubscribed", permission };
    if (!settled(saved)) return { state: "pending" };
    const { topics = [], tags = [], muted = null } = saved.said;
    return {
      state: "subscribed",
      id: saved.id!,
      topics,
      tags,
      userId: saved.userId ?? null,
      muted: muted as Muted | null, // as the server confirmed it
    };
  }

  const record = async () => place?.scope.then((scope) => load(scope, app)).catch(() => undefined);

  /** Whether a message is for this page. The worker does not always name the app. */
  const isOurs = (address?: string) => !owner || !address || address === base({ server, app });

  async function announce(): Promise<Status> {
    const now = await status();
    const told = JSON.stringify(now);
    if (told !== lastStatus) emit("change", now);
    lastStatus = told;
    return now;
  }

  async function answer(failure?: Failure, refused?: Refused[]): Promise<Result> {
    const now = await announce();
    // Without it, developers would not learn why a topic stays empty.
    refused?.forEach(({ pointer, detail }) => console.warn(pointer, detail));
    // Errors that only the site's developers can correct.
    if (failure && /^(refused|worker)$/.test(failure.reason)) console.warn(`Bellwire: ${failure.message}`);
    return failure ? { ok: false, status: now, ...failure } : { ok: true, status: now, refused };
  }

  const fail = (reason: keyof typeof MESSAGES | "invalid-options") =>
    answer(finalFailure(fault ?? MESSAGES[reason as keyof typeof MESSAGES], reason));

  /** Changes the record, then updates browser and server accordingly. All calls use this function. */
  async function settle(change?: (saved: Saved) => unknown, wish: Wish = {}): Promise<Result> {
    if (!place) return fail(blocked!);
    let failure: Failure | undefined;
    let changed: boolean | undefined;
    let drains: boolean | undefined;
    let cutOff: boolean | undefined;
    try {
      const scope = await place.scope;
      failure = await alone(scope, async () => {
        const saved = await loadFor(scope, app, server);
        const before = JSON.stringify(saved);
        const { unsaid, wanted } = JSON.parse(before) as Saved;
        change?.(saved);
        const said = saved.unsaid;
        owner = await otherOwner(scope, app);
        if (owner && saved.wanted) {
          return finalFailure(foreign(owner));
        }
        if (!saved.wanted && !saved.renew && !saved.ended.length) {
          if (JSON.stringify(saved) !== before) await save(saved);
          return;
        }
        const { locale = navigator.language } = options;
        const page = { locale, timezone: Intl.DateTimeFormat().resolvedOptions().timeZone };
        await save(saved); // before waiting for the worker: the change survives a closed tab
        if (wish.explicit) await announce();
        wish = { userId, userToken, page, ...wish };
        const failure = await place
          .registration(saved.wanted)
          .then((registration) => reconcile(saved, registration, wish), expected);
        if (failure?.reason === "refused") {
          if (saved.unsaid === said) saved.unsaid = unsaid; // the server would refuse it each time
        } else if (failure && !failure.retrying && wish.explicit && !saved.id) {
          Object.assign(saved, { wanted: false, unsaid: {} }); // the caller gets the error, and no retry follows
        }
        if (failure) await save(saved);
        drains = !!saved.rotating;
        cutOff = wanted && !saved.wanted && wish.userId === null;
        changed = JSON.stringify(saved) !== before;
        return failure;
      });
    } catch (error) {
      if (error instanceof StorageError) return fail("private-mode");
      failure = error as Failure;
      if (!failure.reason) {
        console.error(error);
        failure = finalFailure(String(error), "unexpected");
      }
    }
    if (cutOff) await clear();
    if (changed) channel!.postMessage({ scope: await place.scope, type: "change" } satisfies News);
    if (failure) emit("error", failure);
    plan(failure, drains);
    return answer(failure, wish.refused);
  }

  /** Retries later, at growing intervals, while a retry can succeed. */
  function plan(failure?: Failure, drains?: boolean): void {
    callOff();
    const retries = failure?.retrying;
    if (retries || drains) callOff = clock.later(retries ? retryMs * clock.jitter() : DRAIN_MS, () => void settle());
    retryMs = retries ? Math.min(retryMs * 2, RETRY_MAX_MS) : RETRY_MIN_MS;
  }

  async function subscribe(details = {}): Promise<Result> {
    if (blocked) return fail(blocked);
    let { permission } = Notification;
    if (owner) owner = await otherOwner(await place!.scope, app).catch(() => undefined);
    if (!owner && permission === "default") {
      if (navigator.userActivation?.isActive === false) return fail("no-gesture");
      permission = await Notification.requestPermission().catch(() => "default" as const);
    }
    if (!owner && permission !== "granted") return fail(permission === "denied" ? "denied" : "dismissed");
    const want = (saved: Saved) => ((saved.wanted = true), Object.assign(saved.unsaid, details));
    return settle(want, { explicit: true }).finally(flush);
  }

  /** Changes values of the subscription. */
  async function set(details: object): Promise<Result> {
    let wanted = true;
    const result = await settle((saved) => (wanted = saved.wanted) && Object.assign(saved.unsaid, details));
    return wanted ? result : fail("not-subscribed");
  }

  /** Posts a report after calls that are under way, which may change the user. All attempts have one id and count once. */
  async function report(to: string, name: string, details: { id?: string; properties?: object } = {}) {
    const { id = `${clock.now()}-${Math.random()}` } = details;
    await ready;
    const saved = await place?.scope.then((scope) => alone(scope, record)).catch(() => undefined);
    if (!saved?.token) return fail(blocked ?? "not-subscribed");
    const reply = await call(
      "POST",
      `${base(saved)}/subscriptions/${saved.id}/${to}`,
      { ...details, id, name },
      saved.token,
    );
    return answer(reply.status < 300 ? undefined : { ...refusal(reply), retrying: false });
  }

  /**
   * Removes displayed notifications without waiting for other tabs or the server, because the page may be left before they
   * respond. Firefox reports a removal to the worker like a closing by the person, so the receipt tokens are stored first.
   */
  async function clear(filter: { tag?: string } = {}): Promise<number> {
    try {
      const registration = await place?.registration(false);
      const shown = ((await registration?.getNotifications(filter)) ?? []).filter(
        ({ data }) => data?.bellwire && isOurs(data.bellwire.app),
      );
      await noteSeen(shown.map(({ data }) => data.bellwire.receipt)).catch(() => {});
      shown.forEach((notification) => notification.close());
      if (!filter.tag) await navigator.clearAppBadge?.();
      return shown.length;
    } catch {
      return 0; // no notifications, or the browser cannot remove them
    }
  }

  /** Removes displayed notifications for another user than the current one. */
  async function clearOfOthers(): Promise<void> {
    const other = userId !== undefined && (await record())?.userId;
    if (other && other !== userId) await clear();
  }

  async function login(user: string | number, token: string): Promise<Result> {
    setUser(user, token);
    await clearOfOthers();
    return settle();
  }

  async function logout({ stayAnonymous = false } = {}): Promise<Result> {
    setUser();
    const cleared = clear();
    const result = await settle((saved) => end(saved, stayAnonymous));
    await cleared;
    await clear(); // notifications that arrived before the subscription ended
    return result;
  }

  let asking: Promise<PromptResult> | undefined;

  /** A second call while the question is open returns the same answer and shows no second question. */
  const prompt = (options?: PromptOptions) => (asking ??= promptOnce(options).finally(() => (asking = undefined)));

  async function promptOnce(options: PromptOptions = {}): Promise<PromptResult> {
    const { into: _, againAfterDays = 14, title, body, accept, later, ...details } = options;
    await ready;
    const now = await status();
    const { later: until = 0 } = (await record()) ?? {};
    if (owner) console.warn(`Bellwire: ${foreign(owner)}`);
    if (owner || now.state !== "unsubscribed" || until > clock.now()) return { answer: "not-needed" };
    const answer = await ask(options, () => subscribe(details));
    if (typeof answer === "object") return { answer: "accepted", result: await answer.accepted };
    if (answer === "later") await settle((saved) => (saved.later = clock.now() + againAfterDays * DAY_MS));
    return { answer };
  }

  async function visit(): Promise<Status> {
    await clearOfOthers();
    const result = await settle(undefined, { freshForMs: checkEvery * 1000 });
    await flush();
    return result.status;
  }

  /**
   * Wakes the worker to send waiting receipts. The page also checks once whether the worker imports Bellwire's script:
   * without it, no notification is shown. While a new worker waits, the active version may not respond.
   */
  async function flush(): Promise<void> {
    const registration = await place?.registration(false).catch(() => undefined);
    const active = registration?.active;
    active?.postMessage(FLUSH);
    if (!active || asked || !(await record())?.wanted) return;
    asked = true;
    const { port1, port2 } = new MessageChannel();
    const timer = setTimeout(() => {
      if (!registration.waiting)
        console.warn(`Bellwire: ${active.scriptURL} lacks importScripts("${server}/sdk/service-worker.js")`);
    }, WORKER_ANSWERS_MS);
    port1.onmessage = () => clearTimeout(timer);
    active.postMessage(FLUSH, [port2]);
  }

  /** Responds to the worker whether this page handles clicks, and handles the click that follows. */
  async function onClick({ data, ports }: MessageEvent<ClickQuestion | undefined>): Promise<void> {
    if (data?.type !== CLICK || data.scope !== (await place!.scope.catch(() => ""))) return;
    if (data.click) emit("click", data.click);
    else ports[0]?.postMessage(isOurs(data.app) && !!listeners.click?.size);
  }

  const ready = visit();
  if (place) {
    channel!.onmessage = async ({ data }: MessageEvent<News>) => {
      if (data.scope !== (await place.scope.catch(() => ""))) return;
      if (data.type === "change") await announce();
      else if (isOurs(data.app)) emit("message", data.message);
    };
    try {
      navigator.serviceWorker.addEventListener("message", onClick);
      navigator.serviceWorker.startMessages?.();
    } catch {
      // The browser blocks the site's storage: `ready` reports that.
    }
    addEventListener("online", () => void (settle(), flush()));
  }

  const client: Client = {
    options: { ...options, server },
    ready,
    status,
    subscribe,
    unsubscribe: () => settle(end),
    login,
    logout,
    setTopics: (topics) => set({ topics }),
    setTags: (tags) => set({ tags }),
    setAttributes: (attributes) => set({ attributes }),
    setMuted: (muted) =>
      set({ muted: muted && { until: muted.until && isNaN(muted.until as never) ? `${muted.until}` : muted.until } }),
    track: (name, properties, { id } = {}) => report("events", name, { id, properties }),
    converted: (name, conversion) => report("conversions", name, conversion),
    clear,
    prompt,
    diagnose: (options) =>
      import("./diagnose.js").then(
        ({ diagnose }) => diagnose(client, options),
        (error) => ({
          code: null,
          checks: [{ name: "server", ok: false, found: `${error}`, advice: "Allow /sdk/diagnose.js" }],
        }),
      ),
    async credentials() {
      const saved = await record();
      return saved?.wanted && saved.token ? { id: saved.id!, token: saved.token } : null;
    },
    on(event, listener) {
      const set = (listeners[event] ??= new Set() as never) as Set<typeof listener>;
      set.add(listener);
      return () => void set.delete(listener);
    },
  };
  return client;
}
