import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["test/**/*.test.{ts,mjs}"], maxWorkers: 2, restoreMocks: true, unstubGlobals: true },
});
