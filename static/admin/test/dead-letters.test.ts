import { describe, expect, it } from "vitest";
import { adviceOf } from "../src/lib/dead-letters";
import { REASON_NAMES } from "../src/lib/words";

const letter = (more: object) =>
  ({
    reason: "bad_request",
    state: "open",
    status: 400,
    detail: "The request\n is malformed.",
    gateway: "fcm",
    retries: 0,
    subscription: "sub_1",
    ...more,
  }) as Parameters<typeof adviceOf>[0];

describe("the advice", () => {
  it("quotes the error of the letter", () => {
    expect(adviceOf(letter({}))).toMatch(
      /^Google responded with 400: “The request is malformed”. A replay sends the same request/,
    );
    expect(
      adviceOf(letter({ reason: "retries_exhausted", status: null, detail: null, gateway: "mozilla", retries: 3 })),
    ).toBe("Mozilla did not respond, after 3 retries. Replay this letter when the push service is healthy.");
    expect(adviceOf(letter({ gateway: "other", detail: null }))).toMatch(
      /^Another push service responded with 400. A replay/,
    );
    expect(adviceOf(letter({ reason: "unrenderable", status: null, detail: "name is undefined" }))).toMatch(
      /^The error of this delivery: “name is undefined”. Set the attribute/,
    );
  });

  it("asks for no action once it is settled", () => {
    expect(adviceOf(letter({ state: "replayed" }))).toMatch(/No action: this letter was replayed.$/);
    expect(adviceOf(letter({ state: "discarded" }))).toMatch(/No action/);
  });

  it("exists for each reason", () => {
    for (const reason of REASON_NAMES) expect(adviceOf(letter({ reason, detail: null })).length).toBeGreaterThan(20);
  });
});
