import type { Funnel } from "../../lib/figures";
import { FunnelFigure } from "../overview/funnel";

/** What browsers made of it; null: nobody can know. `why` says why some cannot be reported on. */
export function Reported({ funnel, why }: { funnel: Funnel | null; why?: string }) {
  if (!funnel) return <p class="soft">It was sent without Bellwire’s envelope, so its pushes carry no receipt token. Nobody can know who saw it.</p>;
  if (funnel.accepted === 0) return <p class="soft">Nothing was accepted yet. What browsers show and people click is counted here.</p>;
  return (
    <>
      <FunnelFigure funnel={funnel} {...(why ? { why } : {})} />
      <p class="fine">Displayed and clicked are what browsers told, so they are the least that happened.{!why && " Safari does not tell, where it shows a notification by itself."}</p>
    </>
  );
}
