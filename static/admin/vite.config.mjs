import { defineConfig } from "vitest/config";

// Where `npm run dev` finds a server: `bellwire serve` on this machine.
const server = process.env.BELLWIRE_SERVER ?? "http://localhost:8787";

export default defineConfig({
  base: "/admin/",
  build: {
    target: "es2023",
    // Nothing is inlined: the page's policy lets in files of this server only.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // Small parts of most pages are one file: each alone takes a request, and compresses badly.
    rolldownOptions: {
      output: {
        codeSplitting: { groups: [{ name: "ui", test: /\/(?:shared\/tokens|src\/styles|src\/ui\/(?!chart|zoom))/ }] },
      },
    },
  },
  server: { proxy: { "/v1": server } },
  test: {
    include: ["test/**/*.test.{ts,mjs}"],
    maxWorkers: 2,
    restoreMocks: true,
    unstubEnvs: true,
    unstubGlobals: true,
  },
});
