/** A message that is being written, and what it is as a request. Pure. */
import type { MessageRequest, Notification, SunsetRule, Tier } from "../api/types";
import { count } from "./format";

export const AUDIENCES = ["all", "topic", "segment", "users", "subscriptions"] as const;
export type AudienceKind = (typeof AUDIENCES)[number];

/** All of it as it was written: texts, some of them empty. */
export interface Draft {
  audience: AudienceKind;
  topic: string;
  /** Name of a stored segment. */
  segment: string;
  /** Ids, separated by commas or line ends. */
  users: string;
  subscriptions: string;
  /** Whether the draft has its own text or uses a stored template. */
  says: "text" | "template";
  /** The name of that template. */
  template: string;
  /** Template data: a JSON object; empty: no data. */
  data: string;
  title: string;
  body: string;
  url: string;
  icon: string;
  image: string;
  badge: string;
  tag: string;
  actions: readonly Button[];
  requireInteraction: boolean;
  silent: boolean;
  /** Members without a field in the form, copied from another message. */
  more: Partial<Pick<Notification, (typeof UNWRITTEN)[number]>>;
  tier: Tier;
  /** In seconds; empty: the tier's. */
  ttl: string;
  /** Empty: the tier's. */
  urgency: string;
  collapseKey: string;
  /** The name of a policy; empty: what tier and topic have. */
  policy: string;
  /** Sunset rule: subscribers who were shown this number of messages without a click, for a period such as `60d`. Empty: any. */
  unclicked: string;
  unclickedFor: string;
  /** Period in which new subscribers are not judged; empty: 30 days. */
  welcome: string;
  isLater: boolean;
  /** Send time in `timezone`, in the format of `<input type="datetime-local">`. */
  sendAt: string;
  /** Time zone of the send time; empty: UTC. */
  timezone: string;
}

export interface Button {
  title: string;
  url: string;
  /** Existing name of a button: a copied message keeps the names, by which receipts distinguish clicks. */
  name?: string;
  /** Icon of the button, which only programs set. */
  icon?: string;
}

/** Members of a notification that only programs write. */
const UNWRITTEN = ["lang", "dir", "app_badge", "data", "data_optional", "renotify", "timestamp", "vibrate"] as const;

/** Buttons that can be written: as many as any browser shows. */
export const BUTTONS_MAX = 2;

export const BLANK: Draft = {
  audience: "all",
  topic: "",
  segment: "",
  users: "",
  subscriptions: "",
  says: "text",
  template: "",
  data: "",
  title: "",
  body: "",
  url: "",
  icon: "",
  image: "",
  badge: "",
  tag: "",
  actions: [],
  requireInteraction: false,
  silent: false,
  more: {},
  tier: "promotional",
  ttl: "",
  urgency: "",
  collapseKey: "",
  policy: "",
  unclicked: "",
  unclickedFor: "",
  welcome: "",
  isLater: false,
  sendAt: "",
  timezone: "",
};

const UNIMPORTANT = { audience: "", topic: "", segment: "", timezone: "" };
/** Whether the draft has no content or options worth keeping. */
export const isBlank = (draft: Draft): boolean =>
  JSON.stringify({ ...draft, ...UNIMPORTANT }) === JSON.stringify({ ...BLANK, ...UNIMPORTANT });

/** Ids as they were listed, each once. */
export const listed = (text: string): string[] =>
  [...new Set(text.split(/[,\n]/).map((id) => id.trim()))].filter(Boolean);

/** Omits empty members. */
const orNone = (text: string): string | undefined => text.trim() || undefined;

/** Name of a button, by which receipts distinguish clicks: unique, derived from its text. */
function names(buttons: readonly Button[]): string[] {
  const taken = new Set(buttons.flatMap(({ name }) => name ?? []));
  return buttons.map(({ title, name: given }, n) => {
    if (given) return given;
    const slug = title
      .toLowerCase()
      .replace(/[^\p{L}\p{N}]+/gu, "-")
      .replace(/^-|-$/g, "")
      .slice(0, 40);
    const name = slug && !taken.has(slug) ? slug : `${slug || "button"}-${n + 1}`;
    taken.add(name);
    return name;
  });
}

