import { describe, expect, it } from "vitest";
import { isZone, zoneFault } from "../src/lib/time-zone";

describe("a time zone", () => {
  it("is a name in the time-zone data", () => {
    expect(["UTC", "Europe/Vienna", "america/new_york", "Europe/Viena", "soon", ""].map(isZone)).toEqual([
      true,
      true,
      true,
      false,
      false,
      false,
    ]);
  });

  it.each([
    ["Europe/Viena", "Europe/Vienna"],
    ["Vienna", "Europe/Vienna"],
    ["New York", "America/New_York"],
    ["Europe/Viennas", "Europe/Vienna"],
    ["Nowhere", "a name such as Europe/Vienna"],
  ])("has a suggestion for %s", (written, suggestion) =>
    expect(zoneFault(written)).toBe(`is unknown: write ${suggestion}`),
  );

  it("is only missing while it is empty", () => {
    expect([zoneFault(""), zoneFault(" "), zoneFault("UTC")]).toEqual([undefined, undefined, undefined]);
  });
});
