import { useRef, useState } from "preact/hooks";
import type { AppResponse, ExplanationResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { consequenceOf, report, TURN_WORDS, type Subject, type Turn } from "../../lib/deliveries";
import { zone } from "../../lib/preferences";
import { useAction } from "../../ui/action";
import { Dialog } from "../../ui/dialog";
import { Refused } from "../../ui/shown";
import { take, type Known } from "./load";

interface TurnProps {
  turn: Turn;
  app: AppResponse;
  known: Known;
  onClose: () => void;
  onTaken: () => void;
}

/** Shows the effect of an action on the one delivery before it is carried out. */
export function TurnDialog({ turn, app, known, onClose, onTaken }: TurnProps) {
  const { title } = TURN_WORDS[turn];
  const { message, subscription } = known.explanation;
  const { run, isBusy, problem } = useAction(async () => {
    await take(turn, app.id, message, subscription);
    onTaken();
  });
  return (
    <Dialog title={`${title}?`} onClose={onClose}>
      <p>{consequenceOf(turn, { ...known.found, due_at: known.delivery?.due_at }, clock.shown.value, zone.value)}</p>
      <Refused problem={problem} />
      <p class="row end">
        <button type="button" onClick={onClose}>
          Close
        </button>
        <button type="button" class="primary" id="take" disabled={isBusy} onClick={() => run()}>
          {title}
        </button>
      </p>
    </Dialog>
  );
}

/** The story as plain text, to see before it is copied. */
export function ReportDialog({
  explanation,
  subject,
  onClose,
}: {
  explanation: ExplanationResponse;
  subject: Subject;
  onClose: () => void;
}) {
  // As it was when it was opened: what is copied is what was read.
  const [text] = useState(() => report(explanation, subject));
  const [told, tell] = useState("");
  const shown = useRef<HTMLPreElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      tell("Copied.");
    } catch {
      // The browser does not let us: over plain http, say.
      if (shown.current) getSelection()?.selectAllChildren(shown.current);
      tell("The browser does not allow copying here. The text is selected: copy it with the keyboard.");
    }
  };
  return (
    <Dialog title="Report for a ticket" onClose={onClose}>
      <pre ref={shown} class="report" id="report-text" tabIndex={0}>
        {text}
      </pre>
      <p class="fine">The report has the person and the ids, but no content and no endpoint.</p>
      <p class="row end">
        <span role="status">{told}</span>
        <button type="button" class="primary" id="copy" onClick={() => void copy()}>
          Copy
        </button>
      </p>
    </Dialog>
  );
}
