import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const at = new URL("../../src/ui/", import.meta.url);
const read = (language) => JSON.parse(readFileSync(new URL(`texts/${language}.json`, at), "utf8"));
const LANGUAGES = ["ar", "de", "en", "es", "fr", "it", "ja", "nl", "pl", "pt", "tr", "zh"];
const english = read("en");

describe("texts of the elements", () => {
  it("exist in twelve languages", () => {
    expect(readdirSync(new URL("texts", at)).sort()).toEqual(LANGUAGES.map((language) => `${language}.json`));
    const table = readFileSync(new URL("texts.ts", at), "utf8");
    for (const language of LANGUAGES) expect(table).toContain(`import("./texts/${language}.json")`);
  });

  it.each(LANGUAGES)("are complete: %s", (language) => {
    const texts = read(language);
    expect(Object.keys(texts)).toEqual(Object.keys(english));
    for (const [name, text] of Object.entries(texts)) {
      expect(text.trim(), name).toBe(text);
      expect(text.length, name).toBeGreaterThan(0);
      expect(text.length, name).toBeLessThanOrEqual(300);
      expect(text.match(/\{\w+\}/g), name).toEqual(english[name].match(/\{\w+\}/g));
      expect(text.match(/16\.4/), name).toEqual(english[name].match(/16\.4/) && expect.anything());
    }
    const same = Object.keys(texts).filter((name) => texts[name] === english[name]);
    if (language !== "en") expect(same.length, `${same} in English`).toBeLessThanOrEqual(2);
  });

  it("are all used", () => {
    const files = ["prompt.ts", "guide.ts", "bell.ts", "preferences.ts", "preferences_form.ts", "device.ts"];
    const code = files.map((file) => readFileSync(new URL(file, at), "utf8")).join("\n");
    for (const name of Object.keys(english)) expect(code, name).toMatch(new RegExp(`\\bt\\.${name}\\b|"${name}"`));
  });
});
