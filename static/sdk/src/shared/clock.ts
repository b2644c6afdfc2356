/** Time, in one place for tests to replace. Milliseconds. */
export const clock = {
  now: () => Date.now(),
  wait: (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms)),
  jitter: () => 0.5 + Math.random(),
};
