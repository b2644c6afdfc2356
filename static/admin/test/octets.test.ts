import { describe, expect, it } from "vitest";
import type { Notification } from "../src/api/types";
import { CONTENT_MAX, meterWords, octets, SHRUNK_FROM } from "../src/lib/octets";
import cases from "./sizes.json";

describe("the meter", () => {
  // The server's own test reads the same file.
  it.each(cases)("counts as the server does: $name", ({ site, content, octets: expected }) => {
    expect(octets(content as Notification, site ?? undefined)).toBe(expected);
  });

  it("distinguishes fitting, shrinkable and impossible sizes", () => {
    expect(meterWords(SHRUNK_FROM).tone).toBe("accepted");
    expect(meterWords(SHRUNK_FROM + 1)).toEqual({
      tone: "retrying",
      words: expect.stringContaining("leaves out the image"),
    });
    expect(meterWords(CONTENT_MAX).tone).toBe("retrying");
    expect(meterWords(CONTENT_MAX + 1).tone).toBe("lost");
  });
});
