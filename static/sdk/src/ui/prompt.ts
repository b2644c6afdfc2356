import type { Failure } from "../api";
import { clock } from "../shared/clock";
import type { Way } from "./device";
import { button, make } from "./dom";
import { accept, pageOf, type Question, reportSteps, type Step } from "./funnel";
import { guide } from "./guide";
import { BellwireElement, isStandalone, type Kit, wayNow } from "./kit";
import { isDue, type Layout, PLAIN, type PromptSettings, variantOf } from "./settings";
import type { Wording } from "./texts";

const DAY_MS = 86_400_000;

export class Prompt extends BellwireElement {
  // The region is there before its content, so that screen readers announce the content.
  #region = this.root.appendChild(make("div", "", { "aria-live": "polite" }));
  #isHeard: Promise<void> | undefined;
  #box: HTMLElement | undefined;
  #focused: Element | null = null;
  #unfollow = () => {};

  protected async start(kit: Kit, isCurrent: () => boolean): Promise<void> {
    this.#isHeard = clock.wait(100); // until then screen readers do not know the region
    const [{ prompt }] = await Promise.all([kit.config, kit.client.ready]);
    if (!prompt.enabled || !isCurrent()) return;
    const began = clock.now();
    const isFirstStart = isStandalone() && kit.memory.load().visits < 2;
    let isDone = false;
    const look = async () => {
      if (isDone) return;
      const now = clock.now();
      const { scrollHeight } = document.documentElement;
      const scrolled = ((scrollY + innerHeight) / scrollHeight) * 100;
      if (
        !isDue(prompt, {
          ...kit.memory.load(),
          now,
          scrolled,
          seconds: (now - began) / 1000,
          suggested: kit.suggested,
          isFirstStart,
        })
      )
        return;
      isDone = true; // before waiting: other events call this in the meantime
      await this.show();
    };
    this.listen(globalThis, "scroll", look);
    kit.waiting.add(look);
    this.ends.push(() => kit.waiting.delete(look), clock.later(prompt.seconds * 1000, look));
    await look();
  }

  /** Shows the prompt at once, unless there is nothing to ask. Returns whether it is shown. */
  async show(): Promise<boolean> {
    const { kit } = this;
    if (!kit) return false;
    const { client, memory } = kit;
    const isCurrent = this.run();
    const { prompt } = await kit.config;
    const variant = variantOf(prompt, memory.load().draw);
    const wording = await this.wording(prompt.texts, variant?.texts ?? {}, kit.texts);
    await this.#isHeard;
    const way = wayNow(await client.status());
    if (!way || !isCurrent() || this.#box?.isConnected) return false;
    this.#unfollow = client.on("change", (now) => wayNow(now) || this.#close());
    const layout = this.#layout(variant?.layout ?? prompt.layout);
    const { shown, visits, question: reported } = memory.load();
    // All steps of a visit have the page on which it was reported, so that shares by page are right.
    const question: Question = (shown === visits && reported) || { layout, variant: variant?.name, page: pageOf(this) };
    const wait = (days: number) => memory.save({ until: clock.now() + days * DAY_MS });
    const later = (days: number, step: Step & ("later" | "no")) => () => {
      if (!this.#box?.isConnected) return;
      wait(days);
      this.#close();
      this.report(step);
      // The end of a guide is no answer.
      if (way === "ask") reportSteps(kit, question, [step]);
    };
    const notNow = later(prompt.not_now_days, "later");
    this.#draw(layout, wording, way, notNow, later(prompt.no_days, "no"), async () => {
      const { topics } = prompt;
      const consentSource = wording.t.title.slice(0, 200);
      const asked = accept(kit, { ...(topics.length && { topics }), consentSource }, question);
      this.#close();
      this.report("accepted");
      const { reason } = (await asked) as Partial<Failure>;
      if (reason === "dismissed") wait(prompt.not_now_days);
    });
    this.report("shown");
    if (shown !== visits) reportSteps(kit, question, [way === "ask" ? "shown" : "guided"]);
    memory.save({ shown: visits, question });
    return true;
  }

  #layout(layout: Layout | undefined): Layout {
    return (this.getAttribute("layout") as Layout | null) ?? layout ?? "card";
  }

  /** Shows what visitors would see with these settings. Its buttons do nothing. */
  override async preview(settings: Partial<PromptSettings>, way: Way = "ask"): Promise<void> {
    super.disconnectedCallback();
    this.#unfollow();
    const isCurrent = this.run();
    const { layout, texts }: PromptSettings = { ...PLAIN, ...settings };
    const wording = await this.wording(texts);
    if (isCurrent()) this.#draw(this.#layout(layout), wording, way);
  }

  #draw(layout: Layout, wording: Wording, way: Way, later?: () => void, no?: () => void, accept?: () => void): void {
    const { lang, dir, t } = wording;
    const isModal = layout === "dialog" && !!later;
    const title = make("h2", "title", { id: "title" }, way === "ask" ? t.title : t.install_title);
    const notNow = button("later", way === "ask" ? t.later : t.close, later);
    notNow.autofocus = isModal; // Enter must not answer for good
    const choices = way === "ask" ? [button("no", t.no, no), notNow, button("accept", t.accept, accept)] : [notNow];
    const box = make(
      isModal ? "dialog" : "section",
      layout,
      { "aria-labelledby": "title", lang, dir },
      title,
      way === "ask" ? make("p", "body", {}, t.body) : guide(way, t),
      make("div", "actions", {}, ...choices),
    );
    this.#box?.remove();
    this.#box = box;
    (isModal || !later ? this.root : this.#region).append(box);
    if (!later) return;
    this.#focused = document.activeElement;
    box.addEventListener(
      "focusin",
      (event) => (this.#focused = ((event as FocusEvent).relatedTarget as Element | null) ?? this.#focused),
      { once: true },
    );
    box.addEventListener("keydown", (event) => (event as KeyboardEvent).key === "Escape" && later());
    box.addEventListener("cancel", later);
    if (isModal) (box as HTMLDialogElement).showModal();
  }

  /** Closes the prompt and returns the focus to where it was. */
  #close(): void {
    this.#unfollow();
    const hadFocus = this.root.activeElement;
    this.#box?.remove();
    if (hadFocus) (this.#focused as HTMLElement | null)?.focus?.();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#close();
  }
}
