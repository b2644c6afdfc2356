import type { Funnel } from "../../lib/figures";
import { FunnelFigure } from "../overview/funnel";

/** Reports of browsers; null: unknown. `why`: reason why some browsers do not report. */
export function Reported({ funnel, why }: { funnel: Funnel | null; why?: string }) {
  if (!funnel) return <p class="soft">It was sent without Bellwire’s envelope, so its pushes carry no receipt token. Displays are unknown.</p>;
  if (funnel.accepted === 0) return <p class="soft">Nothing was accepted yet. What browsers show and people click is counted here.</p>;
  return (
    <>
      <FunnelFigure funnel={funnel} {...(why ? { why } : {})} />
      <p class="fine">Displayed and clicked count the reports of browsers, so they are minimums.{!why && " Safari does not report notifications that it displays by itself."}</p>
    </>
  );
}
