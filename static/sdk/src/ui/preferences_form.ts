// Content of `<bellwire-preferences>`, a file of its own that pages without it do not load. It imports nothing that keeps state.

import type { Client, Details, Result, Status } from "../api";
import { clock } from "../shared/clock";
import { base } from "../shared/saved";
import type { Way } from "./device";
import { button, make } from "./dom";
import { guide } from "./guide";
import type { OfferedTopic } from "./kit";
import { inLanguage, type Texts, type Wording } from "./texts";

export { STYLE } from "./preferences_style";

const WEEK_MS = 604_800_000;

/** Element around the content. */
export interface Place {
  client: Client;
  /** Whether the element still shows this client. */
  isCurrent(): boolean;
  root: ShadowRoot;
  /** Element whose text screen readers announce. */
  said: HTMLElement;
  /** Returns the state for which a status is drawn. */
  look(status: Status): Drawn;
  /** Subscribes in a click. */
  subscribe(details: Details): Promise<Result>;
}

/** State for which the content is drawn. */
interface Drawn {
  state: Status["state"];
  on: boolean;
  way: Way | undefined;
}

/** Part of the content. `update` shows a status; unless `isLatest`, a later change of the person is under way. */
interface Part {
  content: HTMLElement[];
  update(status: Status, isLatest: boolean): void;
}

/** Turns a call into a listener that announces the result. */
type Run = (work: () => Promise<Result>) => () => Promise<void>;

/** Returns what draws the content again when the state changes, and keeps it up to date. */
export function follow(place: Place, offered: OfferedTopic[], wording: Wording): (status: Status) => void {
  let drawn = "";
  let sync = (_: Status) => {};
  return (status) => {
    const seen = place.look(status);
    const state = seen.on ? "on" : seen.state;
    if (state !== drawn) sync = draw(place, seen, offered, wording);
    drawn = state;
    sync(status);
  };
}

/** Draws the content for a state. Returns what keeps it up to date while the state lasts, so that the focus stays. */
function draw(
  place: Place,
  { state, on, way }: Drawn,
  offered: OfferedTopic[],
  { lang, dir, t }: Wording,
): (status: Status) => void {
  const { client, root, said } = place;
  const hadFocus = root.activeElement;
  let running = 0;
  const run: Run = (work) => async () => {
    running++;
    const result = await work().catch(() => ({}) as Result);
    running--;
    if (place.isCurrent()) said.textContent = announcement(result, t);
  };
  const topics = topicList(place, on, offered, lang, t, run);
  const mute = muteControls(client, lang, t, run);
  const data = storedData(client, t, run);
  const act = on
    ? button(
        "off",
        t.turn_off,
        run(() => client.unsubscribe()),
      )
    : way === "ask" && button("on", t.turn_on, run(topics.subscribe));
  const hint =
    way && way !== "ask" ? guide(way, t) : !act && make("p", "hint", {}, state === "denied" ? t.denied : t.unsupported);
  Object.assign(said, { lang, dir, textContent: "" });
  root.querySelector("section")?.remove();
  said.before(
    make(
      "section",
      "settings",
      { "aria-labelledby": "title", lang, dir },
      make("h2", "title", { id: "title" }, t.preferences),
      hint,
      ...(act ? topics.content : []),
      ...(on ? mute.content : []),
      act && make("div", "actions", {}, act),
      ...(on ? data.content : []),
    ),
  );
  if (hadFocus && act) act.focus();

  return (status) => {
    if (status.state === "pending") said.textContent = t.pending;
    // The response to an earlier change must not undo a later one.
    for (const part of [topics, mute, data]) part.update(status, running < 2);
  };
}

function announcement(result: Result, t: Texts): string {
  if (result.ok) return t.saved;
  if (result.retrying) return t.pending;
  return /^(dismissed|denied)$/.test(result.reason) ? "" : t.failed;
}

/** Label with a checkbox. */
function choice(box: HTMLInputElement, name: string, title: string, description?: string | null): HTMLElement {
  const text = make("span", "", {}, title, !!description && make("span", "description", {}, description));
  return make("label", name, {}, box, text);
}

