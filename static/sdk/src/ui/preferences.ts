import type { Result, Status } from "../api";
import { base } from "../shared/saved";
import { button, make } from "./dom";
import { BellwireElement, type Config, isOn, type Kit, wayNow } from "./kit";
import { guide } from "./prompt";
import { inLanguage, type Wording } from "./texts";

export class Preferences extends BellwireElement {
  // It stays on the page, so that screen readers announce its text.
  #said = this.root.appendChild(make("p", "status", { role: "status" }));
  #section: HTMLElement | undefined;

  protected async start(kit: Kit, isCurrent: () => boolean): Promise<void> {
    const [config] = await Promise.all([kit.config, kit.client.ready]);
    const wording = await this.wording(config.prompt, kit);
    const status = await kit.client.status();
    if (!isCurrent()) return;
    let drawn = "";
    let sync = (_: Status) => {};
    const update = (now: Status) => {
      const state = isOn(now) ? "on" : now.state;
      if (state !== drawn) sync = this.#draw(kit, now, config, wording);
      drawn = state;
      sync(now);
    };
    update(status);
    this.ends.push(kit.client.on("change", update));
  }

  /** Draws the element for a state. Returns what keeps it up to date while the state lasts, so that the focus stays. */
  #draw({ client }: Kit, first: Status, { topics }: Config, { lang, dir, t }: Wording): (status: Status) => void {
    const said = this.#said;
    const isCurrent = this.run();
    const on = isOn(first);
    const way = wayNow(first);
    // What the person before left ticked must not become a wish of the next one.
    const former = on ? this.#boxes() : [];
    const hadFocus = this.root.activeElement;
    let now = first;

    let running = 0;
    const run = (work: () => Promise<Result>) => async () => {
      running++;
      const result = await work().catch(() => ({}) as Result);
      running--;
      if (!isCurrent()) return;
      said.textContent = result.ok
        ? t.saved
        : result.retrying
          ? t.pending
          : /^(dismissed|denied)$/.test(result.reason)
            ? ""
            : t.failed;
    };
    const checked = () => this.#boxes().flatMap(({ checked, value }) => (checked ? value : []));
    const save = run(() => {
      const all = now.state === "subscribed" ? now.topics : [];
      const kept = all.filter((name) => !topics.some((topic) => topic.name === name));
      return client.setTopics([...kept, ...checked()]);
    });
    const list = topics.map((topic) => {
      const { title, description } = inLanguage(topic.texts, lang) ?? topic;
      const box = make("input", "", { type: "checkbox", value: topic.name, change: () => void (on && save()) });
      // Consent is a choice, so that no topic is ticked before it.
      box.checked = former.some(({ value, checked }) => checked && value === topic.name);
      return make(
        "label",
        "topic",
        {},
        box,
        make("span", "", {}, title, !!description && make("span", "description", {}, description)),
      );
    });
    const subscribe = () =>
      client.subscribe({ ...(topics.length && { topics: checked() }), consentSource: t.preferences.slice(0, 200) });
    const act = on
      ? button(
          "off",
          t.turn_off,
          run(() => client.unsubscribe()),
        )
      : way === "ask" && button("on", t.turn_on, run(subscribe));
    const hint =
      way && way !== "ask"
        ? guide(way, t)
        : !act && make("p", "hint", {}, first.state === "denied" ? t.denied : t.unsupported);
    const data = make("dl");
    // Rejects without a token, which the server withholds from browsers of a user without proof of that user.
    const download = run(async () => {
      const { id, token } = (await client.credentials())!;
      const response = await fetch(`${base(client.options)}/subscriptions/${id}`, {
        credentials: "omit",
        headers: { Authorization: `Bearer ${token}` },
      });
      if (response.ok)
        make("a", "", { download: "data.json", href: URL.createObjectURL(await response.blob()) }).click();
      return response as { ok: boolean } as Result;
    });
    Object.assign(said, { lang, dir, textContent: "" });
    this.#section?.remove();
    this.#section = make(
      "section",
      "settings",
      { "aria-labelledby": "title", lang, dir },
      make("h2", "title", { id: "title" }, t.preferences),
      hint,
      !!act && !!list.length && make("fieldset", "topics", {}, make("legend", "", {}, t.topics), ...list),
      act && make("div", "actions", {}, act),
      on &&
        make(
          "details",
          "data",
          {},
          make("summary", "", {}, t.data),
          data,
          button("download", t.data_download, download),
        ),
    );
    said.before(this.#section);
    if (hadFocus && act) act.focus();

    return (status) => {
      now = status;
      data.replaceChildren();
      if (status.state === "pending") said.textContent = t.pending;
      // While the server has not answered, its topics are unknown.
      for (const box of this.#boxes()) box.disabled = status.state === "pending";
      if (status.state !== "subscribed") return;
      // The response to an earlier change must not undo a later one.
      if (running < 2) for (const box of this.#boxes()) box.checked = status.topics.includes(box.value);
      const rows = [
        [t.data_id, status.id],
        [t.data_user, status.userId],
        [t.data_tags, status.tags.join(", ")],
      ] as const;
      for (const [name, value] of rows) if (value) data.append(make("dt", "", {}, name), make("dd", "", {}, value));
    };
  }

  #boxes(): HTMLInputElement[] {
    return [...this.root.querySelectorAll("input")];
  }
}
