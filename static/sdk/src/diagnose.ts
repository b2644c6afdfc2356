import type { Check, Client, Diagnosis, DiagnoseOptions, Failure, Obstacle } from "./api.js";
import { obstacle } from "./page/environment";
import { checkManifest } from "./page/manifest";
import { type WorkerPlace, workerPlace } from "./page/worker";
import { clock } from "./shared/clock";
import { FLUSH } from "./shared/news";
import { keyOf } from "./shared/reconcile";
import { base, load, type Saved, settled } from "./shared/saved";
import { type Answer, call } from "./shared/server";

export { whyBroken } from "./page/broken.js";

const ROUND_TRIP_MS = 10_000;
const POLL_MS = 500;
const WORKER_ANSWERS_MS = 5_000;
const CLOCK_OFF_MAX_MS = 300_000;
/** Maximum characters of a text in a report. The server accepts 1,000. */
const TEXT_MAX = 500;

/** Options of `init`, and the server's address. A misspelt option is ignored. */
const OPTIONS = ["app", "server", "userId", "userToken", "locale", "serviceWorker", "checkEvery"];

/** Remedies in full. The page's script has short ones. */
const REMEDIES: Record<Obstacle, string> = {
  "invalid-options": "Correct init's options. The console names the option.",
  "no-window": "Call diagnose() in a browser.",
  insecure: "Serve the page over HTTPS, or open it on localhost.",
  unsupported: "Use a current Chrome, Edge, Firefox or Safari. Browsers inside other apps have no web push.",
  "private-mode": "Use a normal window, and allow this site to store data in the browser's settings.",
  "not-installed": "Add the site to the Home Screen (iOS 16.4 or later), and open it from there.",
};

/** Members of the response of `…/diagnoses` that are used here. */
interface ServerSide {
  code: string;
  created_at: string;
  server: {
    state: string;
    topics: number;
    last_accepted_at: string | null;
    last_failure: { at: string; state: string; status: number | null } | null;
  };
  test: { state: string | null; status: number | null; displayed_at: string | null } | null;
}

interface Found {
  registration?: ServiceWorkerRegistration;
  subscription?: PushSubscription | null;
  saved?: Saved;
}

/** Collects checks. By default, a check without advice passed. */
class Report {
  readonly checks: Check[] = [];
  add(name: Check["name"], found: string, advice: string | null | false = null, ok = !advice): boolean {
    const line = (text: string) =>
      text
        .replace(/[\s\x00-\x1f\x7f-\x9f]+/g, " ")
        .trim()
        .slice(0, TEXT_MAX) || "?";
    this.checks.push({ name, ok, found: line(found), advice: advice ? line(advice) : null });
    return ok;
  }
}

/**
 * Checks all requirements of notifications, and makes the server send a test notification to this browser. Takes up to about
 * 15 s and never rejects. Without a subscription at the server there is neither a code nor a test.
 */
export async function diagnose(client: Client, { into }: DiagnoseOptions = {}): Promise<Diagnosis> {
  const report = new Report();
  let code: string | null = null;
  try {
    code = await examine(client, report);
  } catch (error) {
    report.add(
      "support",
      (error as Partial<Failure>).message ?? String(error),
      "The browser failed unexpectedly. Send this text to support.",
    );
  }
  const diagnosis = { code, checks: report.checks };
  const element = find(into);
  if (element) render(diagnosis, element);
  return diagnosis;
}

/** Returns the element for the report. Logs a selector that matches no element, because the report is complete without it. */
function find(into: DiagnoseOptions["into"]): Element | null | undefined {
  if (typeof into !== "string") return into;
  try {
    const element = document.querySelector(into);
    if (element) return element;
  } catch {
    // No valid selector.
  }
  console.warn(`Bellwire: diagnose() found no element for the selector "${into}".`);
  return null;
}

