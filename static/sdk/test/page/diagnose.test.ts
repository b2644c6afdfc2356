// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Diagnosis } from "../../src/api";
import { ORIGIN } from "../shared/server";
import { Browser } from "./support";

let browser: Browser;
/** Whether the worker has our line. */
let answers: boolean;

beforeEach(() => {
  browser = new Browser();
  browser.permission = "granted";
  answers = true;
  document.head.innerHTML = '<link rel="manifest" href="/app.webmanifest">';
});
afterEach(() => vi.useRealTimers());

const MANIFEST = {
  id: "/",
  name: "Shop",
  display: "standalone",
  start_url: "/",
  icons: [{ src: "/icon.png", sizes: "192x192" }],
};

/** Lets the active worker answer like one with our line. */
function answer() {
  const { active } = browser.registration!;
  active!.postMessage = ((_: unknown, ports: MessagePort[] = []) => answers && ports[0]?.postMessage(true)) as never;
}

describe("a worker without our line", () => {
  const line = `lacks importScripts("${ORIGIN}/sdk/service-worker.js")`;
  const subscribe = async (waiting: unknown = null) => {
    const warned = vi.spyOn(console, "warn").mockImplementation(() => {});
    const client = await browser.visit();
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    browser.container.register.mockImplementationOnce(async (url, { scope }) => {
      const { FakeRegistration } = await import("../shared/browser");
      browser.registration = new FakeRegistration(scope, url);
      answer();
      return Object.assign(browser.registration, { waiting });
    });
    const result = await client.subscribe();
    expect(result.ok).toBe(true);
    await new Promise((resolve) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = resolve; // comes after the worker's answer
      port2.postMessage(0);
    });
    await vi.advanceTimersByTimeAsync(5_000);
    return { warned, client };
  };

  it("is reported once on the console", async () => {
    answers = false;
    const { warned, client } = await subscribe();
    expect(warned.mock.calls.flat()).toEqual([expect.stringContaining(line)]);
    expect(warned.mock.calls[0]![0]).toContain("/service-worker.js?app=shop");
    await client.subscribe();
    await vi.advanceTimersByTimeAsync(5_000);
    expect(warned).toHaveBeenCalledTimes(1);
  });

  it("is not reported if the worker responds", async () => {
    expect((await subscribe()).warned).not.toHaveBeenCalled();
    browser = new Browser();
    browser.permission = "granted";
    answers = false;
    vi.useRealTimers();
    expect((await subscribe({ state: "installed" })).warned).not.toHaveBeenCalled();
  });

  it("is not reported where nobody is subscribed", async () => {
    const { FakeRegistration } = await import("../shared/browser");
    browser.registration = new FakeRegistration("https://shop.example/", "https://shop.example/service-worker.js");
    const asked = vi.mocked(browser.registration.active!.postMessage);
    await browser.visit();
    expect(asked.mock.calls).toEqual([["bellwire:flush"]]);
  });
});

/** Response of the server about diagnoses. */
interface Diagnoses {
  state?: string;
  displayedAfter?: number;
  createdAt?: number;
  status?: number;
}

function serve({ state = "active", displayedAfter = 2, createdAt = browser.now, status = 200 }: Diagnoses = {}) {
  const reports: unknown[] = [];
  let looks = 0;
  const { fetch } = browser.server;
  vi.stubGlobal("fetch", async (url: string, init?: RequestInit) =>
    url.endsWith("/app.webmanifest") ? Response.json(MANIFEST) : fetch(url, init),
  );
  const test = (displayed: boolean) =>
    state === "active"
      ? { message: "msg_1", state: "accepted", status: 201, displayed_at: displayed ? "2030-01-01T00:00:00Z" : null }
      : null;
  browser.server.instead = ({ method, path, body }) => {
    if (!path.includes("/diagnoses")) return;
    if (status !== 200) return Response.json({ code: "rate_limited", detail: "Try again in 60 s." }, { status });
    if (method === "PATCH") return (reports.push(body), new Response(null, { status: 204 }));
    const server = {
      state,
      topics: 1,
      last_accepted_at: null,
      last_failure: { at: "then", state: "dead", status: 400 },
    };
    return Response.json({
      code: "ABCDEFGH",
      created_at: new Date(createdAt).toISOString(),
      server,
      test: test(++looks > displayedAfter),
    });
  };
  return reports;
}

const found = ({ checks }: Diagnosis) => Object.fromEntries(checks.map(({ name, ok }) => [name, ok]));
const ALL = [
  "support",
  "permission",
  "worker",
  "line",
  "subscription",
  "manifest",
  "server",
  "key",
  "registration",
  "clock",
  "round-trip",
];

