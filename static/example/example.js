import { init } from "/sdk/bellwire.js";

const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content;
const at = (id) => document.getElementById(id);

const app = meta("bellwire-app") || "example";
const server = meta("bellwire-server") || location.origin;
const bellwire = init({ app, server, serviceWorker: { url: "/example/service-worker.js" }, checkEvery: 0 });

// What the page says in each case. `bad`: nothing that a button here could change.
const STATUS = {
  subscribed: ["You are subscribed", "Messages come even when this page is closed, as long as the browser runs."],
  pending: ["Almost there", "You agreed, and your browser’s push service or the server has yet to answer. It is tried again by itself."],
  granted: ["Not subscribed", "This browser already allows notifications from here, so it will not ask."],
  default: ["Not subscribed", "Nothing is asked before you press the button."],
  denied: ["Blocked in this browser", "This page may not ask again. Allow notifications in the site settings, beside the address. A private window always blocks notifications.", "bad"],
  unsupported: ["Not possible in this browser", "It has no web push. Any current Chrome, Edge, Firefox or Safari has.", "bad"],
  insecure: ["Not possible on this address", "Browsers allow web push on HTTPS and on localhost only.", "bad"],
  "private-mode": ["Not possible in this window", "The browser keeps nothing for this site: a private window, or storage is blocked.", "bad"],
  "not-installed": ["First add it to the Home Screen", "On iPhone and iPad (16.4 or later): Share, Add to Home Screen, then open it from there.", "bad"],
};

const REASONS = {
  dismissed: "The browser’s question was closed without an answer. You can press the button again.",
  denied: "The browser blocked notifications. Change that in the site settings.",
  "no-gesture": "Browsers ask only in a click or key press.",
  "not-subscribed": "Subscribe first.",
  offline: "The server does not answer. What you chose is kept and tried again by itself.",
  refused: "The server refused",
  worker: "The service worker could not be set up",
  "push-service": "It is not the server: the browser’s own push service does not answer. Some browsers have it switched off in their settings.",
};

let status = { state: "loading" };

function show(now) {
  status = now;
  const [headline, detail, tone] = STATUS[now.state === "unsubscribed" ? now.permission : now.state];
  const on = now.state === "subscribed" || now.state === "pending";
  at("headline").textContent = headline;
  at("detail").textContent = detail;
  at("status").dataset.state = now.state;
  at("status").dataset.tone = tone ?? "";
  const button = at("subscribe");
  button.textContent = on ? "Unsubscribe" : "Subscribe";
  button.disabled = tone === "bad";
  button.classList.toggle("primary", !on);
  at("topics").disabled = !on;
  at("send").disabled = now.state !== "subscribed";
  if (now.state !== "subscribed") return;
  for (const box of at("topics").querySelectorAll("input")) box.checked = now.topics.includes(box.value);
  fill("id", now.id);
}

function explain(result) {
  const note = at("note");
  for (const { detail } of result.refused ?? []) log(detail, "error");
  // What the status says anyway need not be said twice.
  note.hidden = result.ok || STATUS[result.status.state]?.[2] === "bad";
  if (result.ok) return;
  const why = ["refused", "worker"].includes(result.reason) ? `: ${result.message}` : "";
  note.textContent = (REASONS[result.reason] ?? result.message) + why;
}

function log(text, kind = "") {
  const line = document.createElement("li");
  const time = document.createElement("time");
  const words = document.createElement("span");
  const now = new Date();
  time.dateTime = now.toISOString();
  time.textContent = now.toLocaleTimeString([], { hour12: false });
  words.textContent = text;
  line.dataset.kind = kind;
  line.append(time, words);
  at("log").prepend(line);
}

function fill(name, value) {
  for (const place of document.querySelectorAll(`[data-fill="${name}"]`)) place.textContent = value;
}

/** Does a button's work; pressed again meanwhile, it does nothing. */
function onPress(id, work) {
  const button = at(id);
  button.addEventListener("click", async () => {
    if (button.ariaBusy === "true") return;
    button.ariaBusy = "true";
    await work().finally(() => (button.ariaBusy = "false"));
  });
}

const chosen = () => [...at("topics").querySelectorAll(":checked")].map((box) => box.value);

onPress("subscribe", async () => {
  const on = status.state === "subscribed" || status.state === "pending";
  explain(await (on ? bellwire.unsubscribe() : bellwire.subscribe({ topics: chosen() })));
});

at("topics").addEventListener("change", async () => {
  const result = await bellwire.setTopics(chosen());
  explain(result);
  if (result.ok) log(`Topics: ${result.status.topics?.join(", ") || "none"}`);
});

onPress("send", async () => {
  const own = await bellwire.credentials();
  if (!own) return;
  try {
    const response = await fetch("/example/send", {
      method: "POST",
      headers: { Authorization: `Bearer ${own.token}`, "Content-Type": "application/json" },
      body: JSON.stringify({ subscription: own.id }),
    });
    const problem = response.ok ? undefined : await response.json().catch(() => undefined);
    if (response.ok) log("The server took your message.");
    else log(`The server refused: ${problem?.detail ?? `HTTP ${response.status}`}`, "error");
  } catch {
    log("The server does not answer.", "error");
  }
});

onPress("prompt", async () => {
  const words = { title: "Shall we tell you when it ships?", body: "One message per parcel. Stop at any time.", accept: "Yes, please" };
  const { answer, result } = await bellwire.prompt({ ...words, topics: chosen(), againAfterDays: 0 });
  if (result) explain(result);
  if (answer === "not-needed") log("Nothing to ask: you are subscribed, or it is not possible here.");
  if (answer === "later") log("You said not now. Your own pages would be quiet for two weeks.");
});

bellwire.on("change", (now) => {
  show(now);
  log(now.state === "subscribed" ? `Subscribed as ${now.id}` : `Status: ${now.state}`);
});
bellwire.on("message", ({ title, body }) => log(`Arrived: ${[title, body].filter(Boolean).join(" · ") || "a payload"}`));
bellwire.on("error", ({ reason, message, retrying }) => {
  log(`${reason}: ${message}${retrying ? " It is tried again." : ""}`, "error");
});

fill("app", app);
fill("server", server);

for (const pre of document.querySelectorAll("pre")) {
  const frame = document.createElement("div");
  const copy = document.createElement("button");
  frame.className = "code";
  copy.className = "copy";
  copy.type = "button";
  copy.textContent = "Copy";
  copy.setAttribute("aria-label", `Copy: ${pre.getAttribute("aria-label")}`);
  copy.addEventListener("click", async () => {
    const copied = await navigator.clipboard?.writeText(pre.textContent).then(() => true, () => false);
    copy.textContent = copied ? "Copied" : "Select and copy";
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });
  pre.replaceWith(frame);
  frame.append(pre, copy);
}
