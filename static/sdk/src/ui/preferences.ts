import type { Details, Status } from "../api";
import { make } from "./dom";
import { accept, pageOf } from "./funnel";
import { BellwireElement, isOn, type Kit, wayNow } from "./kit";
import { style } from "./style";

export class Preferences extends BellwireElement {
  // It stays on the page, so that screen readers announce its text.
  #said = this.root.appendChild(make("p", "status", { role: "status" }));

  /** Element by which a person opened this one, and reads an explanation if its content cannot be loaded. */
  opener: Element | undefined;

  /** Whether the content is there. Its download may have failed. */
  get isDrawn(): boolean {
    return !!this.root.querySelector("section");
  }

  protected async start(kit: Kit, isCurrent: () => boolean): Promise<void> {
    const { client } = kit;
    const [form, { prompt, topics }] = await Promise.all([
      import("./preferences_form").catch(console.error), // the next start tries again
      kit.config,
      client.ready,
    ]);
    const wording = await this.wording(prompt.texts, kit.texts);
    const status = await client.status();
    if (!isCurrent()) return;
    if (!form) {
      if (this.opener) this.#said.textContent = wording.t.failed;
      return;
    }
    style(this.root, form.STYLE);
    const place = {
      client,
      isCurrent,
      root: this.root,
      said: this.#said,
      look: (now: Status) => ({ state: now.state, on: isOn(now), way: wayNow(now) }),
      subscribe: (details: Details) =>
        accept(kit, details, { layout: "preferences", page: pageOf(this.opener ?? this) }),
    };
    const update = form.follow(place, topics, wording);
    update(status);
    this.ends.push(client.on("change", update));
  }
}
