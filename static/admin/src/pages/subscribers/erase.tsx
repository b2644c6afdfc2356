import { useState } from "preact/hooks";
import type { AppResponse, ErasureResponse } from "../../api/types";
import { erasureWords, whatErasureTakes } from "../../lib/subscribers";
import { useResource } from "../../lib/resource";
import { useAction } from "../../ui/action";
import { Dialog } from "../../ui/dialog";
import { Refused, Shown } from "../../ui/shown";
import { erase, loadErasure, type Person } from "./load";

interface Props {
  app: AppResponse;
  person: Person;
  onClose: () => void;
  onErased: () => unknown;
}

/** Shows the data to delete, asks for the typed name, and shows the progress. */
export function EraseDialog({ app, person, onClose, onErased }: Props) {
  const user = person.user ?? "";
  const [begun, setBegun] = useState<ErasureResponse>();
  const [typed, setTyped] = useState("");
  const { run, isBusy, problem } = useAction(async () => {
    setBegun(await erase(app.id, user));
    void onErased();
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (typed === user) void run();
  };
  if (begun) {
    return (
      <Dialog title={`Erasing ${user}`} onClose={onClose}>
        <Progress app={app} begun={begun} />
        <p class="row end">
          <button type="button" onClick={onClose}>
            Close
          </button>
        </p>
      </Dialog>
    );
  }
  return (
    <Dialog title={`Erase ${user}?`} onClose={onClose}>
      <form onSubmit={submit}>
        <p>This cannot be undone. It deletes:</p>
        <ul class="bullets">
          {whatErasureTakes(person.devices, person.isAll).map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
        <p class="fine">
          The ids of the subscriptions are kept for the counts of past messages. The audit log records this with your
          name, without the user id.
        </p>
        <label class="field">
          <span>
            To confirm, type <code>{user}</code>
          </span>
          <input
            id="erase-name"
            value={typed}
            onInput={(event) => setTyped(event.currentTarget.value)}
            autocomplete="off"
            spellcheck={false}
            maxLength={300}
          />
        </label>
        <Refused problem={problem} />
        <p class="row end">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" id="erase-now" disabled={isBusy || typed !== user}>
            Erase
          </button>
        </p>
      </form>
    </Dialog>
  );
}

/** Polls every other second until the erasure is complete. */
function Progress({ app, begun }: { app: AppResponse; begun: ErasureResponse }) {
  const load = (stop: AbortSignal) =>
    begun.completed_at ? Promise.resolve(begun) : loadErasure(app.id, begun.id, stop);
  const erasure = useResource(`erasure ${begun.id}`, load, { everyS: begun.completed_at ? 3_600 : 2 });
  return (
    <Shown of={erasure} what="the progress">
      {(erasure) => (
        <p role="status" id="erased">
          {erasureWords(erasure)}
        </p>
      )}
    </Shown>
  );
}