async function examine({ options, status }: Client, report: Report): Promise<string | null> {
  const { state } = await status();
  const missing = obstacle();
  const agent = typeof navigator === "undefined" ? "no browser" : navigator.userAgent;
  if (state === "invalid-options") {
    report.add("support", `${agent}: ${state}`, REMEDIES[state]);
    return null;
  }
  const unknown = Object.keys(options).filter((name) => !OPTIONS.includes(name));
  const ignored = unknown.length ? `; init ignores ${unknown.join(", ")}` : "";
  if (missing === "not-installed") {
    // First, because an icon that was added without it opens a tab. The page's own registration may never be ready in a tab.
    const scope = !options.serviceWorker?.registration && (await workerPlace(options, options.server).scope);
    await manifest(scope || undefined, true, report);
  }
  if (!report.add("support", `${agent}: ${missing ?? "web push"}${ignored}`, missing && REMEDIES[missing])) return null;
  permission(report);
  const place = workerPlace(options, options.server);
  const found = await browserSide(options, place, report);
  const address = base(options);
  const [config] = await Promise.all([
    call("GET", `${address}/config`),
    place.scope.then((scope) => manifest(scope, false, report)),
  ]);
  const reachable = report.add(
    "server",
    `${options.server}: ${told(config)}`,
    config.status !== 200 && adviceOf(config),
  );
  if (found.subscription && found.saved && reachable) key(found as Required<Found>, config, report);
  const { saved } = found;
  if (!saved?.id || !saved.token || !reachable) {
    report.add(
      "registration",
      "The server has no subscription of this browser.",
      reachable ? "Call subscribe()." : "Reach the server first.",
    );
    return null;
  }
  return serverSide(address, saved as Saved & { token: string }, report);
}

/** Adds the check of the web app manifest. Only a tab on an iPhone or iPad needs it; for others it is a recommendation. */
async function manifest(scope: string | undefined, isNeeded: boolean, report: Report): Promise<void> {
  const { found, faults, hints } = await checkManifest(scope);
  const advice = [...faults, ...hints].join(" ");
  report.add("manifest", found, advice && `For iPhones and iPads: ${advice}`, !isNeeded || faults.length === 0);
}

function permission(report: Report): void {
  const { permission } = Notification;
  const advice = {
    granted: null,
    default: "Call subscribe() in a click handler: the browser has not asked the person yet.",
    denied:
      "Allow notifications for this site in the browser's site settings, beside the address, then reload the page.",
  };
  report.add("permission", permission, advice[permission]);
}

/** Reads worker, record and subscription without changing them. */
async function browserSide(options: Client["options"], place: WorkerPlace, report: Report): Promise<Found> {
  const found: Found = {};
  const scope = await place.scope;
  found.registration = await place.registration(false);
  const worker = found.registration?.active;
  const line = `importScripts("${options.server}/sdk/service-worker.js")`;
  const script = worker?.scriptURL ?? "No active worker";
  report.add(
    "worker",
    `${script}, scope ${scope}`,
    !worker && "Call subscribe(), which registers it, and read its message.",
  );
  if (!worker) return found;
  const hasLine = await answers(worker);
  report.add(
    "line",
    `The worker ${hasLine ? "answers" : "does not answer"}.`,
    !hasLine && `Add ${line} to ${worker.scriptURL}.`,
  );
  found.saved = await load(scope, options.app);
  found.subscription = await found.registration!.pushManager.getSubscription();
  const { saved, subscription } = found;
  const isCurrent = subscription?.endpoint === saved?.endpoint && !!saved && settled(saved);
  const at = subscription ? new URL(subscription.endpoint).host : "none";
  const advice = !saved?.wanted
    ? "Call subscribe()."
    : !subscription
      ? "Reload the page: the browser has dropped the subscription."
      : "Reload the page, which registers it.";
  report.add(
    "subscription",
    subscription && !isCurrent ? `${at}, not registered` : at,
    (!saved?.wanted || !isCurrent) && advice,
  );
  return found;
}

/** Whether the worker imports Bellwire's script. The worker may have to start first. */
function answers(worker: ServiceWorker): Promise<boolean> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    const finish = (answer: boolean) => (port1.close(), resolve(answer));
    const callOff = clock.later(WORKER_ANSWERS_MS, () => finish(false));
    port1.onmessage = () => (callOff(), finish(true));
    worker.postMessage(FLUSH, [port2]);
  });
}

