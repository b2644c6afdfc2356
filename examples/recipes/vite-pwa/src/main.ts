import { registerSW } from "virtual:pwa-register";
import { init } from "@bellwire/web";

const bellwire = init({ app: "shop", server: "https://push.example.com", serviceWorker: { url: "/sw.js" } });
bellwire.on("change", ({ state }) => (document.querySelector("#status")!.textContent = state));
document.querySelector("#subscribe")!.addEventListener("click", () => bellwire.subscribe({ topics: ["news"] }));
registerSW();
