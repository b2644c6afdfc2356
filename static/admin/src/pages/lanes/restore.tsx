import type { LaneResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { duration } from "../../lib/format";
import { PRUNED_WITHIN, restoreWords } from "../../lib/lanes";
import { serviceName } from "../../lib/words";
import { useAction } from "../../ui/action";
import { Dialog } from "../../ui/dialog";
import { Refused } from "../../ui/shown";
import { useState } from "preact/hooks";
import { restorePruned } from "./load";

/** Counts subscriptions of a lane that were pruned lately, and restores them. */
export function RestoreDialog({
  lane,
  onClose,
  onDone,
}: {
  lane: LaneResponse;
  onClose: () => void;
  onDone: () => unknown;
}) {
  const [seconds, choose] = useState<number>(PRUNED_WITHIN[0]);
  const [found, setFound] = useState<{ since: Date; until: Date; n: number }>();
  const [restored, setRestored] = useState<number>();
  const count = useAction(async () => {
    const until = clock.now();
    const since = new Date(until.getTime() - seconds * 1_000);
    setFound({ since, until, n: await restorePruned(lane, since, until, true) });
  });
  const restore = useAction(async () => {
    if (!found) return;
    setRestored(await restorePruned(lane, found.since, found.until, false));
    void onDone();
  });
  const isBusy = count.isBusy || restore.isBusy;
  return (
    <Dialog title="Restore pruned subscriptions?" onClose={onClose}>
      <p>
        Subscriptions that {serviceName(lane.gateway)} reported as gone become active again. Unsubscribed, erased and
        replaced subscriptions are not restored. A subscription that does not exist is pruned again with the next
        message.
      </p>
      <label class="field">
        <span>Pruned within the last</span>
        <select
          name="seconds"
          id="restore-seconds"
          disabled={isBusy || restored !== undefined}
          onChange={(event) => {
            choose(Number(event.currentTarget.value));
            setFound(undefined);
          }}
        >
          {PRUNED_WITHIN.map((choice) => (
            <option key={choice} value={choice} selected={choice === seconds}>
              {duration(choice)}
            </option>
          ))}
        </select>
      </label>
      {found && (
        <p id="restore-found" role="status">
          {restoreWords(found.n, restored)}
        </p>
      )}
      <p class="fine">The audit log records this with your name.</p>
      <Refused problem={count.problem ?? restore.problem} />
      <p class="row end">
        <button type="button" onClick={onClose}>
          {restored === undefined ? "Cancel" : "Close"}
        </button>
        {restored === undefined && !found && (
          <button type="button" class="primary" id="count-pruned" disabled={isBusy} onClick={() => void count.run()}>
            Count
          </button>
        )}
        {restored === undefined && found && (
          <button
            type="button"
            class="primary"
            id="restore-pruned"
            disabled={isBusy || found.n === 0}
            onClick={() => void restore.run()}
          >
            Restore
          </button>
        )}
      </p>
    </Dialog>
  );
}
