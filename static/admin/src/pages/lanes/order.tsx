import type { FlowResponse, LaneResponse } from "../../api/types";
import { consequence, LENGTHS, lengthWords, ORDER_WORDS, type Order } from "../../lib/lanes";
import { useAction } from "../../ui/action";
import { Dialog } from "../../ui/dialog";
import { Refused } from "../../ui/shown";
import { give, type OrderBody } from "./load";

interface Props {
  order: Order;
  lane: LaneResponse;
  flow: FlowResponse | undefined;
  onClose: () => void;
  onGiven: () => void;
}

/** Shows the effect of an order, with counts, before it is given. */
export function OrderDialog({ order, lane, flow, onClose, onGiven }: Props) {
  const { title, lasts, reasoned } = ORDER_WORDS[order];
  const { run, isBusy, problem } = useAction(async (body: OrderBody) => {
    await give(order, lane.lane, body);
    onGiven();
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const written = new FormData(event.currentTarget as HTMLFormElement);
    const reason = String(written.get("reason") ?? "").trim();
    void run({ ...(lasts ? { seconds: Number(written.get("seconds")) } : {}), ...(reason ? { reason } : {}) });
  };
  return (
    <Dialog title={`${title}?`} onClose={onClose}>
      <form onSubmit={submit}>
        <p>{consequence(order, lane, flow)}</p>
        {lasts && (
          <label class="field">
            <span>Duration</span>
            <select name="seconds" id="order-seconds">
              {LENGTHS.map((seconds) => (
                <option key={seconds} value={seconds} selected={seconds === 3_600}>
                  {lengthWords(seconds)}
                </option>
              ))}
            </select>
          </label>
        )}
        {reasoned && (
          <label class="field">
            <span>Reason (for the audit log)</span>
            <input name="reason" id="order-reason" maxLength={200} autocomplete="off" />
          </label>
        )}
        <p class="fine">The audit log records this with your name.</p>
        <Refused problem={problem} />
        <p class="row end">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" id="give-order" disabled={isBusy}>
            {title}
          </button>
        </p>
      </form>
    </Dialog>
  );
}
