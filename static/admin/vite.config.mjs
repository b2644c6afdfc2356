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
    // Each small file takes a request and compresses badly: the shell and small parts of most pages are one file, and so is what pages
    // of messages and campaigns share.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            {
              name: "ui",
              test: /\/(?:shared\/tokens|src\/(?:styles|ui\/(?!chart|zoom)|shell\/(?!search-load)|session|lib\/begin|pages\/composer\/fields))/,
            },
            { name: "sending", test: /\/src\/lib\/(?:campaigns|messages|figures|trigger)\./, minShareCount: 2 },
          ],
        },
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
