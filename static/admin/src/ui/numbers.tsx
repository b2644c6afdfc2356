import { atLeast, clockTime, count, fullCount, fullTime, relative } from "../lib/format";
import { clock } from "../lib/clock";
import { zone } from "../lib/preferences";

/** A count, shortened; in full on hover and for screen readers. */
export function Count({ n, orMore = false }: { n: number; orMore?: boolean }) {
  const full = (orMore ? "at least " : "") + fullCount(n);
  const short = atLeast(n, orMore);
  if (short === fullCount(n)) return <span class="number">{short}</span>;
  return (
    <span class="number" title={full}>
      <span aria-hidden="true">{orMore ? short : count(n)}</span>
      <span class="hidden">{full}</span>
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
