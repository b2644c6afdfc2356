// @vitest-environment happy-dom
import { h, render } from "preact";
import { LocationProvider } from "preact-iso";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { Refusal } from "../src/api/problem";
import type { AppResponse, PromptSettings, SessionResponse } from "../src/api/types";
import { shownSettings, variantDrafts, variantFaults, variantsOf, withText, withVariant } from "../src/lib/prompt";
import * as load from "../src/pages/settings/load";
import { Prompt } from "../src/pages/settings/prompt";
import { HereContext } from "../src/shell/context";

const APP = { id: "app_1", slug: "shop", name: "Shop" } as AppResponse;
const SESSION = { roles: [{ role: "operator", app: "app_1" }] } as SessionResponse;
const BEGIN: PromptSettings = {
  enabled: false,
  layout: "card",
  topics: [],
  visits: 1,
  seconds: 0,
  scroll_percent: 0,
  event: null,
  share_percent: 100,
  no_days: 90,
  not_now_days: 7,
  texts: {},
  variants: [],
};
const TWO: PromptSettings = {
  ...BEGIN,
  texts: { de: { title: "Neues?", body: "Einmal die Woche." } },
  variants: [
    { name: "long", weight: 1, layout: null, texts: {} },
    { name: "short", weight: 3, layout: "bar", texts: { de: { title: "Kurz?" } } },
  ],
};

const settle = () => vi.advanceTimersByTimeAsync(100);

/** The editor on a server with these settings. */
async function editor(begin = BEGIN) {
  const server = { prompt: begin };
  vi.spyOn(load, "loadPrompt").mockImplementation(async () => server.prompt);
  vi.spyOn(load, "setPrompt").mockImplementation(async (_, prompt) => (server.prompt = prompt));
  vi.spyOn(load, "loadFunnel").mockImplementation(async (_, query) => ({ ...query, groups: [] }));
  const place = document.body.appendChild(document.createElement("div"));
  const here = { session: SESSION, apps: [APP], app: APP, refreshApps: async () => {} };
  render(h(LocationProvider, {}, h(HereContext.Provider, { value: here }, h(Prompt, {}))), place);
  await settle();
  const field = (name: string) => place.querySelector<HTMLInputElement>(`[name=${name}]`)!;
  const fill = async (name: string, value: string) => {
    field(name).value = value;
    field(name).dispatchEvent(new Event("input", { bubbles: true }));
    await settle();
  };
  const save = async () => {
    place.querySelector("form")!.dispatchEvent(new SubmitEvent("submit", { cancelable: true }));
    await settle();
  };
  const press = async (selector: string) => {
    place.querySelector<HTMLElement>(selector)!.click();
    await settle();
  };
  return { server, place, field, fill, save, press };
}

vi.mock("../src/pages/settings/load", { spy: true });

beforeEach(() => {
  vi.useFakeTimers();
  return () => {
    vi.useRealTimers();
    document.body.replaceChildren();
  };
});

it("reports a saved prompt until the next edit", async () => {
  const { server, place, fill, save } = await editor();
  await fill("seconds", "10");
  await save();
  expect([server.prompt.seconds, place.querySelector("[role=status]")?.textContent]).toEqual([10, "Saved."]);
  await fill("seconds", "20");
  expect(place.querySelector("[role=status]")?.textContent).toBe("");
});

it("keeps edits while others change the prompt", async () => {
  const { server, field, fill } = await editor();
  await fill("seconds", "10");
  server.prompt = { ...BEGIN, visits: 3 };
  await vi.advanceTimersByTimeAsync(7_200_000);
  expect(field("seconds").value).toBe("10");
});

