// @vitest-environment happy-dom
import { h, render } from "preact";
import { LocationProvider } from "preact-iso";
import { beforeEach, expect, it, vi } from "vitest";
import type { AppResponse, SessionResponse } from "../src/api/types";
import * as load from "../src/pages/settings/load";
import { Prompt } from "../src/pages/settings/prompt";
import { HereContext } from "../src/shell/context";

const APP = { id: "app_1", slug: "shop", name: "Shop" } as AppResponse;
const SESSION = { roles: [{ role: "operator", app: "app_1" }] } as SessionResponse;
const BEGIN: load.PromptSettings = {
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
};

const settle = () => vi.advanceTimersByTimeAsync(100);

/** The editor on a server with these settings. */
async function editor() {
  const server = { prompt: BEGIN };
  vi.spyOn(load, "loadPrompt").mockImplementation(async () => server.prompt);
  vi.spyOn(load, "setPrompt").mockImplementation(async (_, prompt) => (server.prompt = prompt));
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
  return { server, place, field, fill, save };
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
