/** Time, in one place for tests to replace. Milliseconds. */
export const clock = {
  now: () => Date.now(),
  wait: (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms)),
  /** Runs `work` later; returns what calls it off. */
  later: (ms: number, work: () => void) => {
    const timer = setTimeout(work, ms);
    return () => clearTimeout(timer);
  },
  jitter: () => 0.5 + Math.random(),
};
