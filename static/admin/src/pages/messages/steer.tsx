import type { AppResponse, MessageResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { consequence, STEERING_WORDS, type Standing, type Steering } from "../../lib/messages";
import { zone } from "../../lib/preferences";
import { useAction } from "../../ui/action";
import { Dialog } from "../../ui/dialog";
import { Refused } from "../../ui/shown";
import { TypedForm } from "../../ui/typed";
import { steer } from "./load";

interface Props {
  app: AppResponse;
  message: MessageResponse;
  steering: Steering;
  /** Current counts: they are updated while the dialog is open. */
  it: Standing;
  onClose: () => void;
  onSteered: () => unknown;
}

/** Shows the effect of an action, with counts, before it is carried out. */
export function SteerDialog({ app, message, steering, it, onClose, onSteered }: Props) {
  const title = STEERING_WORDS[steering];
  const work = async () => {
    await steer(steering, app.id, message.id);
    await onSteered();
    onClose();
  };
  const { run, isBusy, problem } = useAction(work);
  const words = consequence(steering, it, clock.shown.value, zone.value);
  const accepted = message.counts?.accepted ?? 0;
  if (steering === "withdraw" && accepted > 1)
    return (
      <Dialog title={`${title} this message?`} onClose={onClose}>
        <TypedForm n={accepted} verb="withdraw" button={`${title} message`} id="steer" work={work} onLeave={onClose}>
          <p id="consequence">{words}</p>
        </TypedForm>
      </Dialog>
    );
  return (
    <Dialog title={`${title} this message?`} onClose={onClose}>
      <p id="consequence">{words}</p>
      <Refused problem={problem} />
      <p class="row end">
        <button type="button" onClick={onClose}>
          Close
        </button>
        <button type="button" class="primary" id="steer" disabled={isBusy} onClick={() => run()}>
          {title} message
        </button>
      </p>
    </Dialog>
  );
}
