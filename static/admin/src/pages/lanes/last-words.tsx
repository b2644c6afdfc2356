import type { LaneResponse } from "../../api/types";
import { Time } from "../../ui/numbers";

/** Last error response of a gateway. */
export function LastWords({ words }: { words: LaneResponse["last_error"] }) {
  if (!words) return <span class="fine">none</span>;
  const { status, detail, at } = words;
  return (
    <span class="last-words">
      {status != null && <code>{status}</code>} {detail ?? (status == null ? "no answer" : "")}
      <br />
      <span class="fine">
        <Time at={at} />
      </span>
    </span>
  );
}
