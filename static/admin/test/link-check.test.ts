import { describe, expect, it } from "vitest";
import { linkWords } from "../src/lib/link-check";

describe("a link check", () => {
  it.each([
    [200, null, "accepted", "The page responds with 200."],
    [404, null, "lost", "The page does not exist: 404."],
    [302, "timeout", "retrying", "No response in time after a redirect to https://shop.example/."],
    [
      302,
      null,
      "retrying",
      "The link redirects too often, or to a server that cannot be checked. Last page: https://shop.example/.",
    ],
    [403, null, "retrying", "The page responds with 403: it may require a login."],
    [500, null, "retrying", "The page responds with 500."],
    [null, "resolve", "retrying", "The link could not be checked: its host was not found."],
    [null, "unprocessed", "retrying", "The link could not be checked: there was no response."],
  ] as const)("of %s %s is %s", (status, failure, tone, words) =>
    expect(linkWords({ url: "https://shop.example/", status, failure })).toEqual({ tone, words }),
  );
});
