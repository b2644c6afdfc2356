import type { Edit } from "../../api/edit";
import type { AppResponse, Policy, PolicyResponse, PolicyPreviewResponse } from "../../api/types";
import { things } from "../../lib/format";
import { changes } from "../../lib/policies";
import { useResource } from "../../lib/resource";
import { useAction } from "../../ui/action";
import { Dialog } from "../../ui/dialog";
import { Refused, Shown } from "../../ui/shown";
import { loadFlow, set, type PlaceName } from "./load";

interface Props {
  app: AppResponse;
  place: PlaceName;
  name: string;
  /** New policy; null: removes the policy. */
  policy: Policy | null;
  before: PolicyPreviewResponse | undefined;
  after: PolicyPreviewResponse | undefined;
  onClose: () => void;
  onSaved: () => unknown;
  edit: Edit<PolicyResponse>;
}

/** Shows the effect of a change, also on waiting deliveries, before it is saved or removed. */
export function SaveDialog({ app, place, name, policy, before, after, onClose, onSaved, edit }: Props) {
  const flow = useResource(`due ${app.id}`, (stop) => loadFlow(app.id, stop), { everyS: 3_600 });
  const { run, isBusy, problem } = useAction(async () => {
    await edit.save((condition) => set(app.id, place, name, policy, condition));
    await onSaved();
  });
  const title = policy ? "Save this policy" : "Remove this policy";
  return (
    <Dialog title={`${title}?`} onClose={onClose}>
      {policy && before && after ? (
        <ul class="changes">
          {changes(before, after).map((sentence) => (
            <li key={sentence}>{sentence}</li>
          ))}
        </ul>
      ) : (
        <p>{policy ? "This policy replaces the current policy." : NEXT[place]}</p>
      )}
      <p>The change takes effect within a minute, also for retries of waiting deliveries.</p>
      <Shown of={flow} what="waiting deliveries">
        {({ waiting, waiting_or_more }) => (
          <p class="fine">
            At the moment {waiting_or_more && "at least "}
            {things(waiting, "delivery", "deliveries")} of {app.name} {waiting === 1 ? "is" : "are"} due, in all its
            tiers and topics.
          </p>
        )}
      </Shown>
      <p class="fine">The audit log records this with your name.</p>
      <Refused problem={problem} />
      <p class="row end">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="primary" id="confirm-policy" disabled={isBusy} onClick={() => run()}>
          {policy ? "Save" : "Remove"}
        </button>
      </p>
    </Dialog>
  );
}

const NEXT: Record<PlaceName, string> = {
  tiers: "The built-in policy of the tier and the server’s breaker settings apply again.",
  topics: "Messages to this topic use the policy of their subscription again, or else of their tier.",
  subscriptions: "Messages to this subscription use the policy of their topic again, or else of their tier.",
};
