// Page of the preview. It is a frame, so that widths, dialogs and colour schemes are those of a page of its own.
import { define } from "/sdk/ui.js";
import { fakeClient } from "./client.js";
import { textsOf, topicsOf, VARIABLES } from "./design.js";

const root = document.documentElement;
/** Place of each element. */
const PLACES = {
  prompt: document.body,
  bell: document.querySelector("header"),
  preferences: document.querySelector("main"),
};
let element;
let content = "";

function draw(design) {
  const tag = `bellwire-${design.element}`;
  if (element?.localName !== tag) {
    element?.remove();
    element = document.createElement(tag);
    PLACES[design.element].append(element);
  }
  if (design.element === "prompt") {
    element.preview({ layout: design.layout, texts: textsOf(design) }, design.way);
    return;
  }
  if (design.element === "bell" && design.corner !== "none") element.setAttribute("corner", design.corner);
  else element.removeAttribute("corner");
  element.preview({ topics: topicsOf(design.topics), unread: +design.unread }, fakeClient(design.state));
}

function show(design) {
  root.lang = design.lang;
  root.dir = design.lang === "ar" ? "rtl" : "ltr";
  root.dataset.scheme = design.scheme;
  for (const name of Object.keys(VARIABLES)) root.style.setProperty(name, design[name] ?? "");
  // Colours need no new content: an open dialog stays open.
  const drawn = Object.entries(design).filter(([name]) => !/^(--.*|scheme|width|app)$/.test(name));
  const next = JSON.stringify(drawn);
  if (next === content) return;
  // The entrance is for the first time, not for each letter.
  root.toggleAttribute("data-still", element?.localName === `bellwire-${design.element}`);
  content = next;
  draw(design);
}

// There is no subscription whose data could be downloaded.
const isDownload = (event) => event.composedPath().some((part) => part.className === "download");
addEventListener("click", (event) => isDownload(event) && event.stopPropagation(), true);

addEventListener("message", ({ source, data }) => source === parent && data.design && show(data.design));
define();
parent.postMessage("ready", window.origin);
