import { useState } from "preact/hooks";
import type { AppResponse, DeadLetterActionResult } from "../../api/types";
import { things } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { reasonWords } from "../../lib/words";
import { useAction } from "../../ui/action";
import { Dialog } from "../../ui/dialog";
import { Refused, Shown } from "../../ui/shown";
import { handle, type Handling, type Kind } from "./load";

interface Props {
  app: AppResponse;
  handling: Handling;
  kind: Pick<Kind, "reason">;
  /** Of this error alone, as in the URL. */
  error: string | undefined;
  /** Of this message alone. */
  message: string | undefined;
  onClose: () => void;
  onHandled: () => unknown;
}

const letters = (n: number) => things(n, "dead letter");

/** Counts first, asks for confirmation, acts, and shows the result. */
export function HandleDialog({ app, handling, kind, error, message, onClose, onHandled }: Props) {
  const [done, setDone] = useState<DeadLetterActionResult>();
  const filter = { reason: kind.reason, message, error };
  const dryRun = useResource(
    `${handling} ${app.id} ${kind.reason} ${message ?? ""} ${error ?? ""}`,
    () => handle(handling, app.id, filter, true),
    { everyS: 3_600 },
  );
  const { run, isBusy, problem } = useAction(async () => {
    setDone(await handle(handling, app.id, filter, false));
    onHandled();
  });
  const title = handling === "replay" ? "Replay" : "Discard";
  return (
    <Dialog title={`${title}: ${reasonWords(kind.reason).title.toLowerCase()}`} onClose={onClose}>
      {done ? (
        <>
          <p role="status" id="handled">
            {handling === "replay" ? "Replayed" : "Discarded"}: {letters(done.handled)}.
            {done.remaining > 0 && ` Left: ${letters(done.remaining)}; repeat the action.`}
          </p>
          <p class="row end">
            <button type="button" onClick={onClose}>
              Close
            </button>
          </p>
        </>
      ) : (
        <Shown of={dryRun} what="the dry run">
          {(counted) => (
            <>
              <p>{handling === "replay" ? whatReplayDoes(counted) : whatDiscardDoes(counted)}</p>
              <Refused problem={problem} />
              <p class="row end">
                <button type="button" onClick={onClose}>
                  Cancel
                </button>
                <button
                  type="button"
                  class="primary"
                  id="handle"
                  disabled={isBusy || reached(handling, counted) === 0}
                  onClick={() => run()}
                >
                  {title} {letters(reached(handling, counted))}
                </button>
              </p>
            </>
          )}
        </Shown>
      )}
    </Dialog>
  );
}

/** Maximum of one request: the server's limit. */
const CAP = 10_000;
/** Discarding needs no reachable recipient. */
const reached = (handling: Handling, { matched, unreachable, user_left }: DeadLetterActionResult) =>
  Math.min(CAP, handling === "discard" ? matched : Math.max(0, matched - unreachable - user_left));

function whatReplayDoes(counted: DeadLetterActionResult): string {
  const left = [
    counted.unreachable > 0
      ? `${letters(counted.unreachable)} cannot be sent: the subscription is no longer active.`
      : "",
    counted.user_left > 0 ? `${letters(counted.user_left)} cannot be sent: another user has that browser now.` : "",
  ];
  const messages = things(counted.by_message?.length ?? 0, "message");
  return [
    `${letters(reached("replay", counted))} of ${messages} would be sent again to their recipients. A browser that has shown a notification drops the duplicate.`,
    ...left,
    "Fix the cause before replaying.",
  ]
    .filter(Boolean)
    .join(" ");
}

const whatDiscardDoes = (counted: DeadLetterActionResult): string =>
  `${letters(reached("discard", counted))} would be discarded: they stay in the archive until its retention ends, but can no longer be replayed.`;
