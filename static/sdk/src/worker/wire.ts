import type { RawPush, Shown } from "./api";

/** Bellwire's part of a push. */
export interface Stamp {
  id: string;
  receipt: string;
  retried: number;
  /** Id of the delivery whose notification this push removes. */
  withdraws?: string;
  /** Id of the delivery whose notification this push replaces by new content. */
  updates?: string;
}

/** Content of `data.bellwire` in a notification. */
export interface Ours extends Partial<Stamp> {
  url: string;
  /** Address of the app that sent the message, if it is known. */
  app?: string;
  actions: Record<string, string>;
}

export interface Push {
  stamp?: Stamp;
  /** Notification from the push itself. */
  shown?: Shown;
  /** Payload for the site's own handler. */
  raw?: RawPush;
  /** Number for the app's icon; 0 removes it. */
  badge?: number;
}

/** The proposed notification of a declarative push, in browsers that read it before the worker does. */
export interface Proposed extends Shown {
  navigate?: string;
}

type Json = Record<string, unknown>;

const BODY_MAX = 200;

/** Reads a push. Never fails: an unknown format yields no notification. */
export function readPush(octets: ArrayBuffer | undefined, proposed?: Proposed | null, proposedBadge?: unknown): Push {
  if (!octets?.byteLength) {
    if (!proposed?.title) return {};
    return {
      stamp: stampOf(proposed.data),
      shown: toShown(proposed as unknown as Json),
      badge: toCount(proposedBadge),
    };
  }
  const text = decode(octets);
  const json = text === undefined ? undefined : parse(text);
  if (json?.web_push === 8030 && isObject(json.notification) && isText(json.notification.title)) {
    const { notification } = json;
    const badge = toCount(json.app_badge ?? notification.app_badge);
    return { stamp: stampOf(notification.data), shown: toShown(notification), badge };
  }
  const stamp = stampOf(json);
  const payload = stamp && json ? unwrap(json.payload) : (text ?? new Uint8Array(octets));
  return { stamp, raw: { id: stamp?.id, retried: stamp?.retried ?? 0, payload }, shown: guess(payload) };
}

/** Returns the notification of a raw payload without a handler: plain text, or JSON with a title. Other payloads have none. */
function guess(payload: string | Uint8Array): Shown | undefined {
  if (typeof payload !== "string") return;
  const json = parse(payload);
  if (json) return isText(json.title) ? toShown(json) : undefined;
  const text = payload.trim();
  if (!text || /^[[{]/.test(text)) return;
  return { title: "", body: text.length > BODY_MAX ? `${text.slice(0, BODY_MAX - 1)}…` : text };
}

function toShown(json: Json): Shown {
  const text = (name: string) => (isText(json[name]) ? (json[name] as string) : undefined);
  const flag = (name: string) => (json[name] === true ? true : undefined);
  const actions = Array.isArray(json.actions) ? json.actions.filter((a) => isText(a?.action) && isText(a?.title)) : [];
  const { dir } = json;
  return {
    title: json.title as string,
    url: text("navigate") ?? text("url"),
    body: text("body"),
    icon: text("icon"),
    badge: text("badge"),
    image: text("image"),
    tag: text("tag"),
    lang: text("lang"),
    dir: dir === "ltr" || dir === "rtl" ? dir : undefined,
    silent: flag("silent"),
    requireInteraction: flag("requireInteraction"),
    // Browsers refuse the whole notification if these can have no effect.
    renotify: text("tag") ? flag("renotify") : undefined,
    vibrate: json.silent === true ? undefined : toVibration(json.vibrate),
    timestamp: toCount(json.timestamp),
    actions: actions.map(({ action, title, icon, navigate, url }) => ({
      action,
      title,
      icon,
      navigate: navigate ?? url,
    })),
    data: isObject(json.data) ? json.data : undefined,
  } as Shown;
}

function stampOf(holder: unknown): Stamp | undefined {
  const stamp = isObject(holder) ? holder.bellwire : undefined;
  if (!isObject(stamp) || !isText(stamp.id) || !isText(stamp.receipt)) return;
  const { id, receipt, withdraws, updates } = stamp;
  const replaced = isText(withdraws) ? { withdraws } : isText(updates) ? { updates } : {};
  return { id, receipt, retried: Number(stamp.retried) || 0, ...replaced };
}

function unwrap(payload: unknown): string | Uint8Array {
  if (!isObject(payload)) return typeof payload === "string" ? payload : "";
  try {
    const base64 = String(payload.base64).replace(/-/g, "+").replace(/_/g, "/");
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return "";
  }
}

function toVibration(value: unknown): number[] | undefined {
  const parts = [value].flat();
  return value !== undefined && parts.every((part) => Number.isSafeInteger(part) && (part as number) >= 0)
    ? (parts as number[])
    : undefined;
}

function toCount(value: unknown): number | undefined {
  const number = typeof value === "string" && value ? Number(value) : value;
  return Number.isSafeInteger(number) && (number as number) >= 0 ? (number as number) : undefined;
}

function decode(octets: ArrayBuffer): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(octets);
  } catch {
    return undefined;
  }
}

function parse(text: string): Json | undefined {
  try {
    const json: unknown = JSON.parse(text);
    return isObject(json) ? json : undefined;
  } catch {
    return undefined;
  }
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";
export const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);
