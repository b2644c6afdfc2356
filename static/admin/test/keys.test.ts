// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { asksSearch, isOurs, Keys, step } from "../src/lib/keys";
import { ALL_PAGES as PAGES, GROUPS, pageOf } from "../src/pages";

describe("keys", () => {
  it("open each page by g and its letter", () => {
    const keys = new Keys();
    for (const { letter, path } of PAGES) {
      expect(keys.read("g", 0)).toBeUndefined();
      expect(keys.read(letter, 1_000)).toEqual({ kind: "go", path });
    }
    keys.read("g", 0);
    expect(keys.read("l", 2_000)).toBeUndefined();
    expect(new Set(PAGES.map(({ letter }) => letter)).size).toBe(PAGES.length);
    expect(PAGES.map(({ letter }) => letter).filter((letter) => "gjk?/".includes(letter))).toEqual([]);
  });

  it("ask for help, search and rows", () => {
    const keys = new Keys();
    expect(["?", "/", "j", "k", "q"].map((key) => keys.read(key, 0)?.kind)).toEqual([
      "help",
      "search",
      "step",
      "step",
      undefined,
    ]);
  });

  it("ignore text input and browser shortcuts", () => {
    document.body.innerHTML = "<input><dialog><button></button></dialog><p></p>";
    const pressed = (selector: string, more: KeyboardEventInit = {}) => {
      let ours: boolean | undefined;
      const listener = (event: Event) => (ours = isOurs(event as KeyboardEvent));
      document.addEventListener("keydown", listener, { once: true });
      document
        .querySelector(selector)!
        .dispatchEvent(new KeyboardEvent("keydown", { key: "g", bubbles: true, ...more }));
      return ours;
    };
    expect([pressed("p"), pressed("input"), pressed("dialog button"), pressed("p", { ctrlKey: true })]).toEqual([
      true,
      false,
      false,
      false,
    ]);
  });

  it("lead to the search from fields", () => {
    const pressed = (more: KeyboardEventInit) => asksSearch(new KeyboardEvent("keydown", { key: "k", ...more }));
    expect([
      pressed({ ctrlKey: true }),
      pressed({ metaKey: true }),
      pressed({}),
      pressed({ ctrlKey: true, altKey: true }),
      pressed({ ctrlKey: true, key: "j" }),
    ]).toEqual([true, true, false, false, false]);
  });

  it("walk through rows and stop at the ends", () => {
    document.body.innerHTML =
      "<table><tr data-row><td><a href='#1'>1</a></td></tr><tr data-row><td><a href='#2'>2</a></td></tr></table>";
    const walked = ([1, 1, 1, -1, -1] as const).map((by) => (step(by), document.activeElement?.textContent));
    expect(walked).toEqual(["1", "2", "2", "1", "1"]);
  });
});

describe("the navigation", () => {
  it("has five groups", () => {
    expect(GROUPS.map(({ title, pages }) => [title, ...pages.map(({ title }) => title)].join(" "))).toEqual([
      "Send Messages Campaigns Calendar Templates",
      "Audience Subscribers Segments Frequency",
      "Delivery Deliveries Push services Failed deliveries Policies",
      "Connect Webhooks Import & export",
      "Admin Settings Checks",
    ]);
  });

  it("marks the page of former addresses", () => {
    expect([pageOf("/lanes/3"), pageOf("/push-services"), pageOf("/")].map((page) => page?.title)).toEqual([
      "Push services",
      "Push services",
      "Overview",
    ]);
  });
});
