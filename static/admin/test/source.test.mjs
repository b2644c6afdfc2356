import { readdirSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";

it("makes no text into markup or code anywhere", () => {
  const files = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((name) => /\.tsx?$/.test(name));
  const found = files.filter((name) =>
    /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/i.test(
      readFileSync(`src/${name}`, "utf8"),
    ),
  );
  expect([files.length > 20, found]).toEqual([true, []]);
});