describe("diagnose", () => {
  const subscribed = async () => {
    const client = await browser.visit();
    expect(await client.subscribe()).toMatchObject({ ok: true });
    answer();
    return client;
  };

  it("stores a passing report and shows its code", async () => {
    const client = await subscribed();
    const reports = serve();
    const into = document.createElement("div");
    const diagnosis = await client.diagnose({ into });
    expect(found(diagnosis)).toEqual(Object.fromEntries(ALL.map((name) => [name, true])));
    expect(diagnosis.checks.every(({ advice }) => advice === null)).toBe(true);
    expect(diagnosis.code).toBe("ABCDEFGH");
    expect(reports).toEqual([{ checks: diagnosis.checks }]);
    expect(into.querySelector("code")!.textContent).toBe("ABCDEFGH");
    expect(into.querySelectorAll("li.bellwire-ok")).toHaveLength(ALL.length);
    expect(into.querySelector("section")!.getAttribute("lang")).toBe("en");
  });

  it.each<[string, () => unknown, string, string]>([
    ["a denied permission", () => (browser.permission = "denied"), "permission", "settings"],
    ["a subscription that the browser dropped", () => (browser.push.subscription = null), "subscription", "Reload"],
    ["another key", () => (browser.server.keyNumber = 1), "key", "Reload"],
    ["an origin that is not let in", () => (browser.server.pageOrigin = "http://shop.example"), "server", ""],
    ["a clock that is off", () => serve({ createdAt: browser.now + 3_600_000 }), "clock", "clock"],
    ["an end at the server", () => serve({ state: "unsubscribed" }), "registration", "subscribe()"],
    ["too many diagnoses", () => serve({ status: 429 }), "registration", "Try again in 60 s."],
  ])("names %s", async (_, wreck, name, advice) => {
    const client = await subscribed();
    serve();
    wreck();
    const { checks } = await client.diagnose();
    expect(checks.find((check) => check.name === name)).toMatchObject({
      ok: false,
      advice: expect.stringContaining(advice),
    });
  });

  it("aborts an invisible test after ten seconds", async () => {
    const client = await subscribed();
    const { clock } = await import("../../src/shared/clock");
    clock.wait = async (ms) => void (browser.now += ms);
    const reports = serve({ displayedAfter: Infinity });
    const diagnosis = await client.diagnose();
    expect(diagnosis.checks.at(-1)).toMatchObject({
      name: "round-trip",
      ok: false,
      found: "Not shown within 10 s: accepted 201",
    });
    expect(reports).toHaveLength(1);
  });

  it("has advice but no code without a subscription", async () => {
    const client = await browser.visit();
    const diagnosis = await client.diagnose();
    expect(diagnosis.code).toBeNull();
    expect(found(diagnosis)).toEqual({
      support: true,
      permission: true,
      worker: false,
      manifest: true,
      server: true,
      registration: false,
    });
  });

  it("reports an unreachable server and never rejects", async () => {
    const client = await subscribed();
    browser.server.online = false;
    const diagnosis = await client.diagnose();
    expect(found(diagnosis)).toMatchObject({ subscription: true, server: false, registration: false });
    const broken = await browser.visit({ app: "" });
    expect(found(await broken.diagnose())).toEqual({ support: false });
  });

  it.each([
    ["standalone", true],
    ["browser", false],
    [undefined, false],
  ])("checks the manifest first on iPhones: display %s", async (display, ok) => {
    Reflect.deleteProperty(globalThis, "PushManager");
    browser.define("userAgent", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X)");
    const asked = vi.fn(async (_url: string) => Response.json({ ...MANIFEST, display }));
    vi.stubGlobal("fetch", asked);
    const { code, checks } = await (await browser.visit()).diagnose();
    expect([code, found({ code, checks })]).toEqual([null, { manifest: ok, support: false }]);
    expect(checks[0]).toMatchObject({ name: "manifest", advice: ok ? null : expect.stringContaining('"standalone"') });
    expect(asked.mock.calls.filter(([url]) => url === "https://shop.example/app.webmanifest")).toHaveLength(1);
    browser.define("userAgent", "Test");
  });

  it("does not await the page's registration on iPhones", async () => {
    Reflect.deleteProperty(globalThis, "PushManager");
    browser.define("userAgent", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X)");
    vi.stubGlobal("fetch", async () => Response.json({ ...MANIFEST, id: undefined }));
    const registration = new Promise<never>(() => {});
    const { checks } = await (await browser.visit({ serviceWorker: { registration } })).diagnose();
    expect(checks[0]).toMatchObject({ name: "manifest", ok: true, advice: expect.stringContaining('"id"') });
    browser.define("userAgent", "Test");
  });

  it("passes without a manifest in other browsers", async () => {
    document.head.innerHTML = "";
    const client = await subscribed();
    serve();
    const into = document.createElement("div");
    const { checks } = await client.diagnose({ into });
    const check = checks.find(({ name }) => name === "manifest")!;
    expect(check).toMatchObject({ ok: true, found: "No link.", advice: expect.stringContaining("iPhones and iPads") });
    const row = [...into.querySelectorAll("li.bellwire-ok")].find((row) => row.textContent!.includes("manifest"))!;
    expect([row.querySelector("strong")!.textContent, row.querySelector("p")!.textContent]).toEqual([
      "ℹ manifest",
      check.advice,
    ]);
  });

  it.each([
    ["finds the element of a selector", "#help", 1, 0],
    ["reports a selector without element", "#hepl", 0, 1],
    ["reports an invalid selector", "##", 0, 1],
  ])("%s", async (_, into, shown, warnings) => {
    const warned = vi.spyOn(console, "warn").mockImplementation(() => {});
    document.body.innerHTML = '<div id="help"></div>';
    const { checks } = await (await browser.visit()).diagnose({ into });
    expect(checks.length).toBeGreaterThan(0);
    expect(document.querySelectorAll("#help .bellwire-diagnosis")).toHaveLength(shown);
    expect(warned.mock.calls.filter(([text]) => text.includes(`"${into}"`))).toHaveLength(warnings);
    document.body.innerHTML = "";
  });

  it("names options that init ignores", async () => {
    const client = await browser.visit({ serviceworker: {} } as never);
    const { checks } = await client.diagnose();
    expect(checks[0]).toMatchObject({ ok: true, found: expect.stringContaining("; init ignores serviceworker") });
  });

  it("shortens texts to one line", async () => {
    const client = await subscribed();
    serve();
    browser.registration!.active!.scriptURL = `https://shop.example/${"x".repeat(5_000)}\n\u0007`;
    const { checks } = await client.diagnose();
    for (const { found, advice } of checks) expect(`${found}${advice ?? ""}`).toMatch(/^[^\n\u0007]{1,1000}$/);
  });
});
