import type { PromptOptions } from "../api";

// Low specificity: rules of the site for the prompt win, but general resets do not.
const STYLE = `:where(.bellwire-prompt){display:grid;gap:.75rem;box-sizing:border-box;width:min(26rem,100vw - 2rem);max-width:100%;margin:auto;padding:1.25rem;overflow-wrap:anywhere;
border:1px solid #8884;border-radius:.75rem;font:inherit;line-height:1.5;background:Canvas;color:CanvasText}
:where(.bellwire-prompt)>h2{margin:0;font-size:1.1em}:where(.bellwire-prompt)>p{margin:0}:where(.bellwire-prompt)>div{display:flex;flex-wrap:wrap;gap:.5rem;justify-content:end}
:where(.bellwire-prompt) button{min-height:2.75rem;max-width:100%;padding:0 1rem;border:1px solid #8886;border-radius:.5rem;font:inherit;background:none;color:inherit;cursor:pointer}
:where(.bellwire-prompt) button:last-child{background:CanvasText;color:Canvas}`;

let count = 0;

/** Adds the style at the first question. Constructed style sheets pass every `style-src`. Without them the prompt has no style, only its class. */
function style(): void {
  if (count || !("adoptedStyleSheets" in document)) return;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}

/** Creates an element. On a page in another language, `lang` marks the English default text. */
function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  text?: string,
  english = "",
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  made.textContent = text ?? english;
  if (text === undefined && english) Object.assign(made, { lang: "en", dir: "ltr" });
  return made;
}

/** `not-needed`: the page removed the question before an answer. */
export type Answer<T> = { accepted: T } | "later" | "not-needed";

/** Shows the question. Calls `accept` inside the click. */
export function ask<T>(options: PromptOptions, accept: () => T): Promise<Answer<T>> {
  style();
  const box = element(options.into ? "section" : "dialog");
  const title = element("h2", options.title, "Get notifications?");
  const body = element("p", options.body, "We tell you when something new is here. You can stop at any time.");
  const later = element("button", options.later, "Not now");
  const yes = element("button", options.accept, "Yes, notify me");
  const buttons = element("div");
  buttons.append(later, yes);
  box.append(title, body, buttons);
  box.className = "bellwire-prompt";
  title.id = `bellwire-prompt-${++count}`;
  body.id = `${title.id}-body`;
  box.setAttribute("aria-labelledby", title.id);
  box.setAttribute("aria-describedby", body.id);

  const before = document.activeElement as HTMLElement | null;

  return new Promise((resolve) => {
    const close = (answer: Answer<T>) => {
      watch.disconnect();
      box.remove();
      before?.focus?.(); // a removed dialog does not restore the focus
      resolve(answer);
    };
    later.type = yes.type = "button";
    later.onclick = () => close("later");
    yes.onclick = () => close({ accepted: accept() });
    // A page may empty the element, or replace a part of itself, at any time.
    const watch = new MutationObserver(() => box.isConnected || close("not-needed"));
    (options.into ?? document.body).append(box);
    if (box instanceof HTMLDialogElement) {
      box.onclose = () => close("later");
      box.showModal();
    }
    watch.observe(document, { childList: true, subtree: true });
  });
}
