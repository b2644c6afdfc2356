/** Size of a notification in a push: the same arithmetic as the server, with the same test cases. Pure. */
import type { Notification } from "../api/types";

/** Most bytes of content in one push, without the server's envelope. */
export const CONTENT_MAX = 3_833;
/** Lower limit of some push services: the server tries this size first, with its own envelope. */
export const SHRUNK_FROM = 2_744 - 160;

const absolute = (url: string | null | undefined, site: string | undefined): string | undefined =>
  site && url?.startsWith("/") ? site + url : (url ?? undefined);

/** Size of the content as sent, in bytes. `site` is the first origin of the app; it completes paths. */
export function octets(said: Notification, site: string | undefined): number {
  const navigate = absolute(said.url ?? "/", site);
  const actions = said.actions?.map(({ action, title, url, icon }) => ({
    action,
    title,
    icon: absolute(icon, site),
    navigate: absolute(url, site) ?? navigate,
  }));
  const sent = {
    web_push: 8030,
    mutable: true,
    app_badge: said.app_badge ?? undefined,
    notification: {
      title: said.title,
      navigate,
      mutable: true,
      body: said.body ?? undefined,
      icon: absolute(said.icon, site),
      image: absolute(said.image, site),
      badge: absolute(said.badge, site),
      tag: said.tag ?? undefined,
      dir: said.dir ?? undefined,
      lang: said.lang ?? undefined,
      requireInteraction: said.require_interaction || undefined,
      renotify: (said.tag && said.renotify) || undefined,
      vibrate: !said.silent && said.vibrate?.length ? said.vibrate : undefined,
      timestamp: said.timestamp ?? undefined,
      silent: said.silent || undefined,
      app_badge: said.app_badge?.toString(),
      actions: actions?.length ? actions : undefined,
      data: said.data && Object.keys(said.data).length > 0 ? said.data : undefined,
    },
  };
  return new TextEncoder().encode(JSON.stringify(sent)).length;
}

/** Used share, as text. */
export function meterWords(used: number): { tone: "accepted" | "retrying" | "lost"; words: string } {
  if (used > CONTENT_MAX)
    return { tone: "lost", words: "Too large: push services accept no more. Shorten the text or the links." };
  if (used > SHRUNK_FROM) {
    return {
      tone: "retrying",
      words:
        "Firefox on Android may accept less. If so, Bellwire leaves out the image, then the buttons, then shortens the text.",
    };
  }
  return { tone: "accepted", words: "Fits all browsers." };
}
