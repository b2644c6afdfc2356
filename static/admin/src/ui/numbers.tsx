import { atLeast, clockTime, count, fullTime, relative } from "../lib/format";
import { clock } from "../lib/clock";
import { zone } from "../lib/preferences";

/** A count. `orMore`: a lower bound, `≥ 10,000`. */
export function Count({ n, orMore = false }: { n: number; orMore?: boolean }) {
  if (!orMore) return <span class="number">{count(n)}</span>;
  return (
    <span class="number">
      <span aria-hidden="true">{atLeast(n, true)}</span>
      <span class="hidden">at least {count(n)}</span>
    </span>
  );
}

/** A time: relative, with the absolute one on hover, or the other way round. */
export function Time({ at, absolute = false }: { at: string | Date; absolute?: boolean }) {
  const time = typeof at === "string" ? new Date(at) : at;
  const now = clock.shown.value;
  const words = absolute ? clockTime(time, now, zone.value) : relative(time, now);
  return (
    <time dateTime={time.toISOString()} title={fullTime(time, zone.value)}>
      {words}
    </time>
  );
}