/** Content of the draft. Texts stay unchanged; links are trimmed. */
export function content(draft: Draft): Notification {
  const called = names(draft.actions);
  const said: Notification = {
    ...draft.more,
    title: draft.title,
    body: draft.body || undefined,
    url: orNone(draft.url),
    icon: orNone(draft.icon),
    image: orNone(draft.image),
    badge: orNone(draft.badge),
    tag: orNone(draft.tag),
    actions: draft.actions.map(({ title, url, icon }, n) => ({
      action: called[n] ?? "",
      title,
      icon,
      url: orNone(url),
    })),
    require_interaction: draft.requireInteraction || undefined,
    silent: draft.silent || undefined,
  };
  return JSON.parse(JSON.stringify(said.actions?.length ? said : { ...said, actions: undefined })) as Notification;
}

/** An object that was written as JSON, nothing being an empty one. Undefined: it is none. */
export function objectOf(text: string): Record<string, unknown> | undefined {
  if (text.trim() === "") return {};
  try {
    const read: unknown = JSON.parse(text);
    return read !== null && typeof read === "object" && !Array.isArray(read)
      ? (read as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

/** Content as members of a message. */
export function said(draft: Draft): Pick<MessageRequest, "content" | "template" | "data"> {
  if (draft.says === "text") return { content: content(draft) };
  const data = objectOf(draft.data) ?? {};
  return { template: draft.template, ...(Object.keys(data).length > 0 ? { data: data as Record<string, never> } : {}) };
}

/** The same with a title, so that it can be checked before it has one, or names a template. */
export function titled(message: MessageRequest): MessageRequest {
  const { template, data: _, ...rest } = message;
  if (template === "") return { ...rest, content: { title: "–" } };
  return message.content
    ? { ...message, content: { ...message.content, title: message.content.title.trim() || "–" } }
    : message;
}

/** Name of the draft in questions. */
export const titleOf = (draft: Draft): string =>
  draft.says === "text" ? draft.title : `The template ${draft.template}`;

/** Maximum characters of a title and of a text. */
export const TITLE_MAX = 200;
export const BODY_MAX = 2_000;

/** Fault of a text with too many characters, as the server counts them. */
export function lengthFault(text: string, most: number): string | undefined {
  const { length } = [...text];
  return length > most ? `has ${count(length)} characters; at most ${count(most)} are possible` : undefined;
}

/** Missing part of the content. Undefined: complete as far as the page can check. */
export function unsaid(draft: Draft): string | undefined {
  if (draft.says === "text") {
    if (draft.title.trim() === "") return "Enter a title.";
    if (lengthFault(draft.title, TITLE_MAX)) return "Shorten the title.";
    return lengthFault(draft.body, BODY_MAX) ? "Shorten the text." : undefined;
  }
  if (draft.template === "") return "Choose a template.";
  return objectOf(draft.data) ? undefined : "The template data must be a JSON object.";
}

export function recipients(draft: Draft): MessageRequest["to"] {
  switch (draft.audience) {
    case "all":
      return { all: true };
    case "topic":
      return { topic: draft.topic };
    case "segment":
      return { segment: draft.segment };
    case "users":
      return { users: listed(draft.users) };
    case "subscriptions":
      return { subscriptions: listed(draft.subscriptions) };
  }
}

/** Whether the draft has an audience. */
export function isAddressed(draft: Draft): boolean {
  const { audience } = draft;
  if (audience === "all") return true;
  return audience === "topic" || audience === "segment" ? draft[audience] !== "" : listed(draft[audience]).length > 0;
}

/** Whether people may be left out of it for not clicking: not of one-time codes, nor if they are named. */
export const maySunset = ({ audience, tier }: Draft): boolean =>
  (audience === "all" || audience === "topic" || audience === "segment") && tier !== "transactional";

/** Sunset rule of the draft. Undefined: no exclusion. */
export function sunsetOf(draft: Draft): SunsetRule | undefined {
  const [unclicked, unclicked_for, welcome] = [draft.unclicked, draft.unclickedFor, draft.welcome].map((text) =>
    text.trim(),
  );
  if (!maySunset(draft) || (!unclicked && !unclicked_for)) return undefined;
  // What is no number is for the server to refuse.
  const n = Number(unclicked);
  return {
    ...(unclicked ? { unclicked: Number.isInteger(n) ? n : (unclicked as never) } : {}),
    ...(unclicked_for ? { unclicked_for } : {}),
    ...(welcome ? { welcome } : {}),
  };
}

/** The same as it is written. */
export const sunsetDraft = (
  rule: SunsetRule | null | undefined,
): Pick<Draft, "unclicked" | "unclickedFor" | "welcome"> => ({
  unclicked: rule?.unclicked?.toString() ?? "",
  unclickedFor: rule?.unclicked_for ?? "",
  welcome: rule?.welcome ?? "",
});

/** Sunset rule as a sentence. */
export function sunsetWords({ unclicked, unclicked_for, welcome }: SunsetRule): string {
  const shown = [
    unclicked != null && `${unclicked} messages or more`,
    unclicked_for && `messages over ${unclicked_for} or longer`,
  ]
    .filter(Boolean)
    .join(" and ");
  return `Subscribers who were shown ${shown} since their last click are excluded, unless they subscribed within the last ${welcome ?? "30d"}.`;
}

/** The whole as a request. */
export function message(draft: Draft): MessageRequest {
  const sunset = sunsetOf(draft);
  return {
    to: recipients(draft),
    tier: draft.tier,
    ...said(draft),
    ...(draft.ttl ? { ttl: Number(draft.ttl) } : {}),
    ...(draft.urgency ? { urgency: draft.urgency as NonNullable<MessageRequest["urgency"]> } : {}),
    ...(draft.isLater && draft.sendAt
      ? { send_at: `${draft.sendAt.slice(0, 16)}:00`, timezone: draft.timezone || "UTC" }
      : {}),
    ...(sunset ? { sunset } : {}),
    ...(draft.collapseKey.trim() ? { collapse_key: draft.collapseKey.trim() } : {}),
    // Any policy is an object to the description.
    ...(draft.policy ? { policy: { preset: draft.policy } as never } : {}),
  };
}

/** Options of a test push: sent at once, with a short time to live. */
const TEST_TTL_S = 300;

/** The message for one recipient, at once and at any hour, for every tier. */
export function test(draft: Draft, kind: "users" | "subscriptions", id: string): MessageRequest {
  return {
    to: kind === "users" ? { users: [id] } : { subscriptions: [id] },
    tier: "transactional",
    ttl: TEST_TTL_S,
    ...said(draft),
  };
}

/** Draft with the content of a sent message. */
export function like(said: Notification): Draft {
  return {
    ...BLANK,
    title: said.title,
    body: said.body ?? "",
    url: said.url ?? "",
    icon: said.icon ?? "",
    image: said.image ?? "",
    badge: said.badge ?? "",
    tag: said.tag ?? "",
    actions: (said.actions ?? []).map(({ action, title, url, icon }) => ({
      title,
      url: url ?? "",
      name: action,
      icon: icon ?? undefined,
    })),
    requireInteraction: said.require_interaction ?? false,
    silent: said.silent ?? false,
    more: Object.fromEntries(
      UNWRITTEN.filter((name) => said[name] !== undefined && said[name] !== null && said[name] !== false).map(
        (name) => [name, said[name]],
      ),
    ),
  };
}
