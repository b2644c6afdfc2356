// @vitest-environment happy-dom
import { h, render } from "preact";
import { LocationProvider } from "preact-iso";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { Refusal } from "../src/api/problem";
import type { AppResponse, MeasurementSettings, SessionResponse } from "../src/api/types";
import {
  isMeasured,
  lacksOfMeasurement,
  measurementDraft,
  measurementOf,
  USUAL_PARAMETERS,
} from "../src/lib/measurement";
import * as load from "../src/pages/settings/load";
import { Measurement } from "../src/pages/settings/measurement";
import { HereContext } from "../src/shell/context";

vi.mock("../src/pages/settings/load", { spy: true });

const NONE: MeasurementSettings = { window: null, after: "clicked", attribution: "last", link_tags: null };
const FULL: MeasurementSettings = {
  window: "7d",
  after: "displayed",
  attribution: "first",
  link_tags: { hosts: ["shop.example", "*.shop.example"], parameters: { utm_source: "push", ref: "a=b" } },
};

describe("settings", () => {
  it.each([NONE, FULL, { ...FULL, window: null }, { ...FULL, link_tags: null }])("round-trip: %j", (settings) =>
    expect(measurementOf(measurementDraft(settings))).toEqual(settings),
  );

  it("begin with the parameters of the server", () => {
    const draft = { ...measurementDraft({}), isTagged: true, hosts: "shop.example" };
    expect(draft.parameters).toBe(USUAL_PARAMETERS);
    expect(measurementOf({ ...draft, window: " 36h " })).toEqual({
      window: "36h",
      after: "clicked",
      attribution: "last",
      link_tags: {
        hosts: ["shop.example"],
        parameters: {
          utm_source: "push",
          utm_medium: "web-push",
          utm_campaign: "{campaign}",
          utm_content: "{variant}",
        },
      },
    });
  });

  it("need hosts and valid parameters for tags", () => {
    const draft = { ...measurementDraft(NONE), isTagged: true };
    expect(lacksOfMeasurement(draft)).toBe("Enter the hosts whose links get parameters.");
    expect(lacksOfMeasurement({ ...draft, hosts: "a.example", parameters: "x" })).toBe("Correct the parameters.");
    expect(lacksOfMeasurement({ ...draft, hosts: "a.example" })).toBeUndefined();
    expect(lacksOfMeasurement({ ...draft, isTagged: false, parameters: "x" })).toBeUndefined();
  });

  it("can be removed if they do something", () => {
    expect([NONE, FULL, { ...NONE, window: "1d" }, { ...FULL, window: null }].map(isMeasured)).toEqual([
      false,
      true,
      true,
      true,
    ]);
  });
});

const APP = { id: "app_1", slug: "shop", name: "Shop" } as AppResponse;
const settle = () => vi.advanceTimersByTimeAsync(100);

/** The form on a server with these settings, for a teammate with this role. */
async function form(begin: MeasurementSettings, role = "operator") {
  const server = { settings: begin };
  vi.spyOn(load, "loadMeasurement").mockImplementation(async () => server.settings);
  vi.spyOn(load, "setMeasurement").mockImplementation(async (_, settings) => (server.settings = settings));
  vi.spyOn(load, "removeMeasurement").mockImplementation(async () => void (server.settings = NONE) as never);
  const place = document.body.appendChild(document.createElement("div"));
  const session = { roles: [{ role, app: "app_1" }] } as SessionResponse;
  const here = { session, apps: [APP], app: APP, refreshApps: async () => {} };
  render(h(LocationProvider, {}, h(HereContext.Provider, { value: here }, h(Measurement, {}))), place);
  await settle();
  const press = async (selector: string) => {
    place.querySelector<HTMLElement>(selector)?.click();
    await settle();
  };
  const fill = async (name: string, value: string) => {
    const field = place.querySelector<HTMLInputElement>(`[name=${name}]`)!;
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    await settle();
  };
  const submit = async () => {
    place.querySelector("form")?.dispatchEvent(new SubmitEvent("submit", { cancelable: true }));
    await settle();
  };
  return { server, place, press, fill, submit, notice: () => place.querySelector("[role=status]")?.textContent };
}

describe("the form", () => {
  beforeEach(() => {
    vi.useFakeTimers();
    return () => {
      vi.useRealTimers();
      document.body.replaceChildren();
    };
  });

  it("saves tags only with hosts", async () => {
    const { server, place, press, fill, submit, notice } = await form(NONE);
    await fill("window", "14d");
    await press("[name=tagged]");
    expect(place.querySelector<HTMLButtonElement>("#save-measurement")?.disabled).toBe(true);
    await fill("hosts", "shop.example\n*.shop.example");
    await submit();
    expect([server.settings.window, server.settings.link_tags?.hosts, notice()]).toEqual([
      "14d",
      ["shop.example", "*.shop.example"],
      "Saved.",
    ]);
  });

  it("shows faults of the server at their fields", async () => {
    const { place, submit } = await form(FULL);
    const errors = [
      { pointer: "/window", detail: "must be a span from 1h to 30d, such as `7d`" },
      { pointer: "/link_tags/hosts/1", detail: "must be a host" },
    ];
    vi.spyOn(load, "setMeasurement").mockRejectedValue(new Refusal(422, { detail: "invalid", errors } as never));
    await submit();
    expect([...place.querySelectorAll(".fault")].map((fault) => fault.textContent)).toEqual([
      "It must be a span from 1h to 30d, such as 7d.",
      "Line 2 must be a host.",
    ]);
    expect(place.querySelector("[role=alert]")?.textContent).toBe("2 fields need attention.");
  });

  it("removes the settings after a question", async () => {
    const { server, place, press, notice } = await form(FULL);
    await press("#remove-measurement");
    place.querySelector("dialog form")?.dispatchEvent(new SubmitEvent("submit", { cancelable: true }));
    await settle();
    expect([server.settings, notice(), place.querySelector("#remove-measurement")]).toEqual([NONE, "Removed.", null]);
  });

  it("is disabled without permission", async () => {
    const { place } = await form(FULL, "viewer");
    expect([place.querySelector("fieldset")?.disabled, place.querySelector("#save-measurement")]).toEqual([true, null]);
  });
});
