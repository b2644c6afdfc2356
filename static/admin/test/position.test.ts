import { expect, it } from "vitest";
import { marked } from "../src/lib/position";

it("fault is located by characters", () => {
  expect(marked("größe 🙂 = ", "at character 9: expected a sign")).toEqual(["größe 🙂 ", "=", " "]);
  expect(marked("a =", "at character 4: expected a value")).toEqual(["a =", "\u00a0", ""]);
  expect(marked("a", "must be 0 to 100")).toBeUndefined();
});
