import type { LaneResponse } from "../../api/types";
import { Time } from "../../ui/numbers";
import { OneLine } from "../../ui/one-line";

/** Last error response of a push service. */
export function LastError({ error }: { error: LaneResponse["last_error"] }) {
  if (!error) return <>–</>;
  const { status, detail, at } = error;
  return (
    <>
      <OneLine
        text={[status, detail ?? (status == null ? "no response" : "")]
          .filter((part) => part != null && part !== "")
          .join(" ")}
      />
      <span class="fine">
        <Time at={at} />
      </span>
    </>
  );
}
