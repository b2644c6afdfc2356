import type { Funnel } from "../../lib/figures";
import { share } from "../../lib/format";
import { Count } from "../../ui/numbers";

interface Step {
  word: string;
  n: number;
  share: string | undefined;
  /** Hatched part, up to the number of accepted deliveries. */
  rest: { n: number; words: string } | undefined;
}

const WITHOUT_TOKEN = "unknown: sent without a receipt token";

const steps = ({ accepted, asked, displayed, clicked, unknowable, silent }: Funnel, why: string): Step[] => [
  { word: "Delivered to push services", n: accepted, share: undefined, rest: undefined },
  { word: "With receipt", n: asked, share: share(asked, accepted), rest: { n: unknowable, words: why } },
  {
    word: "Shown",
    n: displayed,
    share: share(displayed, asked),
    rest: { n: silent, words: "not reported: not shown yet, or the browser does not report" },
  },
  { word: "Clicked", n: clicked, share: share(clicked, displayed), rest: undefined },
];

/** Funnel from accepted to clicked, with shares of their possible totals. Unknown parts are hatched; `why` has the reason. */
export function FunnelFigure({ funnel, why = WITHOUT_TOKEN }: { funnel: Funnel; why?: string }) {
  const width = (n: number) => ({
    width: `${funnel.accepted === 0 ? 0 : Math.min(100, (n / funnel.accepted) * 100)}%`,
  });
  return (
    <ol class="funnel">
      {steps(funnel, why).map(({ word, n, share, rest }) => (
        <li key={word}>
          <p>
            {word}{" "}
            <strong>
              <Count n={n} />
            </strong>{" "}
            {share && <span class="fine">{share}</span>}
          </p>
          <div class="bar" aria-hidden="true">
            <span class="known" style={width(n)} />
            {rest && rest.n > 0 && <span class="unknown" style={width(rest.n)} />}
          </div>
          {rest && rest.n > 0 && (
            <p class="fine">
              <Count n={rest.n} /> {rest.words}
            </p>
          )}
        </li>
      ))}
    </ol>
  );
}
