import { init } from "@bellwire/web";

export const bellwire = init({ app: "shop", server: "https://push.example.com" }); // does nothing where the page is rendered on the server
