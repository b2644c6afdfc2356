/** Appearance of a notification on five platforms, as far as known. Pure. */
import type { Notification } from "../api/types";
import { count } from "./format";

export const PLATFORM_IDS = ["chrome", "firefox", "safari", "android", "ios"] as const;
export type PlatformId = (typeof PLATFORM_IDS)[number];

interface Platform {
  name: string;
  /** Whether the notification's own icon is shown, or that of the site or app. */
  ownIcon: boolean;
  image: boolean;
  badge: boolean;
  /** Maximum number of buttons. */
  buttons: number;
  /** General note. */
  note?: string;
}

export const PLATFORMS: Record<PlatformId, Platform> = {
  chrome: {
    name: "Chrome, computer",
    ownIcon: true,
    image: true,
    badge: false,
    buttons: 2,
    note: "Edge looks the same. On a Mac the system draws the notification, without the image.",
  },
  firefox: {
    name: "Firefox, computer",
    ownIcon: true,
    image: false,
    badge: false,
    buttons: 0,
    note: "The system decides how much text is shown.",
  },
  safari: { name: "Safari, Mac", ownIcon: false, image: false, badge: false, buttons: 0 },
  android: {
    name: "Chrome, Android",
    ownIcon: true,
    image: true,
    badge: true,
    buttons: 2,
    note: "Image and buttons appear when the notification is expanded.",
  },
  ios: {
    name: "iPhone and iPad",
    ownIcon: false,
    image: false,
    badge: false,
    buttons: 0,
    note: "Only for sites on the home screen.",
  },
};

/** Parts of this notification that a platform omits. */
export function leftOut(id: PlatformId, said: Notification): string[] {
  const { ownIcon, image, badge, buttons } = PLATFORMS[id];
  const out: string[] = [];
  if (said.icon && !ownIcon) out.push(id === "ios" ? "the icon (shows the app’s)" : "the icon (shows the site’s)");
  if (said.image && !image) out.push("the image");
  if (said.badge && !badge) out.push("the badge");
  const lacking = Math.max(0, (said.actions?.length ?? 0) - buttons);
  if (lacking > 0) out.push(lacking === 1 ? "the button" : "the buttons");
  if (said.require_interaction && (id === "safari" || id === "ios" || id === "firefox"))
    out.push("the request to stay until dismissed");
  return out;
}

/** Length of a text in characters as people count them. */
export const characters = (text: string): number => [...new Intl.Segmenter("en").segment(text)].length;

/** A text in the preview: its length, and how much of it is visible. */
export interface Visible {
  shown: number;
  of: number;
}

/** Cut texts of a preview: `Title: 48 of 75 characters visible.` Undefined: all is visible. */
export function cutWords(title: Visible, body: Visible): string | undefined {
  const cut = (
    [
      ["Title", title],
      ["Text", body],
    ] as const
  ).filter(([, { shown, of }]) => shown < of);
  return cut.length === 0
    ? undefined
    : cut
        .map(([word, { shown, of }]) => `${word}: about ${count(shown)} of ${count(of)} characters visible.`)
        .join(" ");
}

/** The host that a link leads to, or that a path stands for. */
export function hostOf(url: string | null | undefined, site: string | undefined): string {
  try {
    return new URL(url ?? "/", site).host;
  } catch {
    return "";
  }
}
