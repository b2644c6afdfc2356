import type { PromptOptions } from "../api";

// So little specificity that any rule of the site's wins which means the prompt, but none that resets everything.
const STYLE = `:where(.bellwire-prompt){display:grid;gap:.75rem;box-sizing:border-box;width:min(26rem,100vw - 2rem);margin:auto;padding:1.25rem;
border:1px solid #8884;border-radius:.75rem;font:inherit;line-height:1.5;background:Canvas;color:CanvasText}
:where(.bellwire-prompt)>h2{margin:0;font-size:1.1em}:where(.bellwire-prompt)>p{margin:0}:where(.bellwire-prompt)>div{display:flex;flex-wrap:wrap;gap:.5rem;justify-content:end}
:where(.bellwire-prompt) button{min-height:2.75rem;padding:0 1rem;border:1px solid #8886;border-radius:.5rem;font:inherit;background:none;color:inherit;cursor:pointer}
:where(.bellwire-prompt) button:last-child{background:CanvasText;color:Canvas}`;

let styled = false;
let count = 0;

/** Constructed style sheets are let through by every `style-src`. Without them the prompt is plain, with its class. */
function style(): void {
  if (styled || !("adoptedStyleSheets" in document)) return;
  styled = true;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}

function element<K extends keyof HTMLElementTagNameMap>(name: K, text = ""): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

/** Shows the question and resolves with what `accept` returns, called inside the click, or with undefined for "later". */
export function ask<T>(options: PromptOptions, accept: () => T): Promise<T | undefined> {
  style();
  const box = options.into ? element("section") : element("dialog");
  const title = element("h2", options.title ?? "Get notifications?");
  const body = element("p", options.body ?? "We tell you when something new is here. You can stop at any time.");
  const later = element("button", options.later ?? "Not now");
  const yes = element("button", options.accept ?? "Yes, notify me");
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
    const close = (answer?: T) => {
      box.remove();
      before?.focus?.(); // a dialog that is removed gives the focus back to nobody
      resolve(answer);
    };
    later.type = yes.type = "button";
    later.onclick = () => close();
    yes.onclick = () => close(accept());
    (options.into ?? document.body).append(box);
    if (box instanceof HTMLDialogElement) {
      box.oncancel = () => close();
      box.showModal();
    }
  });
}
