import type { Obstacle } from "../api";
import { newsChannel } from "../shared/news";

/** What stands in the way of web push on this page, before anything is tried. */
export function obstacle(): Obstacle | undefined {
  if (typeof document === "undefined") return "no-window";
  if (!isSecureContext) return "insecure";
  if (!("PushManager" in window && "Notification" in window)) {
    const { userAgent, platform, maxTouchPoints } = navigator;
    // An iPad says that it is a Mac; no Mac has a touch screen.
    const handheld = /iP(hone|ad|od)/.test(userAgent) || (platform === "MacIntel" && maxTouchPoints > 1);
    return handheld && !(navigator as { standalone?: boolean }).standalone ? "not-installed" : "unsupported";
  }
  // Firefox hides some of these in private windows, and fails with others where the person has blocked the site's storage.
  try {
    if (!("serviceWorker" in navigator) || !indexedDB) return "private-mode";
    newsChannel().close();
  } catch {
    return "private-mode";
  }
}

/** What went wrong, told to developers. */
export const MESSAGES = {
  "no-window": "There is no page here: call this in the browser.",
  insecure: "Web push needs HTTPS or localhost.",
  unsupported: "This browser has no web push.",
  "private-mode": "This browser keeps nothing for the site: a private window, or storage is blocked.",
  "not-installed": "On iOS 16.4 and later, add the site to the Home Screen first.",
  denied: "Notifications are blocked in the site's settings.",
  dismissed: "The question was closed without an answer.",
  "no-gesture": "Call subscribe() in a click or key handler, before any await.",
  "not-subscribed": "Nobody is subscribed here, and nothing was kept: give it to subscribe().",
};
