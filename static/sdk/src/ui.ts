import type { Client } from "./api.js";
import { Bell } from "./ui/bell";
import { kitOf } from "./ui/kit";
import { Preferences } from "./ui/preferences";
import { Prompt } from "./ui/prompt";

/** Texts in place of the built-in ones, by language (`de`, `pt-BR`) and name, such as `title`. */
export type UiTexts = Record<string, Record<string, string>>;

export interface UiOptions {
  /** Replaces texts of the server's settings and the built-in ones. */
  texts?: UiTexts;
  /** `false`: no step is reported for the funnel. By default steps are reported. */
  reports?: boolean;
}

/** Form of the prompt. */
export type PromptLayout = "card" | "bar" | "dialog";

export interface Suggests {
  /** Reports an event of the site, such as an order. A prompt that waits for this event may appear. */
  suggest(event: string): void;
}

/** Attributes and properties that all elements have. */
interface ElementOfKit extends HTMLElement {
  /** Client of this element. By default the first one that `ui()` was called with. */
  client: Client | undefined;
}

/** `<bellwire-prompt layout="card | bar | dialog" page="/cart">`. `page` names the page in reports. */
export interface BellwirePromptElement extends ElementOfKit {
  /** Shows the prompt at once, unless there is nothing to ask. Resolves to whether it is shown. */
  show(): Promise<boolean>;
  /**
   * Shows what visitors would see with these settings of the server. Its buttons do nothing. `way` is the case: by default a
   * browser that can ask, otherwise a guide for iPhones, or for apps with a browser of their own.
   */
  preview(settings: object, way?: PromptWay): Promise<void>;
}

/** Case of a visitor: the browser asks, or a guide is shown for iPhones before and from iOS 26, old ones, or browsers in apps. */
export type PromptWay = "ask" | "install_share" | "install_more" | "install_update" | "in_app";

/** Settings of a preview, in place of those of the server. */
export interface UiPreview {
  texts?: UiTexts;
  /** Topics with their title, description and translations. */
  topics?: {
    name: string;
    title: string;
    description?: string | null;
    texts: Record<string, { title: string; description?: string | null }>;
  }[];
  /** Number of notifications that the badge of the bell shows. */
  unread?: number;
}

interface PreviewedElement extends ElementOfKit {
  /** Shows what visitors would see with these settings. Only `client` is called: a fake one keeps the server out. */
  preview(settings: UiPreview, client: Client): void;
}

/** `<bellwire-bell corner="bottom-end">`, or without `corner` in the flow of the page. `page` names the page of its preferences. */
export interface BellwireBellElement extends PreviewedElement {}

/** `<bellwire-preferences page="/account">`. `page` names the page in reports. */
export interface BellwirePreferencesElement extends PreviewedElement {}

declare global {
  interface HTMLElementTagNameMap {
    "bellwire-prompt": BellwirePromptElement;
    "bellwire-bell": BellwireBellElement;
    "bellwire-preferences": BellwirePreferencesElement;
  }
}

const ELEMENTS = { "bellwire-prompt": Prompt, "bellwire-bell": Bell, "bellwire-preferences": Preferences };

/** Defines the elements, which stay empty until `ui()` is called. */
export function define(): void {
  for (const [name, element] of Object.entries(ELEMENTS))
    customElements.get(name) ?? customElements.define(name, element);
}

/** Starts the elements of the page with a client, which it returns with `suggest`. Does nothing on a server that renders pages. */
export function ui<C extends Client>(client: C, options?: UiOptions): C & Suggests {
  let suggest = (_: string) => {};
  if (typeof document !== "undefined") {
    const kit = kitOf(client, options);
    suggest = (event) => {
      kit.suggested.add(event);
      kit.waiting.forEach((look) => look());
    };
    define();
  }
  return Object.assign(client, { suggest });
}
