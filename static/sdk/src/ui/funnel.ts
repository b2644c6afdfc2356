import type { Client, Details, Result } from "../api";
import { base } from "../shared/saved";
import type { Layout } from "./settings";

/** Maximum length of a path that the server accepts. */
const PAGE_MAX = 200;

/** Step on the way from a prompt to a subscription, as the server counts it. */
export type Step = "shown" | "guided" | "accepted" | "later" | "no" | "asked" | "granted" | "denied" | "dismissed";

/** Form of the question, and its variant if there are several. */
export interface Question {
  layout: Layout | "preferences";
  variant?: string;
}

/** Reports steps for the app's statistics, with nothing that identifies the browser. A report that fails is lost. */
export function reportSteps({ options }: Client, question: Question, steps: Step[], subscription?: string): void {
  const page = location.pathname.slice(0, PAGE_MAX);
  fetch(`${base(options)}/prompt/steps`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ steps, ...question, page, subscription }),
    credentials: "omit",
    referrerPolicy: "origin",
    keepalive: true, // a click may leave the page
  }).catch(() => {});
}

/** Subscribes in the click on yes, and reports the steps that follow from it. */
export async function accept(client: Client, details: Details, question: Question): Promise<Result> {
  const { permission } = Notification;
  const asked = client.subscribe(details); // before any `await`, because browsers ask only in the click
  reportSteps(client, question, permission === "default" ? ["accepted", "asked"] : ["accepted"]);
  const result = await asked;
  if (!result.ok) {
    if (result.reason === "denied" || result.reason === "dismissed") reportSteps(client, question, [result.reason]);
  } else if (result.status.state === "subscribed") reportSteps(client, question, ["granted"], result.status.id);
  return result;
}
