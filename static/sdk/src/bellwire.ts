import type { Client, Events, Failure, Options, PromptOptions, PromptResult, Refused, Result, Status } from "./api.js";
import { MESSAGES, obstacle } from "./page/environment";
import { ask } from "./page/prompt";
import { workerPlace } from "./page/worker";
import { alone } from "./shared/alone";
import { clock } from "./shared/clock";
import { noteSeen } from "./shared/database";
import { FLUSH, type News, newsChannel } from "./shared/news";
import { expected, reconcile, type Wish } from "./shared/reconcile";
import { end, load, loadFor, save, type Saved, settled } from "./shared/saved";

export type * from "./api.js";

const RETRY_MIN_MS = 5_000;
const RETRY_MAX_MS = 300_000;
const DAY_MS = 86_400_000;

/** Starts the browser's side of one app. It asks nothing: only `subscribe()`, called in a click, does. */
export function init(options: Options): Client {
  const blocked = obstacle();
  // Bundlers that build for servers leave `import.meta` empty.
  const server = blocked ? "" : (options.server ?? new URL(import.meta.url).origin).replace(/\/+$/, "");
  const { app, checkEvery = 300 } = options;
  let { userId, userToken } = options;
  const listeners: { [E in keyof Events]?: Set<(detail: Events[E]) => void> } = {};
  const place = blocked ? undefined : workerPlace(options, server);
  const channel = blocked ? undefined : newsChannel();
  let lastStatus = "";
  let retryMs = RETRY_MIN_MS;
  let callOff = () => {};
  function emit<E extends keyof Events>(event: E, detail: Events[E]): void {
    listeners[event]?.forEach((listener) => {
      try {
        listener(detail);
      } catch (error) {
        console.error(error); // the site's own mistake must not stop ours
      }
    });
  }

  async function status(): Promise<Status> {
    if (!place) return { state: blocked! };
    const { permission } = Notification;
    if (permission === "denied") return { state: "denied" };
    let saved: Saved | undefined;
    try {
      saved = await load(await place.scope);
    } catch (error) {
      if (!(error as Partial<Failure>).reason) return { state: "private-mode" };
    }
    if (!saved?.wanted || saved.app !== app || permission === "default") return { state: "unsubscribed", permission };
    if (!settled(saved)) return { state: "pending" };
    const { topics = [], tags = [] } = saved.said;
    return { state: "subscribed", id: saved.id!, topics, tags, userId: saved.userId ?? null };
  }

  const record = async () => place?.scope.then(load).catch(() => undefined);

  async function announce(): Promise<Status> {
    const now = await status();
    const told = JSON.stringify(now);
    if (told !== lastStatus) emit("change", now);
    lastStatus = told;
    return now;
  }

  async function answer(failure?: Failure, refused?: Refused[]): Promise<Result> {
    const now = await announce();
    // Nothing else would tell whoever builds the site why a topic stays empty.
    refused?.forEach(({ detail }) => console.warn(detail));
    return failure ? { ok: false, status: now, ...failure } : { ok: true, status: now, refused };
  }

  const fail = (reason: keyof typeof MESSAGES) => answer({ reason, message: MESSAGES[reason], retrying: false });

  /** Changes the record, then makes browser and server agree with it: what everything here comes down to. */
  async function settle(change: (saved: Saved) => unknown = () => {}, wish: Wish = {}): Promise<Result> {
    if (!place) return fail(blocked!);
    let failure: Failure | undefined;
    let changed = false;
    let cutOff = false;
    try {
      const scope = await place.scope;
      failure = await alone(scope, async () => {
        const saved = await loadFor(scope, app, server);
        const before = JSON.stringify(saved);
        const { unsaid, wanted } = structuredClone(saved);
        change(saved);
        const said = saved.unsaid;
        if (!saved.wanted && !saved.renew && !saved.ended.length) {
          if (JSON.stringify(saved) !== before) await save(saved);
          return;
        }
        const { language: locale } = navigator;
        const { timeZone: timezone } = Intl.DateTimeFormat().resolvedOptions();
        const page = { locale: options.locale ?? locale, timezone };
        await save(saved); // before the worker is waited for: a wish survives a closed tab
        if (wish.explicit) await announce();
        wish = { userId, userToken, page, ...wish };
        const failure = await place.registration(saved.wanted).then((registration) => reconcile(saved, registration, wish), expected);
        if (failure?.reason === "refused") {
          if (saved.unsaid === said) saved.unsaid = unsaid; // it would be refused again and again
        } else if (failure && !failure.retrying && wish.explicit && !saved.id) {
          Object.assign(saved, { wanted: false, unsaid: {} }); // the person is told, and nothing will come of it by itself
        }
        if (failure) await save(saved);
        cutOff = wanted && !saved.wanted && wish.userId === null;
        changed = JSON.stringify(saved) !== before;
        return failure;
      });
    } catch (error) {
      if (!(error as Partial<Failure>).reason) return fail("private-mode"); // only storage rejects unexpectedly
      failure = error as Failure;
    }
    if (cutOff) await clear();
    if (changed) channel!.postMessage({ scope: await place.scope, type: "change" } satisfies News);
    if (failure) emit("error", failure);
    // What only whoever builds the site can mend.
    if (failure && ["refused", "worker"].includes(failure.reason)) console.warn(`Bellwire: ${failure.message}`);
    plan(failure);
    return answer(failure, wish.refused);
  }

  /** Tries again later, in growing intervals, as long as that may help. */
  function plan(failure?: Failure): void {
    callOff();
    if (!failure?.retrying) {
      retryMs = RETRY_MIN_MS;
      return;
    }
    callOff = clock.later(retryMs * clock.jitter(), () => void settle());
    retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
  }

  async function subscribe(details = {}): Promise<Result> {
    if (blocked) return fail(blocked);
    let { permission } = Notification;
    if (permission === "default") {
      if (navigator.userActivation?.isActive === false) return fail("no-gesture");
      permission = await Notification.requestPermission().catch(() => "default" as const);
    }
    if (permission !== "granted") return fail(permission === "denied" ? "denied" : "dismissed");
    return settle((saved) => Object.assign(saved, { wanted: true, unsaid: { ...saved.unsaid, ...details } }), { explicit: true });
  }

  /** Says something about a subscription. */
  async function set(details: object): Promise<Result> {
    let wanted = true;
    const result = await settle((saved) => (wanted = saved.wanted) && Object.assign(saved.unsaid, details));
    return wanted ? result : fail("not-subscribed");
  }

  /**
   * Takes away what is on display, waiting neither for other tabs nor for the server: the page may be left before they
   * answer. Firefox tells the worker of it as of something that the person closed, so it is noted first.
   */
  async function clear(): Promise<void> {
    try {
      const registration = await place?.registration(false);
      const shown = ((await registration?.getNotifications()) ?? []).filter(({ data }) => data?.bellwire);
      await noteSeen(shown.map(({ data }) => data.bellwire.receipt)).catch(() => {});
      shown.forEach((notification) => notification.close());
      await navigator.clearAppBadge?.();
    } catch {
      // Nothing to take away, or nothing that can be.
    }
  }

  /** Takes away what was meant for somebody else than who is here now. */
  async function clearOfOthers(): Promise<void> {
    if (userId === undefined) return;
    const other = (await record())?.userId;
    if (other && other !== userId) await clear();
  }

  async function login(user: string, token: string): Promise<Result> {
    userId = user;
    userToken = token;
    await clearOfOthers();
    return settle();
  }

  async function logout({ stayAnonymous = false } = {}): Promise<Result> {
    userId = userToken = undefined;
    const cleared = clear();
    const result = await settle((saved) => {
      const { wanted } = saved;
      end(saved);
      saved.wanted = wanted && stayAnonymous;
    });
    await cleared;
    await clear(); // what came while the subscription had not ended yet
    return result;
  }

  async function prompt(options: PromptOptions = {}): Promise<PromptResult> {
    const { into, againAfterDays = 14, title, body, accept, later, ...details } = options;
    await ready;
    const now = await status();
    const { later: until = 0 } = (await record()) ?? {};
    if (now.state !== "unsubscribed" || until > clock.now()) return { answer: "not-needed" };
    const result = await ask({ into, title, body, accept, later }, () => subscribe(details));
    if (result) return { answer: "accepted", result };
    await settle((saved) => (saved.later = clock.now() + againAfterDays * DAY_MS));
    return { answer: "later" };
  }

  async function visit(): Promise<Status> {
    await clearOfOthers();
    const result = await settle(undefined, { freshForMs: checkEvery * 1000 });
    await flush();
    return result.status;
  }

  /** Wakes the worker to send what it could not send before. */
  async function flush(): Promise<void> {
    const registration = await place?.registration(false).catch(() => undefined);
    registration?.active?.postMessage(FLUSH);
  }

  const ready = visit();
  if (place) {
    channel!.onmessage = async ({ data }: MessageEvent<News>) => {
      if (data.scope !== (await place.scope.catch(() => ""))) return;
      if (data.type === "message") emit("message", data.message);
      else await announce();
    };
    addEventListener("online", () => void (settle(), flush()));
  }

  return {
    ready,
    status,
    subscribe,
    unsubscribe: () => settle(end),
    login,
    logout,
    setTopics: (topics) => set({ topics }),
    setTags: (tags) => set({ tags }),
    setAttributes: (attributes) => set({ attributes }),
    prompt,
    async credentials() {
      const saved = await record();
      return saved?.wanted && saved.id && saved.token ? { id: saved.id, token: saved.token } : null;
    },
    on(event, listener) {
      const set = (listeners[event] ??= new Set() as never) as Set<typeof listener>;
      set.add(listener);
      return () => void set.delete(listener);
    },
  };
}
