import { base } from "../shared/saved";
import { button, icon, make } from "./dom";
import { BellwireElement, isOn, type Kit } from "./kit";
import { Preferences } from "./preferences";

const BELL = "M6 17v-6a6 6 0 0 1 12 0v6l2 1H4zM10 21h4";
const OFF = `${BELL}M3 3l18 18`;

/** Ids of the app's displayed notifications. None where the browser does not list them, as in tabs on iPhones. */
async function displayed(kit: Kit): Promise<string[]> {
  if (kit.preview) return kit.preview;
  const own = base(kit.client.options);
  try {
    const registrations = await navigator.serviceWorker.getRegistrations();
    const lists = await Promise.all(registrations.map((registration) => registration.getNotifications()));
    return lists
      .flat()
      .flatMap(({ data }) => (data?.bellwire && (data.bellwire.app ?? own) === own ? [data.bellwire.id] : []));
  } catch {
    return [];
  }
}

export class Bell extends BellwireElement {
  protected async start(kit: Kit, isCurrent: () => boolean): Promise<void> {
    const { prompt } = await kit.config;
    const { lang, dir, t } = await this.wording(prompt.texts, kit.texts);
    if (!isCurrent()) return;
    const badge = make("span", "badge", { "aria-hidden": "true" });
    const bell = button("bell", "", async () => {
      kit.memory.save({ read: await displayed(kit) });
      void update();
      open();
    });
    const preferences = new Preferences();
    preferences.opener = this;
    const dialog = make(
      "dialog",
      "dialog",
      { "aria-label": t.preferences, lang, dir },
      make(
        "div",
        "actions",
        {},
        button("close", t.close, () => dialog.close()),
      ),
    );
    const open = () => {
      preferences.client = kit.client;
      if (!preferences.isDrawn) preferences.remove(); // so that it starts again
      dialog.prepend(preferences);
      dialog.showModal();
    };
    let latest = 0;
    const update = async () => {
      const turn = ++latest;
      const [status, shown] = await Promise.all([kit.client.status(), displayed(kit)]);
      if (turn !== latest) return;
      const { read } = kit.memory.load();
      const unread = shown.filter((id) => !read.includes(id)).length;
      const words = [t.bell, isOn(status) ? t.bell_on : t.bell_off, unread && t.unread.replace("{n}", `${unread}`)];
      bell.setAttribute("aria-label", words.filter(Boolean).join(", "));
      badge.hidden = !unread;
      badge.textContent = unread > 9 ? "9+" : `${unread}`;
      bell.replaceChildren(icon(isOn(status) ? BELL : OFF), badge);
    };
    bell.setAttribute("aria-haspopup", "dialog");
    this.root.replaceChildren(make("div", "", { lang, dir }, bell, dialog));
    for (const event of ["change", "message"] as const) this.ends.push(kit.client.on(event, update));
    this.listen(document, "visibilitychange", update);
    await kit.client.ready;
    await update();
  }
}