describe("variants", () => {
  it("round-trip through the form", () => expect(variantsOf(variantDrafts(TWO.variants))).toEqual(TWO.variants));

  it("begin as two, with free names", () => {
    const two = withVariant([]);
    expect(two).toEqual(["a", "b"].map((name) => ({ name, weight: "1", layout: null, texts: {} })));
    expect(withVariant(variantDrafts([{ ...TWO.variants[0]!, name: "b" }])).map(({ name }) => name)).toEqual([
      "b",
      "a",
    ]);
  });

  it("keep no empty texts", () => {
    const texts = { de: { title: "Kurz?", no: "Nie" } };
    expect(withText(texts, "de", "title", " ")).toEqual({ de: { no: "Nie" } });
    expect(withText({ de: { title: "Kurz?" } }, "de", "title", "")).toEqual({});
    expect(withText(texts, "fr", "title", "Bref ?")).toEqual({ ...texts, fr: { title: "Bref ?" } });
  });

  it("need unique names and whole weights", () => {
    const [one, two] = variantDrafts(TWO.variants);
    expect(variantFaults([one!, { ...two!, name: "long ", weight: "1001" }, { ...two!, name: "a b" }])).toEqual([
      { name: undefined, weight: undefined },
      { name: "must differ from the names of other variants", weight: "must be a whole number from 1 to 1,000" },
      { name: "must have 1 to 64 letters, digits, `_`, `-` or `.` and no others", weight: undefined },
    ]);
  });

  it("replace form and texts of the prompt", () => {
    const [long, short] = variantDrafts(TWO.variants);
    expect(shownSettings(TWO, long)).toEqual({ ...TWO, variants: [] });
    expect(shownSettings(TWO, short)).toEqual({
      ...TWO,
      layout: "bar",
      texts: { de: { title: "Kurz?", body: "Einmal die Woche." } },
      variants: [],
    });
  });

  it("are added, edited and saved", async () => {
    const { server, place, fill, save, press } = await editor();
    await fill("text_title", "News?");
    await press("#add-variant");
    expect(place.querySelector<HTMLInputElement>("[name=variant-title-1]")?.placeholder).toBe("News?");
    await fill("variant-name-1", "short");
    await fill("variant-weight-1", "2");
    await fill("variant-title-1", "Short?");
    const form = place.querySelector<HTMLSelectElement>("[name=variant-layout-1]")!;
    form.value = "dialog";
    form.dispatchEvent(new Event("change", { bubbles: true }));
    await settle();
    await save();
    expect([server.prompt.texts, server.prompt.variants]).toEqual([
      { en: { title: "News?" } },
      [
        { name: "a", weight: 1, layout: null, texts: {} },
        { name: "short", weight: 2, layout: "dialog", texts: { en: { title: "Short?" } } },
      ],
    ]);
  });

  it("are removed one by one", async () => {
    const { server, place, save, press } = await editor(TWO);
    await press("[data-variant='0'] button");
    await save();
    expect(server.prompt.variants).toEqual([TWO.variants[1]]);
    expect(place.querySelectorAll("[data-variant]").length).toBe(1);
  });

  it("cannot be saved with faults", async () => {
    const { place, fill } = await editor(TWO);
    await fill("variant-name-1", "long");
    expect(place.querySelector<HTMLButtonElement>("#change-prompt")?.disabled).toBe(true);
    expect(place.textContent).toContain("Correct the variants.");
  });

  it("are limited to five", async () => {
    const { place } = await editor({ ...TWO, variants: [..."abcde"].map((name) => ({ ...TWO.variants[0]!, name })) });
    expect(place.querySelector("#add-variant")).toBeNull();
  });

  it("show faults of the server at their fields", async () => {
    const { place, field, save } = await editor(TWO);
    const errors = [
      { pointer: "/variants/0/name", detail: "is reserved" },
      { pointer: "/variants/1/texts/de/title", detail: "must have at most 300 characters" },
      { pointer: "/visits", detail: "must be 1 to 100" },
      { pointer: "/topics/0", detail: "does not exist" },
    ];
    vi.spyOn(load, "setPrompt").mockRejectedValue(new Refusal(422, { detail: "invalid", errors } as never));
    await save();
    const fault = (name: string) => place.querySelector(`#${CSS.escape(field(name).id)}-about`)?.textContent;
    expect(
      ["variant-name-0", "variant-name-1", "variant-title-1", "variant-title-0", "visits", "topics"].map(fault),
    ).toEqual([
      "It is reserved.",
      undefined,
      "It must have at most 300 characters.",
      undefined,
      "It must be 1 to 100.",
      "It does not exist.",
    ]);
    expect([...place.querySelectorAll("details[open] summary")].map(({ textContent }) => textContent)).toEqual([
      "Texts in German",
    ]);
    expect(place.querySelector("[role=alert]")?.textContent).toBe("4 fields need attention.");
  });

  it("are what the preview can show", async () => {
    const { place, field, press } = await editor(TWO);
    // The DOM of these tests keeps results for `:checked`, also when a property changes.
    const choices = () => [...place.querySelectorAll<HTMLInputElement>("[name=preview]")];
    const chosen = () => choices().find(({ checked }) => checked)?.value;
    expect([...place.querySelectorAll(".preview-of-prompt label")].map(({ textContent }) => textContent)).toEqual([
      "Prompt",
      "long",
      "short",
    ]);
    expect(chosen()).toBe("");
    await press("[name=preview][value='1']");
    expect(chosen()).toBe("1");
    field("variant-name-0").dispatchEvent(new FocusEvent("focusin", { bubbles: true }));
    await settle();
    expect(chosen()).toBe("0");
    field("text_title").dispatchEvent(new FocusEvent("focusin", { bubbles: true }));
    await settle();
    expect(chosen()).toBe("");
  });
});
