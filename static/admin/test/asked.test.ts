// @vitest-environment happy-dom
import { h, render } from "preact";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { Refusal } from "../src/api/problem";
import { useAsked, type Asked } from "../src/lib/asked";
import { useBegin, type Begun } from "../src/lib/begin";

beforeEach(() => {
  vi.useFakeTimers();
  return () => vi.useRealTimers();
});

/** Answers that the test gives one by one. */
function answers() {
  const all: { about: string; resolve: (value: string) => void; reject: (why: unknown) => void; stop: AbortSignal }[] =
    [];
  const ask = (about: string, stop: AbortSignal) =>
    new Promise<string>((resolve, reject) => all.push({ about, resolve, reject, stop }));
  return { all, ask };
}

/** A component that calls a hook, and what it returned last. */
function using<P, T>(hook: (props: P) => T) {
  const place = document.createElement("div");
  const seen: { last?: T } = {};
  const Use = ({ of }: { of: P }) => {
    seen.last = hook(of);
    return null;
  };
  const show = async (of: P) => {
    render(h(Use, { of }), place);
    await vi.advanceTimersByTimeAsync(50);
  };
  return { seen, show };
}

describe("what the server says of what somebody writes", () => {
  const writing = () => {
    const { all, ask } = answers();
    const { seen, show } = using((question: string | undefined): Asked<string> => useAsked(question, ask));
    return { all, seen, show };
  };
  const rest = () => vi.advanceTimersByTimeAsync(400);

  it("is requested at once, then after a pause", async () => {
    const { all, seen, show } = writing();
    await show("a");
    all[0]!.resolve("A");
    await rest();
    expect(seen.last).toEqual({ shown: "A", isOld: false });
    await show("ab");
    expect([all.length, seen.last]).toEqual([1, { shown: "A", isOld: true }]);
    await show("abc");
    await rest();
    expect(all.map(({ about }) => about)).toEqual(["a", "abc"]);
    await show("abcd");
    expect(all[1]!.stop.aborted).toBe(true);
    all[1]!.resolve("too late");
    await rest();
    all[2]!.resolve("ABCD");
    await rest();
    expect(seen.last).toEqual({ shown: "ABCD", isOld: false });
  });

  it("keeps its response beside a later refusal", async () => {
    const { all, seen, show } = writing();
    await show("a");
    all[0]!.resolve("A");
    await show("b");
    await rest();
    const refused = new Refusal(422, { detail: "no" });
    all[1]!.reject(refused);
    await rest();
    expect(seen.last).toEqual({ shown: "A", problem: refused, isOld: false });
    await show("c");
    await rest();
    all[2]!.resolve("C");
    await rest();
    expect(seen.last).toEqual({ shown: "C", isOld: false });
  });

  it("is not requested without input", async () => {
    const { all, seen, show } = writing();
    await show(undefined);
    await rest();
    expect([all.length, seen.last]).toEqual([0, { isOld: false }]);
  });
});

describe("what somebody begins with", () => {
  it("is requested once and again after saving", async () => {
    const { all, ask } = answers();
    const { seen, show } = using((key: string): Begun<string> => useBegin(key, (stop) => ask(key, stop)));
    await show("k");
    expect([all.length, seen.last?.begun]).toEqual([1, undefined]);
    all[0]!.resolve("one");
    await vi.advanceTimersByTimeAsync(86_400_000);
    await show("k");
    expect([all.length, seen.last?.begun, seen.last?.edition]).toEqual([1, "one", 1]);
    seen.last?.again();
    await vi.advanceTimersByTimeAsync(50);
    expect(seen.last?.begun).toBe("one");
    all[1]!.resolve("two");
    await vi.advanceTimersByTimeAsync(50);
    expect([seen.last?.begun, seen.last?.edition]).toEqual(["two", 2]);
  });

  it("may be tried again where it was refused", async () => {
    const { all, ask } = answers();
    const { seen, show } = using((key: string): Begun<string> => useBegin(key, (stop) => ask(key, stop)));
    await show("k");
    all[0]!.reject(new TypeError("offline"));
    await vi.advanceTimersByTimeAsync(50);
    expect(seen.last?.problem?.status).toBe(0);
    seen.last?.again();
    await vi.advanceTimersByTimeAsync(50);
    all[1]!.resolve("one");
    await vi.advanceTimersByTimeAsync(50);
    expect([seen.last?.begun, seen.last?.problem]).toEqual(["one", undefined]);
  });

  it("never shows the content of another key", async () => {
    const { all, ask } = answers();
    const { seen, show } = using((key: string): Begun<string> => useBegin(key, (stop) => ask(key, stop)));
    await show("shop");
    all[0]!.resolve("of the shop");
    await vi.advanceTimersByTimeAsync(50);
    await show("journal");
    expect([all.length, seen.last?.begun]).toEqual([2, undefined]);
    all[1]!.resolve("of the journal");
    await vi.advanceTimersByTimeAsync(50);
    expect([seen.last?.begun, seen.last?.edition]).toEqual(["of the journal", 2]);
  });
});
