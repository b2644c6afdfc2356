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
        <p>{policy ? "What holds at present is not known; this policy replaces it." : NEXT[place]}</p>
      )}
      <p>It holds within a minute, also for the retries of what is under way.</p>
      <Shown of={flow} what="what is under way">
        {({ waiting, waiting_or_more }) => (
          <p class="fine">
            Right now {waiting_or_more && "at least "}
            {things(waiting, "delivery", "deliveries")} of {app.name} {waiting === 1 ? "is" : "are"} due, in all its tiers and topics.
          </p>
        )}
      </Shown>
      <p class="fine">It stands in the audit log, with your name.</p>
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
  tiers: "The tier’s built-in policy holds again, with the server’s breaker.",
  topics: "Messages to this topic get their subscription’s policy again, or else their tier’s.",
  subscriptions: "What is sent to this subscription gets its topic’s policy again, or else its tier’s.",
};
