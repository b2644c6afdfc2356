import { useState } from "preact/hooks";
import type { AppResponse, SubscriptionResponse } from "../../api/types";
import { deviceWords } from "../../lib/deliveries";
import { useFilters } from "../../lib/url";
import { useAction } from "../../ui/action";
import { Dialog } from "../../ui/dialog";
import { Refused } from "../../ui/shown";
import { testPush } from "./load";

interface Props {
  app: AppResponse;
  device: SubscriptionResponse;
  onClose: () => void;
  onSent: () => unknown;
}

/** One notification to one device, and where to see what becomes of it. */
export function TestPushDialog({ app, device, onClose, onSent }: Props) {
  const { link } = useFilters();
  const [sent, setSent] = useState<string>();
  const { run, isBusy, problem } = useAction(async (title: string, body: string) => {
    setSent(await testPush(app.id, device.id, title, body));
    void onSent();
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const written = new FormData(event.currentTarget as HTMLFormElement);
    void run(String(written.get("title")), String(written.get("body")));
  };
  if (sent) {
    return (
      <Dialog title="Test push" onClose={onClose}>
        <p role="status" id="test-sent">
          Sent. <a href={link(`/deliveries/${app.slug}/${sent}/${device.id}`)}>See what becomes of it</a>
        </p>
        <p class="row end">
          <button type="button" onClick={onClose}>
            Close
          </button>
        </p>
      </Dialog>
    );
  }
  return (
    <Dialog title="Test push" onClose={onClose}>
      <form onSubmit={submit}>
        <p>
          One notification goes to this one {deviceWords(device.gateway)}, now: transactional, so that no quiet hours hold it, and for five minutes at most. Any user of
          the device sees it.
        </p>
        <label class="field">
          <span>Title</span>
          <input name="title" required maxLength={200} defaultValue="Test" autocomplete="off" />
        </label>
        <label class="field">
          <span>Text</span>
          <input name="body" maxLength={500} defaultValue={`A test of ${app.name}. Nothing to do.`} autocomplete="off" />
        </label>
        <Refused problem={problem} />
        <p class="row end">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" id="send-test" disabled={isBusy}>
            Send it to this device
          </button>
        </p>
      </form>
    </Dialog>
  );
}
