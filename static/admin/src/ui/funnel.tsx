/** Steps of a funnel, as bars below their numbers. */
import { Count } from "./numbers";

export interface FunnelStep {
  word: string;
  n: number;
  share: string | undefined;
  /** Hatched part behind the bar. */
  rest?: { n: number; words: string } | undefined;
  /** Note below the bar. */
  about?: string | undefined;
}

/** Bars of `steps`, where `whole` is the full width. */
export function FunnelSteps({ steps, whole, id }: { steps: readonly FunnelStep[]; whole: number; id?: string }) {
  const width = (n: number) => ({ width: `${whole === 0 ? 0 : Math.min(100, (n / whole) * 100)}%` });
  return (
    <ol class="funnel" id={id}>
      {steps.map(({ word, n, share, rest, about }) => (
        <li key={word} data-step={word}>
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
          {about && <p class="fine">{about}</p>}
        </li>
      ))}
    </ol>
  );
}
