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

/** Sends one notification to one device, and links to its delivery. */
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
          Sent. <a href={link(`/deliveries/${app.slug}/${sent}/${device.id}`)}>Show the delivery</a>
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
          Sends one transactional notification to this {deviceWords(device.gateway)} now, also in quiet hours. The time
          to live is five minutes. Every user of the device sees the notification.
        </p>
        <label class="field">
          <span>Title</span>
          <input name="title" required maxLength={200} defaultValue="Test" autocomplete="off" />
        </label>
        <label class="field">
          <span>Text</span>
          <input
            name="body"
            maxLength={500}
            defaultValue={`A test of ${app.name}. No action needed.`}
            autocomplete="off"
          />
        </label>
        <Refused problem={problem} />
        <p class="row end">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" id="send-test" disabled={isBusy}>
            Send
          </button>
        </p>
      </form>
    </Dialog>
  );
}
