import type { DryRun } from "../../api/types";
import { fullCount } from "../../lib/format";
import type { Check } from "./load";

/** How many would get it, as far as that is known before; `about` says what may still change that. */
export function Reach({ check: { counted, problem, isOld }, about }: { check: Check; about: (counted: DryRun) => string }) {
  if (!counted) {
    const isFaulty = problem?.faults.some(({ where }) => where.startsWith("/to"));
    return <p class="soft reach">{!problem ? "Counting…" : isFaulty ? "Nobody yet: see above." : "How many get it is counted once the rest is right."}</p>;
  }
  const { audience_estimate: n, audience_margin: margin } = counted;
  return (
    <p class="reach" id="reach" data-old={isOld || undefined}>
      <strong class="large">{fullCount(n)}</strong> {margin > 0 && <span class="number">± {fullCount(margin)}</span>} active {n === 1 ? "subscription" : "subscriptions"}, as {margin > 0 ? "estimated" : "counted"} now.
      <span class="fine">{about(counted)}</span>
    </p>
  );
}

/** What to know before it is sent, all the same. */
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
