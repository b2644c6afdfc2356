// `all: initial` keeps inherited rules of the page out, and `font` and colours of the page in. Colours of the system follow the
// page's `color-scheme`, so that light and dark need no second set.
const STYLE = `:host{all:initial;color-scheme:inherit;font:inherit;line-height:1.5;color:var(--bellwire-color,CanvasText);
--b:var(--bellwire-background,Canvas);--a:var(--bellwire-accent,CanvasText);--o:var(--bellwire-on-accent,Canvas);
--l:var(--bellwire-border,color-mix(in srgb,CanvasText 25%,transparent));--r:var(--bellwire-radius,.75rem);--g:var(--bellwire-gap,1rem)}
:host(bellwire-preferences){display:block}
:host([hidden]),[hidden]{display:none!important}
*{box-sizing:border-box;margin:0;padding:0;font-family:var(--bellwire-font,inherit)}
section,dialog[open]{display:grid;gap:.75rem;overflow-wrap:anywhere;text-align:start}
.card,.bar,.dialog{background:var(--b);color:inherit;border:1px solid var(--l);padding:1.25rem;max-height:calc(100% - 2*var(--g));overflow:auto}
.card,.bar,:host([corner]){position:fixed;z-index:var(--bellwire-z-index,2147483000)}
.card,.bar{box-shadow:var(--bellwire-shadow,0 .5rem 2rem #0003)}
.card,.dialog{width:27rem;max-width:calc(100% - 2*var(--g));border-radius:var(--r)}
.card,:host([corner]){inset-block-end:calc(var(--g) + env(safe-area-inset-bottom));inset-inline-end:var(--g)}
.bar{inset:auto 0 0;border-width:1px 0 0;padding-block-end:calc(1.25rem + env(safe-area-inset-bottom))}
.dialog{margin:auto}
dialog::backdrop{background:#0008}
h2{font-size:1.1em}
ol{padding-inline-start:1.5em}
.actions{display:flex;flex-wrap:wrap;gap:.5rem;justify-content:end}
button{min-height:2.75rem;max-width:100%;padding:0 1rem;border:1px solid var(--l);border-radius:calc(var(--r)*.66);font:inherit;background:none;color:inherit;cursor:pointer}
.accept,.on{background:var(--a);color:var(--o)}
.no{border-color:#0000;text-decoration:underline}
:focus-visible{outline:3px solid var(--a);outline-offset:2px}
svg{width:1.5rem;height:1.5rem;fill:none;stroke:currentColor;stroke-width:2;vertical-align:middle}
.bell{position:relative;width:2.75rem;padding:0;background:var(--b)}
.badge{position:absolute;inset-block-start:-.4rem;inset-inline-end:-.4rem;min-width:1.25rem;padding:0 .3rem;border-radius:1rem;font-size:.75rem;line-height:1.25rem;background:#b00020;color:#fff}
:host([corner*=start]){inset-inline:var(--g) auto}
:host([corner*=top]){inset-block:var(--g) auto}
:host([corner]) .bell{border-radius:50%;width:3.25rem;height:3.25rem}
@media(min-width:48rem){.bar{display:flex;align-items:center;flex-wrap:wrap;padding-inline:2rem}.bar>p{flex:1}}
@media(prefers-reduced-motion:no-preference){.card,.bar,.dialog{animation:in .25s}@keyframes in{from{opacity:0;translate:0 1rem}}}`;

/** Styles a shadow root by constructed sheets, which every `style-src` allows. */
export function style(root: ShadowRoot, ...more: string[]): ShadowRoot {
  // iOS before 16.4 shows the text without style.
  if ("adoptedStyleSheets" in root)
    root.adoptedStyleSheets = [STYLE, ...more].map((rules) => {
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(rules);
      return sheet;
    });
  return root;
}
