// Subscribes the browser of whoever sets an app up; the admin page's first run opens it. It is a page of its own because the admin
// page's policy lets nothing register a worker.
import { init } from "/sdk/bellwire.js";

const at = (id) => document.getElementById(id);
const app = new URLSearchParams(location.search).get("app") ?? "";
/** By this name the admin page finds which subscription is this browser's, and on this channel it hears that something changed. */
const NAME = `bellwire.tried.${app}`;
const channel = new BroadcastChannel("bellwire.tried");

// What the page says in each case. `bad`: nothing that a button here could change.
const STATUS = {
  subscribed: ["This browser is subscribed", "Go back and send. Messages come even when this page is closed, as long as the browser runs."],
  pending: ["Almost there", "You agreed, and the browser’s push service or the server has yet to answer. It is tried again by itself."],
  granted: ["Subscribe this browser", "It already allows notifications from here, so it will not ask."],
  default: ["Subscribe this browser", "It will ask whether you allow notifications."],
  denied: ["Blocked in this browser", "This page may not ask again. Allow notifications in the site settings, beside the address. A private window always blocks notifications.", "bad"],
  unsupported: ["Not possible in this browser", "It has no web push. Any current Chrome, Edge, Firefox or Safari has.", "bad"],
  insecure: ["Not possible on this address", "Browsers allow web push on HTTPS and on localhost only.", "bad"],
  "private-mode": ["Not possible in this window", "The browser keeps nothing for this site: a private window, or storage is blocked.", "bad"],
  "not-installed": ["First add it to the Home Screen", "On iPhone and iPad (16.4 or later): Share, Add to Home Screen, then open it from there.", "bad"],
};

function note(id) {
  try {
    if (id) localStorage.setItem(NAME, id);
    else localStorage.removeItem(NAME);
  } catch {
    // Storage is blocked, and with it web push.
  }
  channel.postMessage(app);
}

function show(now) {
  const [headline, detail, tone] = STATUS[now.state === "unsubscribed" ? now.permission : now.state];
  const isOn = now.state === "subscribed" || now.state === "pending";
  at("headline").textContent = headline;
  at("headline").dataset.state = now.state;
  at("detail").textContent = detail;
  at("subscribe").hidden = isOn;
  at("subscribe").disabled = tone === "bad";
  at("unsubscribe").hidden = !isOn;
  note(now.state === "subscribed" ? now.id : undefined);
}

function start() {
  const bellwire = init({ app, server: location.origin, serviceWorker: { url: "/try/service-worker.js" }, checkEvery: 0 });
  const explain = ({ ok, message }) => {
    at("note").hidden = ok;
    at("note").textContent = ok ? "" : message;
  };
  at("subscribe").addEventListener("click", async () => explain(await bellwire.subscribe()));
  at("unsubscribe").addEventListener("click", async () => explain(await bellwire.unsubscribe()));
  bellwire.on("change", show);
  bellwire.on("message", () => channel.postMessage(app));
}

at("app").textContent = app;
at("back").href = `/admin/first-run?app=${encodeURIComponent(app)}`;
if (/^[a-z0-9][a-z0-9-]*$/.test(app)) start();
else at("headline").textContent = "Which app? Come here from the first run.";