function topicList(
  { client, root, subscribe }: Place,
  on: boolean,
  offered: OfferedTopic[],
  lang: string,
  t: Texts,
  run: Run,
): Part & { subscribe: () => Promise<Result> } {
  // What the person before left ticked must not become a wish of the next one.
  const former = on ? [...root.querySelectorAll<HTMLInputElement>(".topics input")] : [];
  let subscribed: string[] = [];
  const checked = () => boxes.flatMap(({ checked, value }) => (checked ? value : []));
  const save = run(() => {
    const kept = subscribed.filter((name) => !offered.some((topic) => topic.name === name));
    return client.setTopics([...kept, ...checked()]);
  });
  const boxes = offered.map(({ name }) => {
    const box = make("input", "", { type: "checkbox", value: name, change: () => void (on && save()) });
    // Consent is a choice, so that no topic is ticked before it.
    box.checked = former.some(({ value, checked }) => checked && value === name);
    return box;
  });
  const list = offered.map((topic, i) => {
    const { title, description } = inLanguage(topic.texts, lang) ?? topic;
    return choice(boxes[i]!, "topic", title, description);
  });
  return {
    content: list.length ? [make("fieldset", "topics", {}, make("legend", "", {}, t.topics), ...list)] : [],
    update(status, isLatest) {
      subscribed = status.state === "subscribed" ? status.topics : [];
      for (const box of boxes) {
        // While the server has not answered, its topics are unknown.
        box.disabled = status.state === "pending";
        if (status.state === "subscribed" && isLatest) box.checked = subscribed.includes(box.value);
      }
    },
    subscribe: () =>
      subscribe({ ...(offered.length && { topics: checked() }), consentSource: t.preferences.slice(0, 200) }),
  };
}

/** Checkbox that mutes for good, and button that mutes for a week. */
function muteControls(client: Client, lang: string, t: Texts, run: Run): Part {
  let isPaused = false;
  const set = (choose: () => Parameters<Client["setMuted"]>[0]) =>
    run(async () => {
      const result = await client.setMuted(choose());
      if (!result.ok) show(result.status); // a refused choice must not look like the state
      return result;
    });
  const box: HTMLInputElement = make("input", "", {
    type: "checkbox",
    change: set(() => (box.checked ? {} : null)),
  });
  const note = make("p", "paused", { hidden: "" });
  const pause = button(
    "pause",
    t.pause,
    set(() => (isPaused ? null : { until: new Date(clock.now() + WEEK_MS) })),
  );
  const show = (status: Status) => {
    if (status.state !== "subscribed") return;
    const { muted } = status;
    isPaused = !!muted?.until;
    box.checked = !!muted && !isPaused;
    pause.hidden = box.checked;
    pause.textContent = isPaused ? t.resume : t.pause;
    note.hidden = !isPaused;
    note.textContent = isPaused ? t.paused.replace("{date}", dateIn(lang, muted!.until!)) : "";
  };
  return {
    content: [choice(box, "important", t.important), note, make("div", "actions", {}, pause)],
    update(status, isLatest) {
      box.disabled = pause.disabled = status.state === "pending";
      if (isLatest) show(status);
    },
  };
}

/** Date in a language. Pages also write tags such as `pt_BR`, which `Intl` rejects. */
const dateIn = (lang: string, at: string) =>
  new Intl.DateTimeFormat(lang.replace(/_/g, "-"), { dateStyle: "full" }).format(new Date(at));

function storedData(client: Client, t: Texts, run: Run): Part {
  // Rejects without a token, which the server withholds from browsers of a user without proof of that user.
  const download = run(async () => {
    const { id, token } = (await client.credentials())!;
    const response = await fetch(`${base(client.options)}/subscriptions/${id}`, {
      credentials: "omit",
      headers: { Authorization: `Bearer ${token}` },
    });
    if (response.ok) make("a", "", { download: "data.json", href: URL.createObjectURL(await response.blob()) }).click();
    return response as { ok: boolean } as Result;
  });
  const list = make("dl");
  const summary = make("summary", "", {}, t.data);
  return {
    content: [make("details", "data", {}, summary, list, button("download", t.data_download, download))],
    update(status) {
      list.replaceChildren();
      if (status.state !== "subscribed") return;
      const rows = [
        [t.data_id, status.id],
        [t.data_user, status.userId],
        [t.data_tags, status.tags.join(", ")],
      ] as const;
      for (const [name, value] of rows) if (value) list.append(make("dt", "", {}, name), make("dd", "", {}, value));
    },
  };
}
