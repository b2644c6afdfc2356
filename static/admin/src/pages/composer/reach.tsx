import type { DryRun } from "../../api/types";
import { count } from "../../lib/format";
import type { Check } from "./load";

/** Number of recipients, as far as known; `about` has the reasons for changes. */
export function Reach({
  check: { counted, problem, isOld },
  about,
}: {
  check: Check;
  about: (counted: DryRun) => string;
}) {
  if (!counted) {
    const isFaulty = problem?.faults.some(({ where }) => where.startsWith("/to"));
    return (
      <p class="soft reach">
        {!problem
          ? "Counting…"
          : isFaulty
            ? "Invalid audience: see above."
            : "The recipients are counted when the draft is valid."}
      </p>
    );
  }
  const { audience_estimate: n, audience_margin: margin } = counted;
  return (
    <p class="reach" id="reach" data-old={isOld || undefined}>
      <strong class="large">{count(n)}</strong> {margin > 0 && <span class="number">± {count(margin)}</span>} active{" "}
      {n === 1 ? "subscription" : "subscriptions"}, {margin > 0 ? "estimated" : "counted"} now.
      <span class="fine">{about(counted)}</span>
    </p>
  );
}

/** Warnings before sending. */
export function Warnings({ check: { counted } }: { check: Check }) {
  return (
    <>
      {counted?.warnings?.map(({ detail, pointer }) => (
        <p class="fine" key={detail}>
          {pointer && <code>{pointer.replace(/^\//, "")}</code>} {detail}
        </p>
      ))}
    </>
  );
}
