import { count, percent } from "../lib/format";
import type { Part } from "../lib/messages";
import "./parts.css";

const sum = (parts: readonly Part[]) => parts.reduce((sum, { n }) => sum + n, 0);

/** Bar of parts that differ by colour, pattern and order; their meaning is beside it. */
export function PartsBar({ parts, slim = false }: { parts: readonly Part[]; slim?: boolean }) {
  const whole = sum(parts);
  return (
    <div class={slim ? "parts slim" : "parts"} aria-hidden="true">
      {parts.map(({ id, tone, pattern, n }) => (
        <span key={id} data-tone={tone} data-pattern={pattern} style={{ flexGrow: n / whole }} />
      ))}
    </div>
  );
}

/** Parts of a bar, each with its share of the total. */
export function PartsLegend({ parts, isAbout }: { parts: readonly Part[]; isAbout: boolean }) {
  const whole = sum(parts);
  return (
    <ul class="parts-legend">
      {parts.map(({ id, word, tone, pattern, n }) => (
        <li key={id} data-part={id}>
          <span class="swatch" data-tone={tone} data-pattern={pattern} aria-hidden="true" />
          <span>{word}</span>
          <strong class="number">{count(n)}</strong>
          <span class="fine number">
            {isAbout && "≈ "}
            {percent(n / whole)}
          </span>
        </li>
      ))}
    </ul>
  );
}
