// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { describe, expect, it } from "vitest";
import { Text } from "../src/pages/composer/fields";

describe("a field", () => {
  it("shows faults of the page after typing", async () => {
    const root = document.body;
    const draw = (value: string) =>
      act(() =>
        render(
          h(Text, { label: "Number", name: "n", value, change: () => {}, hint: "1 to 9", check: "is no number" }),
          root,
        ),
      );
    const shown = () => root.querySelector("p")?.textContent;
    await draw("x");
    expect(shown()).toBe("It is no number.");
    const input = root.querySelector("input");
    await act(() => void input?.dispatchEvent(new Event("input", { bubbles: true })));
    expect(shown()).toBe("1 to 9");
    await act(() => void input?.dispatchEvent(new Event("change", { bubbles: true })));
    expect(shown()).toBe("It is no number.");
    expect(input?.getAttribute("aria-invalid")).toBe("true");
  });
});
