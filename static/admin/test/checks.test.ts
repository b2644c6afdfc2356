import { expect, test } from "vitest";
import type { CheckResult } from "../src/api/types";
import { grouped, separated, state, titleOf } from "../src/lib/checks";

const finding = (check: string, health: CheckResult["health"]): CheckResult => ({
  check,
  health,
  detail: "So it is.",
  advice: null,
  line: null,
});

test.each([
  [["ok", "ok"], "accepted", "All checks passed"],
  [["warning"], "retrying", "One check needs attention"],
  [["warning", "warning", "ok"], "retrying", "2 checks need attention"],
  [["failure"], "lost", "One check failed"],
  [["failure", "failure", "warning"], "lost", "2 checks failed, 1 more needs attention"],
] as const)("what was found in one sentence: %j", (healths, tone, words) => {
  expect(state(healths.map((health, n) => finding(`check ${n}`, health)))).toEqual({ tone, words });
});

test("actionable findings precede the others in server order", () => {
  const { wrong, right } = grouped([finding("a", "failure"), finding("b", "warning"), finding("c", "ok")]);
  expect([wrong.map(({ check }) => check), right.map(({ check }) => check)]).toEqual([["a", "b"], ["c"]]);
  expect([titleOf("api keys"), titleOf("old transactions")]).toEqual(["API keys", "Old transactions"]);
});

test.each([
  ["10013 subscriptions are active", "10,013 subscriptions are active"],
  ["4992 of 5000 partitions in 2026, on port 5432", "4,992 of 5,000 partitions in 2026, on port 5432"],
  ["It listens at 127.0.0.1:44407, `10013` is code", "It listens at 127.0.0.1:44407, `10013` is code"],
  ["9.123456 s, key_12345, 2026-11-27", "9.123456 s, key_12345, 2026-11-27"],
])("%s gets separators", (detail, text) => expect(separated(detail)).toBe(text));
