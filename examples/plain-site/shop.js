import { init } from "http://localhost:8787/sdk/bellwire.js";
import { ui } from "http://localhost:8787/sdk/ui.js";

const at = (id) => document.getElementById(id);

// Your words for what `status` and `reason` say. None of these is an exception: people may say no.
const STATUS = {
  subscribed: "You get our news.",
  pending: "Almost there: the browser or the server has yet to answer.",
  unsubscribed: "You get no news.",
  denied: "Notifications are blocked: allow them in the site settings, beside the address.",
  "not-installed": "Add this site to the Home Screen first, and open it from there.",
};
const REASONS = {
  dismissed: "You closed the browser’s question. Press the button again if you like.",
  denied: "The browser blocked notifications.",
  offline: "The server cannot be reached. It is tried again by itself.",
};

// Whom the session cookie knows; nobody, if there is none.
const me = await fetch("/api/me").then((response) => (response.ok ? response.json() : null), () => undefined);

// On each visit this also repairs what a new key or the browser made stale. It asks nobody for anything.
// `undefined` (the backend is down) changes nothing, where `null` would end what belongs to somebody who has left.
const bellwire = ui(
  init({
    app: "shop",
    userId: me === undefined ? undefined : (me?.userId ?? null),
    userToken: me?.userToken,
  }),
);

function show(status) {
  const subscribed = status.state === "subscribed";
  at("status").textContent = STATUS[status.state] ?? "This browser cannot show notifications here.";
  at("subscribe").hidden = status.state !== "unsubscribed";
  at("unsubscribe").hidden = !subscribed;
  at("offers-label").hidden = !subscribed;
  at("offers").checked = subscribed && status.topics.includes("offers");
}

function showResult(result) {
  show(result.status);
  at("problem").textContent = result.ok ? "" : (REASONS[result.reason] ?? result.message);
}

function showUser(user) {
  at("login").hidden = user;
  at("account").hidden = !user;
}

const post = (path, body) =>
  fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body ?? {}) });

// Nothing is awaited before `subscribe()`: browsers ask only right after a click.
at("subscribe").addEventListener("click", async () => showResult(await bellwire.subscribe({ topics: ["news"] })));
at("unsubscribe").addEventListener("click", async () => showResult(await bellwire.unsubscribe()));
at("offers").addEventListener("change", async ({ target }) =>
  showResult(await bellwire.setTopics(target.checked ? ["news", "offers"] : ["news"])));

at("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const response = await post("/api/login", Object.fromEntries(new FormData(event.target)));
  if (!response.ok) return void (at("problem").textContent = "Name and password do not match.");
  const { userId, userToken } = await response.json();
  at("problem").textContent = "";
  showUser(true);
  showResult(await bellwire.login(userId, userToken));
});
at("log-out").addEventListener("click", async () => {
  // First of all, so that nothing more for this person appears here, whatever becomes of the request.
  show((await bellwire.logout()).status);
  await post("/api/logout");
  showUser(false);
});
at("code").addEventListener("click", async () => {
  const response = await post("/api/code");
  at("problem").textContent = response.ok ? "" : "The code could not be sent.";
});

bellwire.on("change", show);
showUser(Boolean(me));
show(await bellwire.status());
