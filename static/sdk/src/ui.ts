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

/** `<bellwire-prompt layout="card | bar | dialog">`. */
export interface BellwirePromptElement extends ElementOfKit {
  /** Shows the prompt at once, unless there is nothing to ask. Resolves to whether it is shown. */
  show(): Promise<boolean>;
  /** Shows what visitors would see with these settings of the server. Its buttons do nothing. */
  preview(settings: object): Promise<void>;
}

/** `<bellwire-bell corner="bottom-end">`, or without `corner` in the flow of the page. */
export interface BellwireBellElement extends ElementOfKit {}

/** `<bellwire-preferences>`. */
export interface BellwirePreferencesElement extends ElementOfKit {}

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
export function ui<C extends Client>(client: C, { texts }: UiOptions = {}): C & Suggests {
  let suggest = (_: string) => {};
  if (typeof document !== "undefined") {
    const kit = kitOf(client, texts);
    suggest = (event) => {
      kit.suggested.add(event);
      kit.waiting.forEach((look) => look());
    };
    define();
  }
  return Object.assign(client, { suggest });
}
