import type { Funnel } from "../../lib/figures";
import { share } from "../../lib/format";
import { FunnelSteps, type FunnelStep } from "../../ui/funnel";

const WITHOUT_TOKEN = "unknown: sent without a receipt token";

const steps = ({ accepted, asked, displayed, clicked, unknowable, silent }: Funnel, why: string): FunnelStep[] => [
  { word: "Delivered to push services", n: accepted, share: undefined },
  { word: "With receipt", n: asked, share: share(asked, accepted), rest: { n: unknowable, words: why } },
  {
    word: "Shown",
    n: displayed,
    share: share(displayed, asked),
    rest: { n: silent, words: "not reported: not shown yet, or the browser does not report" },
  },
  { word: "Clicked", n: clicked, share: share(clicked, displayed) },
];

/** Funnel from accepted to clicked, with shares of their possible totals. Unknown parts are hatched; `why` has the reason. */
export function FunnelFigure({ funnel, why = WITHOUT_TOKEN }: { funnel: Funnel; why?: string }) {
  return <FunnelSteps steps={steps(funnel, why)} whole={funnel.accepted} />;
}
