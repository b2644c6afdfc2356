// @vitest-environment happy-dom
import { beforeEach, describe, expect, it, vi } from "vitest";
import { Live } from "../src/api/live";

/** An EventSource whose other end is the test. */
class Source extends EventTarget {
  static all: Source[] = [];
  readonly CLOSED = 2;
  readyState = 0;
  onopen: (() => void) | undefined;
  onerror: (() => void) | undefined;
  constructor(readonly url: string) {
    super();
    Source.all.push(this);
  }
  opens() {
    this.readyState = 1;
    this.onopen?.();
  }
  /** The browser reconnects by itself. */
  breaks() {
    this.readyState = 0;
    this.onerror?.();
  }
  isRefused() {
    this.readyState = 2;
    this.onerror?.();
  }
  tells(kind: string, data = "{}") {
    this.dispatchEvent(new MessageEvent(kind, { data }));
  }
  close() {
    this.readyState = 2;
  }
}

class Page extends EventTarget {
  hidden = false;
  turns(hidden: boolean) {
    this.hidden = hidden;
    this.dispatchEvent(new Event("visibilitychange"));
  }
}

function start() {
  const page = new Page();
  const live = new Live((url) => new Source(url) as unknown as EventSource, page as unknown as Document);
  const [lanes, alerts] = [vi.fn(), vi.fn()];
  live.on(["lane.held", "lane.released"], lanes);
  live.on(["alert.raised"], alerts);
  live.listenTo("/v1/events/stream");
  const source = () => Source.all.at(-1)!;
  const state = () => live.connection.value.state;
  return { page, live, lanes, alerts, source, state };
}

beforeEach(() => {
  vi.useFakeTimers();
  Source.all = [];
  return () => vi.useRealTimers();
});

describe("the live stream", () => {
  it("tells whoever wants that kind", () => {
    const { lanes, alerts, source, state } = start();
    expect(state()).toBe("connecting");
    source().opens();
    source().tells("lane.held");
    expect([state(), lanes.mock.calls.length, alerts.mock.calls.length]).toEqual(["live", 1, 0]);
    source().tells("gap");
    expect([lanes.mock.calls.length, alerts.mock.calls.length]).toEqual([2, 1]);
  });

  it("reports a lasting loss with its time only", () => {
    const { source, state } = start();
    source().opens();
    source().tells("end", '{"reason":"renew"}');
    source().breaks();
    vi.advanceTimersByTime(2_000);
    source().opens();
    vi.advanceTimersByTime(60_000);
    expect(state()).toBe("live");
    source().breaks();
    vi.advanceTimersByTime(6_000);
    expect([state(), Source.all.length]).toEqual(["lost", 1]);
    source().opens();
    expect(state()).toBe("live");
  });

  it("pauses in background tabs and refreshes afterwards", () => {
    const { page, lanes, alerts, source, state } = start();
    source().opens();
    page.turns(true);
    expect([state(), source().readyState]).toEqual(["resting", 2]);
    page.turns(false);
    expect([state(), Source.all.length, lanes.mock.calls.length, alerts.mock.calls.length]).toEqual([
      "connecting",
      2,
      1,
      1,
    ]);
  });

  it("polls each minute while refused and retries", () => {
    const { lanes, source, state } = start();
    source().isRefused();
    expect([state(), lanes.mock.calls.length]).toEqual(["off", 1]);
    vi.advanceTimersByTime(30_000);
    expect([state(), Source.all.length]).toEqual(["connecting", 2]);
    source().opens();
    source().tells("end", '{"reason":"key_revoked"}');
    expect([state(), source().readyState]).toEqual(["off", 2]);
  });

  it("changes over to another stream, and to none", () => {
    const { live, source, state } = start();
    const first = source();
    live.listenTo("/v1/apps/app_1/events/stream");
    expect([first.readyState, source().url]).toEqual([2, "/v1/apps/app_1/events/stream"]);
    live.listenTo(null);
    expect([state(), source().readyState]).toEqual(["off", 2]);
    vi.advanceTimersByTime(60_000);
    expect(Source.all.length).toBe(2);
  });
});
