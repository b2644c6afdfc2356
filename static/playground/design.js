// A design of the elements: a flat object of texts, and its form in the address of the page. It imports nothing, so that tests
// run it without a browser.

/** Names of the texts that can be replaced. The server takes at most 300 characters for each. */
export const TEXTS = ["title", "body", "accept", "later", "no"];
const TEXT_MAX = 300;

/** Permitted values of each choice. The first one is the default. */
export const CHOICES = {
  element: ["prompt", "bell", "preferences"],
  layout: ["card", "bar", "dialog"],
  way: ["ask", "install_share", "install_more", "install_update", "in_app"],
  corner: ["bottom-end", "bottom-start", "top-end", "top-start", "none"],
  state: ["unsubscribed", "subscribed", "pending", "denied", "not-installed", "unsupported"],
  lang: ["en", "ar", "de", "es", "fr", "it", "ja", "nl", "pl", "pt", "tr", "zh"],
  scheme: ["light", "dark", "system"],
  width: ["full", "768", "320"],
};

/** CSS variables of the elements, and a property that takes the same values. Radius and gap are parts of `calc()`: one length. */
export const VARIABLES = {
  "--bellwire-background": "color",
  "--bellwire-color": "color",
  "--bellwire-accent": "color",
  "--bellwire-on-accent": "color",
  "--bellwire-border": "color",
  "--bellwire-radius": "padding-top",
  "--bellwire-gap": "padding-top",
  "--bellwire-shadow": "box-shadow",
  "--bellwire-font": "font-family",
  "--bellwire-z-index": "z-index",
};
const VALUE_MAX = 100;

export const DEFAULTS = {
  ...Object.fromEntries(Object.entries(CHOICES).map(([name, [first]]) => [name, first])),
  app: "shop",
  unread: "0",
  topics: "news: News: What is new, once a week\noffers: Offers",
};
const TOPICS_MAX = 10;

/** Reads a line such as `news: News: Once a week`. */
function topicOf(line) {
  const [name, title = "", ...others] = line.split(":").map((part) => part.trim());
  const description = others.join(": ");
  return { name, title, ...(description && { description }), texts: {} };
}

const isTopic = ({ name, title, description = "" }) =>
  /^[\w.~%-]{1,128}$/.test(name) && title && title.length <= TEXT_MAX && description.length <= TEXT_MAX;

/** Topics of lines. Undefined if a line is malformed or repeats a name. */
export function topicsOf(lines) {
  const topics = lines
    .split("\n")
    .filter((line) => line.trim())
    .map(topicOf);
  const names = new Set(topics.map(({ name }) => name));
  return topics.length <= TOPICS_MAX && names.size === topics.length && topics.every(isTopic) ? topics : undefined;
}

/** Texts by language, as the server stores them: `{ de: { title: "…" } }`. */
export function textsOf(design) {
  const texts = {};
  for (const lang of CHOICES.lang) {
    const own = TEXTS.map((text) => [text, design[`${lang}.${text}`]]).filter(([, value]) => value);
    if (own.length) texts[lang] = Object.fromEntries(own);
  }
  return texts;
}

/** CSS variables with a value. */
export const variablesOf = (design) =>
  Object.keys(VARIABLES).flatMap((name) => (design[name] ? [[name, design[name]]] : []));

/** Returns whether a design can have this value. `supports` is that of `CSS`. */
export function isValid(name, value, supports) {
  if (Object.hasOwn(CHOICES, name)) return CHOICES[name].includes(value);
  if (name === "app") return /^[a-z0-9][a-z0-9-]{0,62}$/.test(value);
  if (name === "unread") return /^\d{1,2}$/.test(value);
  if (name === "topics") return topicsOf(value) !== undefined;
  // The value must not end the rule or the element that people paste it into.
  if (Object.hasOwn(VARIABLES, name))
    return value.length <= VALUE_MAX && !/[<>{};@\\]|\/\*/.test(value) && supports(VARIABLES[name], value);
  const [lang, text, ...others] = name.split(".");
  return CHOICES.lang.includes(lang) && TEXTS.includes(text) && !others.length && [...value].length <= TEXT_MAX;
}

/** Returns the design of a fragment, without unknown names and malformed values. */
export function read(fragment, supports) {
  const design = { ...DEFAULTS };
  for (const [name, value] of new URLSearchParams(fragment)) if (isValid(name, value, supports)) design[name] = value;
  return design;
}

/** Returns the fragment of a design, with what differs from the defaults. */
export function write(design) {
  const changed = Object.entries(design).filter(([name, value]) => value !== (DEFAULTS[name] ?? ""));
  return `${new URLSearchParams(changed)}`;
}
