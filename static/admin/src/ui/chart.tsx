import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { axisCount, clockTime, count, dayOf } from "../lib/format";
import { clock } from "../lib/clock";
import type { Pattern } from "../lib/figures";
import { theme, zone } from "../lib/preferences";
import { barsWithin, type Zoom } from "../lib/range";
import type { Tone } from "../lib/words";

export interface Layer {
  word: string;
  tone: Tone;
  pattern: Pattern;
  values: readonly number[];
}

interface Props {
  /** Start of each step, in seconds since 1970. */
  at: readonly number[];
  /** From the bottom to the top. */
  layers: readonly Layer[];
  height?: number;
  /** Called with the span of the chosen bars: a chart without it has no zoom. */
  onZoom?: ((zoom: Zoom) => void) | undefined;
}

/** Chosen bars, the first and the last. */
type Chosen = readonly [number, number];

/** Pixels from which a drag is one. */
const DRAG_MIN = 5;

/** Distance of two bars in seconds. */
const stepOf = (at: readonly number[]): number => (at.length > 1 ? (at[1] ?? 0) - (at[0] ?? 0) : 60);

/** Value of a style-sheet variable in the current theme. */
function colour(variable: string, beside: HTMLElement): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${variable})`;
  beside.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Distances between marks of the time axis, in seconds. */
const INCREMENTS = [
  60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000, 2_592_000,
];

const TILE = 8;

/** Fill pattern that is distinct without colours. Opaque, since bars overlap. */
function fill(ink: string, paper: string, pattern: Pattern): string | CanvasPattern {
  if (pattern === "solid") return ink;
  const tile = document.createElement("canvas");
  tile.width = tile.height = TILE;
  const draw = tile.getContext("2d");
  if (!draw) return ink;
  draw.fillStyle = paper;
  draw.fillRect(0, 0, TILE, TILE);
  draw.strokeStyle = draw.fillStyle = ink;
  draw.lineWidth = 2;
  if (pattern === "dots") {
    draw.fillRect(1, 1, 3, 3);
    draw.fillRect(5, 5, 3, 3);
  } else {
    draw.beginPath();
    for (const x of [-TILE, 0, TILE]) {
      draw.moveTo(x, TILE);
      draw.lineTo(x + TILE, 0);
    }
    if (pattern === "crossed") {
      for (const x of [-TILE, 0, TILE]) {
        draw.moveTo(x, 0);
        draw.lineTo(x + TILE, TILE);
      }
    }
    draw.stroke();
  }
  return draw.createPattern(tile, "repeat") ?? ink;
}

/** Each layer on top of those below it; null where it has nothing to show. */
function stacked(layers: readonly Layer[], steps: number): (number | null)[][] {
  const sums = new Array<number>(steps).fill(0);
  return layers.map(({ values }) =>
    sums.map((sum, n) => {
      const value = values[n] ?? 0;
      sums[n] = sum + value;
      return value > 0 ? sum + value : null;
    }),
  );
}

function options(
  { at, layers, height = 220, onZoom }: Props,
  place: HTMLElement,
  drawn: (chosen: Chosen | undefined) => void,
): uPlot.Options {
  const [ink, paper] = [colour("--soft", place), colour("--card", place)];
  const grid = { stroke: colour("--line", place), width: 1 };
  const font = `12px ${getComputedStyle(place).fontFamily}`;
  const axis = { stroke: ink, font, grid, ticks: { ...grid, size: 4 } };
  // Half a step at both ends: whole bars.
  // No marks between steps.
  const incrs = INCREMENTS.filter((seconds) => at.length < 2 || seconds >= (at[1] ?? 0) - (at[0] ?? 0));
  const step = stepOf(at) / 2;
  const label = (time: Date) => (step >= 43_200 ? dayOf(time) : clockTime(time, clock.now(), zone.value));
  const barWidth = at.length > 1 ? 0.86 : 0.2;
  const bars = uPlot.paths.bars?.({ size: [barWidth, 40], gap: 0 });
  return {
    width: place.clientWidth,
    height,
    legend: { show: false },
    cursor: onZoom
      ? { x: false, y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } }
      : { show: false },
    hooks: {
      setSelect: [
        ({ select, posToVal }) =>
          drawn(
            select.width < DRAG_MIN
              ? undefined
              : barsWithin(at, stepOf(at), posToVal(select.left, "x"), posToVal(select.left + select.width, "x")),
          ),
      ],
    },
    padding: [8, 20, 0, 0],
    scales: {
      x: { time: true, range: (_, min, max) => [min - step, max + step] },
      y: { range: (_, __, max) => [0, Math.max(max, 4) * 1.08] },
    },
    axes: [
      {
        ...axis,
        size: 32,
        grid: { show: false },
        values: (_, ticks) => ticks.map((tick) => label(new Date(tick * 1_000))),
        space: step > 1_800 ? 110 : 80,
        incrs,
      },
      { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? axisCount(tick) : "")) },
    ],
    // The highest sum is drawn first, and what is below it over it.
    series: [
      {},
      ...layers.toReversed().map(({ tone, pattern }): uPlot.Series => {
        const stroke = colour(`--${tone}`, place);
        const paths = bars ? { paths: bars } : {};
        return {
          stroke,
          width: pattern === "solid" ? 0 : 1,
          fill: () => fill(stroke, paper, pattern),
          points: { show: false },
          ...paths,
        };
      }),
    ],
  };
}

/** Marks the chosen bars of a plot. */
function mark(plot: uPlot, at: readonly number[], chosen: Chosen | undefined): void {
  const [half, edge] = [stepOf(at) / 2, (n: number) => plot.valToPos(n, "x")];
  const left = chosen ? edge((at[chosen[0]] ?? 0) - half) : 0;
  const width = chosen ? edge((at[chosen[1]] ?? 0) + half) - left : 0;
  plot.setSelect({ left, width, top: 0, height: width > 0 ? plot.over.clientHeight : 0 }, false);
}

/** Bars after a key. Undefined: none is chosen. */
function moved(chosen: Chosen | undefined, { key, shiftKey }: KeyboardEvent, length: number): Chosen | undefined {
  const last = length - 1;
  if (key === "Escape") return undefined;
  if (!chosen) return [last, last];
  const by = key === "ArrowLeft" ? -1 : 1;
  const within = (n: number) => Math.min(last, Math.max(0, n));
  return shiftKey
    ? [within(Math.min(chosen[0], chosen[0] + by)), within(Math.max(chosen[1], chosen[1] + by))]
    : [within(chosen[0] + by), within(chosen[0] + by)];
}

/** Stacked bars over time, with a legend of patterns. A table beside it has the figures for screen readers. */
export function StackedBars(props: Props) {
  const { at, layers, onZoom } = props;
  const place = useRef<HTMLDivElement>(null);
  const plotted = useRef<uPlot>(null);
  const [chosen, choose] = useState<Chosen>();
  const zoom = ([first, last]: Chosen) =>
    onZoom?.({ since: new Date((at[first] ?? 0) * 1_000), until: new Date(((at[last] ?? 0) + stepOf(at)) * 1_000) });
  // Drawn anew when any of it changes: sixty bars take no time.
  const look = `${theme.value} ${zone.value}`;
  useEffect(() => {
    const here = place.current;
    if (!here) return;
    const data = [[...at], ...stacked(layers, at.length).toReversed()] as uPlot.AlignedData;
    const drawn = (chosen: Chosen | undefined) => chosen && zoom(chosen);
    const draw = () => (plotted.current = new uPlot(options(props, here, drawn), data, here));
    draw();
    const redraw = () => {
      plotted.current?.destroy();
      draw();
    };
    const onResize = new ResizeObserver(() =>
      plotted.current?.setSize({ width: here.clientWidth, height: props.height ?? 220 }),
    );
    onResize.observe(here);
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", redraw);
    return () => {
      onResize.disconnect();
      system.removeEventListener("change", redraw);
      plotted.current?.destroy();
    };
  }, [at, layers, look]);
  // Bars of another span are others; new figures of the same span keep the choice.
  useEffect(() => choose(undefined), [at[0], at.length]);
  useEffect(() => {
    if (plotted.current) mark(plotted.current, at, chosen);
  }, [chosen, at, layers, look]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && chosen) zoom(chosen);
    else if (["ArrowLeft", "ArrowRight", "Escape"].includes(event.key)) choose(moved(chosen, event, at.length));
    else return;
    event.preventDefault();
  };
  const plot = <div ref={place} class="plot" style={{ height: `${props.height ?? 220}px` }} aria-hidden="true" />;
  return (
    <figure class="chart">
      {onZoom ? (
        <div
          role="group"
          tabIndex={0}
          aria-label="Chart. Arrow keys choose a bar, with Shift several; Enter zooms in."
          onKeyDown={onKeyDown}
        >
          {plot}
        </div>
      ) : (
        plot
      )}
      <p class="fine chosen" role="status">
        {chosen && chosenWords(at, layers, chosen)}
      </p>
      <Legend layers={layers} />
    </figure>
  );
}

/** Span and sums of the chosen bars. */
function chosenWords(at: readonly number[], layers: readonly Layer[], [first, last]: Chosen): string {
  const step = stepOf(at);
  const label = (seconds: number) =>
    step >= 86_400 ? dayOf(new Date(seconds * 1_000)) : clockTime(new Date(seconds * 1_000), clock.now(), zone.value);
  const sums = layers.map(
    ({ word, values }) => `${word} ${count(values.slice(first, last + 1).reduce((sum, n) => sum + n, 0))}`,
  );
  return `${label(at[first] ?? 0)} to ${label((at[last] ?? 0) + step)}: ${sums.join(", ")}. Enter zooms in.`;
}

function Legend({ layers }: { layers: readonly Layer[] }) {
  return (
    <figcaption>
      <ul class="legend">
        {layers.map(({ word, tone, pattern, values }) => (
          <li key={word}>
            <span class="swatch" data-tone={tone} data-pattern={pattern} aria-hidden="true" />
            {word} <span class="number soft">{count(values.reduce((sum, n) => sum + n, 0))}</span>
          </li>
        ))}
      </ul>
    </figcaption>
  );
}
