import type { Funnel } from "../../lib/figures";
import { FunnelFigure } from "../overview/funnel";

/** Reports of browsers; null: unknown. `why`: reason why some browsers do not report. */
export function Reported({ funnel, why }: { funnel: Funnel | null; why?: string }) {
  if (!funnel)
    return (
      <p class="soft">
        Sent without Bellwire’s envelope, so pushes have no receipt token. Shown and clicked are unknown.
      </p>
    );
  if (funnel.accepted === 0)
    return <p class="soft">No delivery was accepted yet. Shown and clicked notifications are counted here.</p>;
  return (
    <>
      <FunnelFigure funnel={funnel} {...(why ? { why } : {})} />
      <p class="fine">
        Shown and clicked are lower bounds: they count the reports of browsers.{!why && " Safari does not report."}
      </p>
    </>
  );
}
