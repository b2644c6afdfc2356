// @vitest-environment happy-dom
import { beforeEach, describe, expect, it, vi } from "vitest";
import { Refusal } from "../src/api/problem";
import { forgetFigures, Resource } from "../src/lib/resource";

beforeEach(() => {
  vi.useFakeTimers();
  forgetFigures();
  return () => vi.useRealTimers();
});

/** Answers that the test gives one by one. */
function asked() {
  const answers: { resolve: (value: string) => void; reject: (why: unknown) => void; stop: AbortSignal }[] = [];
  const load = (stop: AbortSignal) => new Promise<string>((resolve, reject) => answers.push({ resolve, reject, stop }));
  return { answers, load };
}
const settle = () => vi.advanceTimersByTimeAsync(0);

describe("figures", () => {
  it("are refreshed and kept until then", async () => {
    const { answers, load } = asked();
    const resource = new Resource("k", load, 60);
    void resource.refresh();
    expect([resource.isLoading.value, resource.known.value]).toEqual([true, undefined]);
    answers[0]!.resolve("one");
    await settle();
    expect([resource.isLoading.value, resource.known.value?.value]).toEqual([false, "one"]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect([answers.length, resource.known.value?.value]).toEqual([2, "one"]);
    resource.close();
    expect(new Resource("k", load).known.value?.value).toBe("one");
  });

  it.each([
    ["every few seconds", 15, 150],
    ["every minute", 60, 150],
    ["every hour", 3_600, 9_000],
  ])("refreshed %s are outdated after two misses", async (_, everyS, oldAfterS) => {
    const { answers, load } = asked();
    const resource = new Resource("k", load, everyS);
    expect(resource.isOld(new Date())).toBe(false);
    void resource.refresh();
    answers[0]!.resolve("one");
    await settle();
    const after = (seconds: number) => resource.isOld(new Date(Date.now() + seconds * 1_000));
    expect([after(oldAfterS), after(oldAfterS + 1)]).toEqual([false, true]);
  });

  it("belong to the last request", async () => {
    const { answers, load } = asked();
    const resource = new Resource("k", load);
    void resource.refresh();
    void resource.refresh();
    expect(answers[0]!.stop.aborted).toBe(true);
    answers[1]!.resolve("new");
    await settle();
    answers[0]!.resolve("old");
    await settle();
    expect([resource.known.value?.value, resource.isLoading.value]).toEqual(["new", false]);
  });

  it("stay with the reason of a failure", async () => {
    const { answers, load } = asked();
    const resource = new Resource("k", load, 60);
    void resource.refresh();
    answers[0]!.resolve("one");
    await settle();
    void resource.refresh();
    answers[1]!.reject(new Refusal(503, { detail: "Too busy." }, new Headers({ "retry-after": "5" })));
    await settle();
    expect([resource.known.value?.value, resource.problem.value?.message]).toEqual(["one", "Too busy."]);
    await vi.advanceTimersByTimeAsync(5_000);
    answers[2]!.resolve("two");
    await settle();
    expect([resource.known.value?.value, resource.problem.value]).toEqual(["two", undefined]);
  });

  it("are asked for once for many events", async () => {
    const { answers, load } = asked();
    const resource = new Resource("k", load);
    void resource.refresh();
    answers[0]!.resolve("one");
    await settle();
    for (let n = 0; n < 50; n++) resource.soon();
    await vi.advanceTimersByTimeAsync(2_000);
    expect(answers.length).toBe(2);
  });

  it("are not asked for once they are closed", async () => {
    const { answers, load } = asked();
    const resource = new Resource("k", load, 1);
    void resource.refresh();
    answers[0]!.resolve("one");
    await settle();
    resource.close();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(answers.length).toBe(1);
  });
});
