import type { Details, Failure, Result, Status } from "../api";
import { base } from "../shared/saved";
import type { Kit } from "./kit";
import type { Layout } from "./settings";

/** Maximum length of a path that the server accepts. */
const PAGE_MAX = 200;

/** Parts of a path that may identify a person or a thing. The server has the same rule. */
const VARIABLE_PARTS = /[^/]{25,}|[^/]*[^a-z._~/-][^/]*/gi;

/** Step on the way from a prompt to a subscription, as the server counts it. */
export type Step = "shown" | "guided" | "accepted" | "later" | "no" | "asked" | "granted" | "denied" | "dismissed";

/** Form of the question, its variant if there are several, and its page. */
export interface Question {
  layout: Layout | "preferences";
  variant?: string;
  page: string;
}

/** Page of an element: the name in its attribute `page`, or the path. Nothing that may identify a visitor leaves the browser. */
export const pageOf = (element: Element): string =>
  (element.getAttribute("page") ?? location.pathname)
    .replace(/^\/?/, "/")
    .replace(VARIABLE_PARTS, "*")
    .slice(0, PAGE_MAX);

/** Reports steps for the app's statistics, with nothing that identifies the browser. A report that fails is lost. */
export function reportSteps({ client, reports }: Kit, question: Question, steps: Step[], subscription?: string): void {
  if (!reports) return;
  fetch(`${base(client.options)}/prompt/steps`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ steps, ...question, subscription }),
    credentials: "omit",
    referrerPolicy: "origin",
    keepalive: true, // a click may leave the page
  }).catch(() => {});
}

/** Subscribes in the click on yes, and reports the steps that follow from it. */
export async function accept(kit: Kit, details: Details, question: Question): Promise<Result> {
  kit.memory.save({ asked: question });
  const asked = kit.client.subscribe(details); // before any `await`, because browsers ask only in the click
  const isAsked = globalThis.Notification?.permission === "default";
  reportSteps(kit, question, isAsked ? ["accepted", "asked"] : ["accepted"]);
  const result = await asked;
  const { reason } = result as Partial<Failure>;
  if (reason === "denied" || reason === "dismissed") reportSteps(kit, question, [reason]);
  conclude(kit, result.status);
  return result;
}

/** Reports `granted` for a question that was answered with yes, on this page or an earlier one, once its subscription is complete. */
export function conclude(kit: Kit, status: Status): void {
  const { asked } = kit.memory.load();
  if (!asked || status.state === "pending") return;
  kit.memory.save({ asked: null });
  if (status.state === "subscribed") reportSteps(kit, asked, ["granted"], status.id);
}
