import { describe, expect, it } from "vitest";
import { fieldsOf, listed, Refusal, refusal } from "../src/api/problem";

describe("a problem", () => {
  it("uses the server's texts and pointers", () => {
    const body = {
      detail: "Two members are wrong.",
      code: "invalid",
      errors: [
        { pointer: "/origin", detail: "must be an origin" },
        { parameter: "until", detail: "lies ahead" },
      ],
    };
    const told = new Refusal(422, body);
    expect([told.message, told.code, told.fault("/origin"), told.fault("/other")]).toEqual([
      "Two members are wrong.",
      "invalid",
      "must be an origin",
      undefined,
    ]);
    expect(told.faults.map(({ where }) => where)).toEqual(["/origin", "until"]);
  });

  it("counts fields that show all faults", () => {
    const faults = ["/content/title", "/content/title", "/ttl"].map((where) => ({ where, detail: "is wrong" }));
    expect(fieldsOf({ faults }, /^\/(content\/title|ttl)$/)).toBe(2);
    expect([fieldsOf({ faults }, /^\/ttl$/), fieldsOf({ faults: [] }, /./), fieldsOf(undefined, /./)]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });

  it("lists each fault once, without a pointer", () => {
    const [wrong, other] = [
      { pointer: "/content/title", detail: "must not be empty" },
      { pointer: "/ttl", detail: "is too long" },
    ];
    expect(listed(new Refusal(422, { detail: "Two members are wrong.", errors: [wrong, wrong, other] }))).toEqual([
      { where: "content, title", detail: "must not be empty" },
      { where: "ttl", detail: "is too long" },
    ]);
    expect(listed(new Refusal(422, { detail: "title must not be empty", errors: [wrong] }))).toEqual([]);
  });

  it("has words where the server has none", () => {
    for (const cut of [
      new TypeError("Failed to fetch"),
      new DOMException("The operation was aborted.", "AbortError"),
    ]) {
      expect(refusal(cut).message).toBe("The server does not respond.");
    }
    expect(new Refusal(502, undefined).message).toBe("The server responded 502 without a reason.");
    expect(new Refusal(429, {}, new Headers({ "retry-after": "7" })).retryAfterS).toBe(7);
  });

  it("is not made of mistakes of our own", () => {
    expect(() => refusal(new RangeError("ours"))).toThrow("ours");
  });
});
