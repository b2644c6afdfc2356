/** Findings of checks, as texts. Pure. */
import type { CheckResult } from "../api/types";
import { count } from "./format";
import type { Tone } from "./words";

export const HEALTH_WORDS: Record<CheckResult["health"], { word: string; tone: Tone }> = {
  failure: { word: "Failed", tone: "lost" },
  warning: { word: "Needs attention", tone: "retrying" },
  ok: { word: "Passed", tone: "accepted" },
};

/** Findings that need an action, most severe first as the server orders them, and the others. */
export function grouped(findings: readonly CheckResult[]): { wrong: CheckResult[]; right: CheckResult[] } {
  return {
    wrong: findings.filter(({ health }) => health !== "ok"),
    right: findings.filter(({ health }) => health === "ok"),
  };
}

const things = (n: number) => (n === 1 ? "One check" : `${n} checks`);

/** All findings in one sentence. */
export function state(findings: readonly CheckResult[]): { tone: Tone; words: string } {
  const n = (health: CheckResult["health"]) => findings.filter((finding) => finding.health === health).length;
  const [failures, warnings] = [n("failure"), n("warning")];
  if (failures === 0 && warnings === 0) return { tone: "accepted", words: "All checks passed" };
  const rest = warnings === 0 ? "" : `, ${warnings} more ${warnings === 1 ? "needs" : "need"} attention`;
  if (failures > 0) return { tone: "lost", words: `${things(failures)} failed${rest}` };
  return { tone: "retrying", words: `${things(warnings)} ${warnings === 1 ? "needs" : "need"} attention` };
}

/** A detail with separators in its numbers, but for code in backticks, addresses, ports and years: `10,013 active`. */
export const separated = (detail: string): string =>
  detail
    .split("`")
    .map((part, n) =>
      n % 2 === 1
        ? part
        : part.replace(/(?<![\w.:/-]|port )\d{4,}(?![\w:/-]|\.\d)/g, (digits) =>
            /^(?:19|20)\d\d$/.test(digits) ? digits : count(Number(digits)),
          ),
    )
    .join("`");

/** `api keys` as a title: `API keys`. */
export function titleOf(check: string): string {
  if (check.startsWith("api ")) return `API ${check.slice(4)}`;
  return check.slice(0, 1).toUpperCase() + check.slice(1);
}
