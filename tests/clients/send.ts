// Sends a message with a generated client: ADDRESS and KEY are in the environment. Prints its id.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

declare const process: { env: Record<string, string | undefined>; exit(code: number): never };

const client = createClient<paths>({
  baseUrl: process.env.ADDRESS ?? "",
  headers: { Authorization: `Bearer ${process.env.KEY}` },
});
const { data, error } = await client.POST("/v1/apps/{app}/messages", {
  params: { path: { app: "shop" } },
  body: { to: { topic: "news" }, tier: "transactional", content: { title: "Hello" } },
});
if (error) throw new Error(error.detail);
const id: string = "id" in data ? data.id : "";
const shown = await client.GET("/v1/apps/{app}/messages/{message}", { params: { path: { app: "shop", message: id } } });
const targeted: number | undefined = shown.data?.counts?.targeted;
console.log(JSON.stringify({ id, targeted }));
