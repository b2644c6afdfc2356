import { useState } from "preact/hooks";
import type { AppResponse, DeadLetterActionResult, MessageResponse } from "../../api/types";
import { things } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { reasonWords } from "../../lib/words";
import { useAction } from "../../ui/action";
import { Dialog } from "../../ui/dialog";
import { Refused, Shown } from "../../ui/shown";
import { sendAgain } from "./load";

/** Maximum of one request: the server's limit. */
const CAP = 10_000;
const people = (n: number) => things(n, "recipient");

interface Props {
  app: AppResponse;
  message: MessageResponse;
  onClose: () => void;
  onSent: () => unknown;
}

/** Counts the failed recipients of a message, then sends it again to those who are reachable. */
export function AgainDialog({ app, message, onClose, onSent }: Props) {
  const [sent, setSent] = useState<DeadLetterActionResult>();
  const dryRun = useResource(`again ${message.id}`, () => sendAgain(app.id, message.id, true), { everyS: 3_600 });
  const { run, isBusy, problem } = useAction(async () => {
    setSent(await sendAgain(app.id, message.id, false));
    void onSent();
  });
  return (
    <Dialog title="Resend to failed recipients?" onClose={onClose}>
      {sent ? (
        <Done sent={sent} onClose={onClose} />
      ) : (
        <Shown of={dryRun} what="its failed recipients">
          {(counted) => {
            const n = Math.min(CAP, Math.max(0, counted.matched - counted.unreachable - counted.user_left));
            return (
              <>
                <p id="consequence">{whatItDoes(counted, n)}</p>
                {counted.by_reason && counted.by_reason.length > 0 && (
                  <ul class="list">
                    {counted.by_reason.map(({ key, count }) => {
                      const { title, help } = reasonWords(key ?? "");
                      return (
                        <li key={key}>
                          <strong>{things(count, "failure")}</strong>: {title.toLowerCase()}.{" "}
                          <span class="fine">{help}</span>
                        </li>
                      );
                    })}
                  </ul>
                )}
                <Refused problem={problem} />
                <p class="row end">
                  <button type="button" onClick={onClose}>
                    Cancel
                  </button>
                  <button
                    type="button"
                    class="primary"
                    id="send-again"
                    disabled={isBusy || n === 0}
                    onClick={() => run()}
                  >
                    Resend to {people(n)}
                  </button>
                </p>
              </>
            );
          }}
        </Shown>
      )}
    </Dialog>
  );
}

function whatItDoes({ matched, unreachable, user_left }: DeadLetterActionResult, n: number): string {
  if (matched === 0) return "No open dead letters: they were replayed or discarded.";
  return [
    `The message is sent again to ${people(n)} only. A browser that has shown it drops the duplicate.`,
    unreachable > 0 ? `${people(unreachable)} cannot be reached: the subscription is no longer active.` : "",
    user_left > 0 ? `${people(user_left)} cannot be reached: another user has that browser now.` : "",
  ]
    .filter(Boolean)
    .join(" ");
}

function Done({ sent, onClose }: { sent: DeadLetterActionResult; onClose: () => void }) {
  const { link } = useFilters();
  const [first] = sent.messages;
  return (
    <>
      <p role="status" id="sent-again">
        Resent to {people(sent.handled)}.
        {sent.remaining > 0 && ` ${people(sent.remaining)} are left; repeat the action.`}
      </p>
      <p class="row end">
        {first && <a href={link(`/messages/${first}`)}>Show progress</a>}
        <button type="button" onClick={onClose}>
          Close
        </button>
      </p>
    </>
  );
}
