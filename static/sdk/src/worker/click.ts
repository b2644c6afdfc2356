import { CLICK, type ClickQuestion } from "../shared/news";
import type { Click } from "../types";
import type { Bellwire, ClickHandler } from "./api";
import { addTags } from "./links";
import { tagsOf } from "./memory";

/** Timeout for responses of pages. Browsers allow a worker to open a window for about a second after a click. */
const ANSWER_MS = 300;
/** Timeout for the database, which hangs in some browsers. The link is then opened without tags. */
const TAGS_MS = 200;

export interface ClickContext {
  worker: ServiceWorkerGlobalScope;
  bellwire: Bellwire;
  handler?: ClickHandler;
  /** Address of the app that sent the message, if it is known. */
  app?: string;
  /** Id of the delivery. */
  id?: string;
}

/**
 * Tags the URL, and runs the site's click handler. Opens the URL if there is no handler, or if it returns a URL or `false`, or
 * fails.
 */
export async function handleClick(context: ClickContext, untagged: Click): Promise<void> {
  let url = await tagged(untagged.url, context.id);
  const click = { ...untagged, url };
  if (context.handler) {
    try {
      const answer = await context.handler(click);
      if (typeof answer === "string") url = resolve(answer, context.worker.registration.scope);
      else if (answer !== false) return;
    } catch (error) {
      console.error(error);
    }
  }
  await go(context, { ...click, url });
}

/**
 * Focuses a tab that shows the URL, or a tab whose page handles clicks itself. Otherwise opens a new tab. Other tabs stay as
 * they are, because people may have typed something there. With `reuseTab`, a tab of this scope is navigated instead.
 */
export async function go({ worker, bellwire, app }: ClickContext, click: Click): Promise<void> {
  const { scope } = worker.registration;
  const { url } = click;
  const windows = [...(await worker.clients.matchAll({ type: "window", includeUncontrolled: true }))];
  const open = () => worker.clients.openWindow(url).catch(() => null);
  const showing = windows.find((client) => client.url === url);
  const own = windows.filter((client) => client.url.startsWith(scope));
  const candidates = [...new Set([...(showing ? [showing] : []), ...own])];
  const sameOrigin = new URL(url).origin === worker.location.origin;
  const router = sameOrigin ? await firstRouter(candidates, { type: CLICK, scope, app }) : undefined;
  // A tab that shows the URL wins over a router in another tab.
  const target = showing ?? router;
  if (target) {
    if (target === router) target.postMessage({ type: CLICK, scope, app, click } satisfies ClickQuestion);
    // A router handles the click even if its tab cannot be focused. A second tab would show the page twice.
    return void (await target.focus().catch(target === router ? () => null : open));
  }
  if (bellwire.reuseTab && own[0] && sameOrigin) {
    try {
      // Navigation first: it needs no permission, while focusing uses up the permission to open a window.
      const moved = await own[0].navigate(url);
      return void (await (moved ?? own[0]).focus());
    } catch {
      // This worker does not control the tab, so it cannot navigate it.
    }
  }
  await open();
}

/** Adds the link tags of the delivery to a URL, if the response to its receipt has arrived. */
async function tagged(url: string, id?: string): Promise<string> {
  if (!id) return url;
  const late = new Promise<undefined>((resolve) => setTimeout(resolve, TAGS_MS));
  const tags = await Promise.race([tagsOf(id), late]);
  return tags ? addTags(url, tags) : url;
}

/** Asks all pages at once. Returns the first, in their order, that has a `click` listener. */
async function firstRouter(pages: readonly WindowClient[], question: ClickQuestion): Promise<WindowClient | undefined> {
  if (!pages.length) return;
  const ports: MessagePort[] = [];
  const answers = pages.map((page) =>
    new Promise<boolean>((resolve) => {
      const { port1, port2 } = new MessageChannel();
      ports.push(port1);
      port1.onmessage = ({ data }) => resolve(data === true);
      setTimeout(() => resolve(false), ANSWER_MS);
      page.postMessage(question, [port2]);
    }).catch(() => false),
  );
  const handles = await Promise.all(answers);
  ports.forEach((port) => port.close());
  return pages[handles.indexOf(true)];
}

/** Resolves a URL against the scope. Returns the scope for anything but http and https. */
export function resolve(url: string, scope: string): string {
  try {
    const target = new URL(url, scope);
    return /^https?:$/.test(target.protocol) ? target.href : scope;
  } catch {
    return scope;
  }
}
