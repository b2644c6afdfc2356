import { useState } from "preact/hooks";
import type { AppResponse, SegmentPreview } from "../../api/types";
import { count, share } from "../../lib/format";
import { noMatchWords } from "../../lib/segments";
import { useAction } from "../../ui/action";
import { Refused } from "../../ui/shown";
import { preview } from "./load";

/** Size of a segment with its margin of error; counted on request. */
export function ReachFigure({
  app,
  segment,
  shown,
  isOld,
}: {
  app: AppResponse;
  segment: string;
  shown: SegmentPreview;
  isOld: boolean;
}) {
  const [exact, setExact] = useState<{ of: string; shown: SegmentPreview }>();
  const { run, isBusy, problem } = useAction(async () =>
    setExact({ of: segment, shown: await preview(app.id, segment, true) }),
  );
  const { reach, warnings = [], expression } = exact?.of === segment ? exact.shown : shown;
  return (
    <div class="reach" id="reach" data-old={isOld || undefined}>
      <p>
        <strong class="large">{count(reach.count)}</strong>{" "}
        {reach.margin > 0 && <span class="number">± {count(reach.margin)}</span>} of {count(reach.of)} active
        subscriptions
        {reach.of > 0 && <span class="soft">, {share(reach.count, reach.of).split(" of ")[0]}</span>}.
      </p>
      <p class="fine">
        {reach.exact ? "Counted just now." : "Estimated from a sample, with the 95 % margin."}{" "}
        {!reach.exact && (
          <button type="button" class="plain" id="count-exactly" disabled={isBusy} onClick={() => run()}>
            {isBusy ? "Counting…" : "Count exactly"}
          </button>
        )}
      </p>
      {reach.count === 0 && reach.of > 0 && (
        <p class="fine" data-tone="retrying" id="no-match">
          {noMatchWords(expression)}
        </p>
      )}
      {warnings.map(({ detail }) => (
        <p key={detail} class="fine" data-tone="retrying">
          It {detail}.
        </p>
      ))}
      <Refused problem={problem} />
    </div>
  );
}
