import { clock } from "../lib/clock";
import { clockTime } from "../lib/format";
import { zone } from "../lib/preferences";
import { zoomOf, zoomText, type Zoom } from "../lib/range";
import { useFilters } from "../lib/url";

/** Zooms to a part of the range: it is part of the URL, and the browser’s Back button returns. */
export function useZoom(): (zoom: Zoom) => void {
  const { change } = useFilters();
  return (zoom) => change({ zoom: zoomText(zoom) });
}

/** The zoomed part, with its end; otherwise how to zoom. */
export function ZoomNote() {
  const { filters, change } = useFilters();
  const zoom = zoomOf(filters.zoom);
  if (!zoom) return <p class="fine">Drag on a chart to zoom in, or choose bars with the arrow keys.</p>;
  const label = (time: Date) => clockTime(time, clock.shown.value, zone.value);
  return (
    <p class="row" id="zoomed">
      <span>
        Zoomed to {label(zoom.since)} to {label(zoom.until)}
      </span>
      <button type="button" id="zoom-out" onClick={() => change({ zoom: undefined })}>
        Show the whole range
      </button>
    </p>
  );
}
