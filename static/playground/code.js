// Code that makes a site look like a design.
import { DEFAULTS, textsOf, topicsOf, variablesOf } from "./design.js";

const json = (value) => JSON.stringify(value, null, 2);

function html({ element, corner, lang }) {
  const attributes = [
    element === "bell" && corner !== "none" && `corner="${corner}"`,
    lang !== DEFAULTS.lang && `lang="${lang}"`,
  ].filter(Boolean);
  const tag = `bellwire-${element}`;
  return `<${[tag, ...attributes].join(" ")}></${tag}>`;
}

const javascript = ({ app }, server) => `import { init } from "${server}/sdk/bellwire.js";
import { ui } from "${server}/sdk/ui.js";

ui(init({ app: "${app}" }));`;

function css(design) {
  const rows = variablesOf(design).map(([name, value]) => `${name}: ${value}`);
  if (design.scheme !== DEFAULTS.scheme)
    rows.unshift(`color-scheme: ${design.scheme === "system" ? "light dark" : design.scheme}`);
  const root = rows.length ? `:root {\n${rows.map((row) => `  ${row};\n`).join("")}}` : "";
  // So that its arrival moves nothing.
  const room = "bellwire-bell {\n  display: inline-block;\n  min-height: 2.75rem;\n}";
  return [root, design.element === "bell" && design.corner === "none" && room].filter(Boolean).join("\n");
}

function promptBody(design) {
  const texts = textsOf(design);
  const layout = design.layout !== DEFAULTS.layout && { layout: design.layout };
  return json({ ...layout, ...(Object.keys(texts).length && { texts }) });
}

function topicRequests({ app, topics }) {
  const requests = topicsOf(topics).map(({ name, title, description }, position) => {
    const display = { title, ...(description && { description }), ...(position && { position }) };
    return `PATCH /v1/apps/${app}/topics/${name}\n${json({ display })}`;
  });
  return requests.join("\n\n");
}

/** Returns the code of a design by name. Empty: the design needs none. */
export function codeOf(design, server) {
  const isPrompt = design.element === "prompt";
  return {
    html: html(design),
    js: javascript(design, server),
    css: css(design),
    prompt: isPrompt ? promptBody(design) : "",
    topics: isPrompt ? "" : topicRequests(design),
  };
}
