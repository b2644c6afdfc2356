import { codeOf } from "./code.js";
import { DEFAULTS, isValid, read, TEXTS, write } from "./design.js";

const at = (id) => document.getElementById(id);
const controls = at("controls");
const fields = [...controls.querySelectorAll("[name]")];
const supports = (property, value) => CSS.supports(property, value);
const present = () => read(location.hash.slice(1), supports);
/** Safari permits 100 changes of the address in 30 seconds. */
const ADDRESS_MS = 400;

let design = present();
let addressing;

/** Texts belong to the language that is selected. */
const nameOf = ({ name }) => (TEXTS.includes(name) ? `${design.lang}.${name}` : name);

function fill() {
  for (const field of fields) {
    const value = design[nameOf(field)] ?? "";
    if (field.type === "radio") field.checked = field.value === value;
    else field.value = value;
    mark(field, true);
  }
  showColours();
}

/** Shows the built-in texts of the language as placeholders. */
async function fillPlaceholders() {
  const { lang } = design;
  const { default: texts } = await import(`/sdk/ui/${lang}.js`);
  if (lang !== design.lang) return;
  for (const name of TEXTS) {
    const field = at(name);
    Object.assign(field, { placeholder: texts[name], lang, dir: lang === "ar" ? "rtl" : "ltr" });
  }
}

function mark(field, isGood) {
  const hint = at(`${field.id}-fault`);
  if (!hint) return;
  hint.hidden = isGood;
  field.ariaInvalid = isGood ? null : "true";
}

/** Colour pickers show what their text field has, if it is in their form. */
function showColours() {
  for (const picker of controls.querySelectorAll("[data-picks]")) {
    const { value } = at(picker.dataset.picks);
    if (value === "") picker.value = picker.defaultValue;
    else if (/^#[0-9a-f]{6}$/i.test(value)) picker.value = value;
  }
}

function take(field) {
  const name = nameOf(field);
  const isEmpty = field.value === "" && !(name in DEFAULTS);
  const isGood = isEmpty || isValid(name, field.value, supports);
  mark(field, isGood);
  if (!isGood) return;
  if (isEmpty) delete design[name];
  else design[name] = field.value;
  if (name === "lang") fill();
  if (name.startsWith("--")) showColours();
  show();
}

function showCode() {
  for (const [name, code] of Object.entries(codeOf(design, location.origin))) {
    at(`code-${name}`).textContent = code;
    at(`code-${name}`).closest("section").hidden = !code;
  }
  for (const place of document.querySelectorAll("[data-app]")) place.textContent = design.app;
}

function show() {
  for (const part of controls.querySelectorAll("[data-for]"))
    part.hidden = !part.dataset.for.split(" ").includes(design.element);
  at("frame").dataset.width = design.width;
  at("stage").contentWindow.postMessage({ design }, window.origin);
  showCode();
  fillPlaceholders().catch(() => {}); // placeholders are optional
  clearTimeout(addressing);
  addressing = setTimeout(showAddress, ADDRESS_MS);
}

const address = () => `${location.pathname}${write(design) && `#${write(design)}`}`;
const showAddress = () => history.replaceState(null, "", address());

async function copy(button, text) {
  const copied = await navigator.clipboard?.writeText(text).then(
    () => true,
    () => false,
  );
  at("copied").textContent = "";
  at("copied").textContent = copied
    ? `${button.dataset.what} copied.`
    : `The browser does not permit copying. Select the text instead.`;
}

controls.addEventListener("input", ({ target }) => {
  const text = at(target.dataset.picks);
  if (text) text.value = target.value;
  take(text ?? target);
});
controls.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-what]");
  if (!button) return;
  const code = at(button.dataset.copies);
  copy(button, code ? code.textContent : `${location.origin}${address()}`);
});
at("defaults").addEventListener("click", () => {
  design = { ...DEFAULTS, element: design.element };
  fill();
  show();
});
addEventListener("hashchange", () => {
  clearTimeout(addressing);
  design = present();
  fill();
  show();
});
// The stage reports that it listens. If it did before this script, it has the design already.
addEventListener("message", ({ source, data }) => {
  if (source === at("stage").contentWindow && data === "ready") show();
});

fill();
show();