function key({ subscription, saved }: Required<Found>, { body }: Answer, report: Report): void {
  const own = subscription && keyOf(subscription, saved);
  const same = own === body?.application_server_key;
  report.add(
    "key",
    same ? "The server's." : `${own}, but the server has ${body?.application_server_key}`,
    !same && "Reload the page twice: it takes over the new key.",
  );
}

/** Requests the server's record and a test, waits for the receipt, and stores the report. Returns the code of the report. */
async function serverSide(
  address: string,
  { id, token }: Saved & { token: string },
  report: Report,
): Promise<string | null> {
  const began = clock.now();
  const answer = await call("POST", `${address}/subscriptions/${id}/diagnoses`, undefined, token, 1);
  const view: ServerSide | undefined = answer.status === 200 ? answer.body : undefined;
  if (!view) {
    report.add("registration", told(answer), adviceOf(answer));
    return null;
  }
  const { state, topics, last_accepted_at: accepted, last_failure: failed } = view.server;
  const failure = failed && `last failure ${failed.at}: ${failed.state} ${failed.status ?? ""}`;
  const seen = [state, `${topics} topics`, `last accepted ${accepted ?? "never"}`, failure].filter(Boolean).join(", ");
  report.add("registration", seen, state !== "active" && "Reload the page, then call subscribe() if this remains.");
  const off = Math.round((began + clock.now()) / 2 - Date.parse(view.created_at));
  report.add("clock", `${off} ms off the server's`, Math.abs(off) > CLOCK_OFF_MAX_MS && "Set this device's clock.");
  const place = `${address}/diagnoses/${view.code}`;
  await roundTrip(place, token, view, report);
  await call("PATCH", place, { checks: report.checks }, token);
  return view.code;
}

async function roundTrip(address: string, token: string, view: ServerSide, report: Report): Promise<void> {
  const began = clock.now();
  if (!view.test) return void report.add("round-trip", "Not made.", "Solve what is named above first.");
  let test = view.test;
  while (!test.displayed_at && clock.now() - began < ROUND_TRIP_MS) {
    await clock.wait(POLL_MS);
    test = (await call("GET", address, undefined, token, 1)).body?.test ?? test;
  }
  const ms = clock.now() - began;
  if (test.displayed_at) return void report.add("round-trip", `Shown and reported after ${ms} ms.`);
  const waits = test.state === "accepted";
  const advice = waits
    ? "The push service has it, but the browser did not show it. Check the system's notification settings and battery saver, restart the browser, or renew the subscription."
    : "The push service has not taken it. Support sees the reason beside the code.";
  report.add(
    "round-trip",
    `Not shown within ${ROUND_TRIP_MS / 1000} s: ${test.state ?? "waits"} ${test.status ?? ""}`,
    advice,
  );
}

const told = ({ status, body }: Answer) =>
  status ? `HTTP ${status}${body?.code ? ` ${body.code}` : ""}` : "no answer";

const adviceOf = ({ status, body }: Answer): string =>
  body?.detail ??
  (status
    ? "Check init's `server`: this is no Bellwire server."
    : "Check the network, the server, and the page's CSP (connect-src).");

/** Replaces the content of the element by the report, in English. */
function render({ code, checks }: Diagnosis, into: Element): void {
  const make = (name: string, text: string, children: Element[] = []) => {
    const made = document.createElement(name);
    made.textContent = text;
    made.append(...children);
    return made;
  };
  const rows = checks.map(({ name, ok, found, advice }) => {
    const row = make("li", "", [
      make("strong", `${!ok ? "✗" : advice ? "ℹ" : "✓"} ${name}`),
      make("span", ` ${found}`),
      ...(advice ? [make("p", advice)] : []),
    ]);
    row.className = ok ? "bellwire-ok" : "bellwire-bad";
    return row;
  });
  const box = make("section", "", [
    make("ul", "", rows),
    ...(code ? [make("p", "Code for support: ", [make("code", code)])] : []),
  ]);
  Object.assign(box, { className: "bellwire-diagnosis", lang: "en", dir: "ltr" });
  into.replaceChildren(box);
}
