/** Clock in milliseconds. Tests replace it. */
export const clock = {
  now: () => Date.now(),
  wait: (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms)),
  /** Runs `work` later. Returns a function that cancels it. */
  later: (ms: number, work: () => void) => {
    const timer = setTimeout(work, ms);
    return () => clearTimeout(timer);
  },
  jitter: () => 0.5 + Math.random(),
};
