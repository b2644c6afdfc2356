import type { Obstacle } from "../api";
import { newsChannel } from "../shared/news";

/** Returns the obstacle to web push on this page, before any attempt. */
export function obstacle(): Obstacle | undefined {
  if (typeof document === "undefined") return "no-window";
  if (!isSecureContext) return "insecure";
  if (!("PushManager" in window && "Notification" in window)) {
    const { userAgent, platform, maxTouchPoints } = navigator;
    // An iPad identifies as a Mac, but no Mac has a touch screen.
    const handheld = /iP(hone|ad|od)/.test(userAgent) || (platform === "MacIntel" && maxTouchPoints > 1);
    return handheld && !(navigator as { standalone?: boolean }).standalone ? "not-installed" : "unsupported";
  }
  // Firefox hides some of these interfaces in private windows. Others fail if the person blocked the site's storage.
  try {
    if (!("serviceWorker" in navigator) || !indexedDB) return "private-mode";
    newsChannel().close();
  } catch {
    return "private-mode";
  }
}

/** Text of an error, for developers. */
export const MESSAGES = {
  "no-window": "Call this in a browser.",
  insecure: "Web push needs HTTPS or localhost.",
  unsupported: "No web push in this browser.",
  "private-mode": "A private window, or storage is blocked.",
  "not-installed": "Add the site to the Home Screen (iOS 16.4).",
  denied: "Blocked: allow it in the site's settings.",
  dismissed: "Closed without an answer.",
  "no-gesture": "Call subscribe() in a click handler, before any await.",
  "not-subscribed": "Not subscribed: call subscribe() first.",
};
