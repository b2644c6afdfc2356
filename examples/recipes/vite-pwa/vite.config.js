import { VitePWA } from "vite-plugin-pwa";

export default {
  plugins: [
    VitePWA({ strategies: "injectManifest", srcDir: "src", filename: "sw.ts", injectRegister: false, manifest: { name: "Shop", short_name: "Shop" } }),
  ],
};
