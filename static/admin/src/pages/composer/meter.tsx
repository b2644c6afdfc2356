import { count } from "../../lib/format";
import { CONTENT_MAX, meterWords } from "../../lib/octets";

/** Used share of a push. */
export function Meter({ used }: { used: number }) {
  const { tone, words } = meterWords(used);
  return (
    <div class="meter" id="meter">
      <p class="row">
        <span>
          <strong class="number">{count(used)}</strong> <span class="soft">of {count(CONTENT_MAX)} bytes</span>
        </span>
        <span class="fine" data-tone={tone}>
          {words}
        </span>
      </p>
      <div class="bar" aria-hidden="true">
        <span class="fill" data-tone={tone} style={{ width: `${Math.min(100, (used / CONTENT_MAX) * 100)}%` }} />
      </div>
    </div>
  );
}
