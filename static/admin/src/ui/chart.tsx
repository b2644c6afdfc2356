import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { axisCount, clockTime, count, dayOf } from "../lib/format";
import { clock } from "../lib/clock";
import type { Pattern } from "../lib/figures";
import { theme, zone } from "../lib/preferences";
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
}

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
const INCREMENTS = [60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000, 2_592_000];

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

function options({ at, layers, height = 220 }: Props, place: HTMLElement): uPlot.Options {
  const [ink, paper] = [colour("--soft", place), colour("--card", place)];
  const grid = { stroke: colour("--line", place), width: 1 };
  const font = `12px ${getComputedStyle(place).fontFamily}`;
  const axis = { stroke: ink, font, grid, ticks: { ...grid, size: 4 } };
  // Half a step at both ends: whole bars.
  // No marks between steps.
  const incrs = INCREMENTS.filter((seconds) => at.length < 2 || seconds >= (at[1] ?? 0) - (at[0] ?? 0));
  const step = at.length > 1 ? ((at[1] ?? 0) - (at[0] ?? 0)) / 2 : 30;
  const label = (time: Date) => (step >= 43_200 ? dayOf(time) : clockTime(time, clock.now(), zone.value));
  const barWidth = at.length > 1 ? 0.86 : 0.2;
  const bars = uPlot.paths.bars?.({ size: [barWidth, 40], gap: 0 });
  return {
    width: place.clientWidth,
    height,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 20, 0, 0],
    scales: { x: { time: true, range: (_, min, max) => [min - step, max + step] }, y: { range: (_, __, max) => [0, Math.max(max, 4) * 1.08] } },
    axes: [
      { ...axis, size: 32, grid: { show: false }, values: (_, ticks) => ticks.map((tick) => label(new Date(tick * 1_000))), space: step > 1_800 ? 110 : 80, incrs },
      { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? axisCount(tick) : "")) },
    ],
    // The highest sum is drawn first, and what is below it over it.
    series: [
      {},
      ...layers.toReversed().map(({ tone, pattern }): uPlot.Series => {
        const stroke = colour(`--${tone}`, place);
        const paths = bars ? { paths: bars } : {};
        return { stroke, width: pattern === "solid" ? 0 : 1, fill: () => fill(stroke, paper, pattern), points: { show: false }, ...paths };
      }),
    ],
  };
}

/** Stacked bars over time, with a legend of patterns. A table beside it has the figures for screen readers. */
export function StackedBars(props: Props) {
  const place = useRef<HTMLDivElement>(null);
  // Drawn anew when any of it changes: sixty bars take no time.
  const look = `${theme.value} ${zone.value}`;
  useEffect(() => {
    const here = place.current;
    if (!here) return;
    const data = [[...props.at], ...stacked(props.layers, props.at.length).toReversed()] as uPlot.AlignedData;
    let plot = new uPlot(options(props, here), data, here);
    const redraw = () => {
      plot.destroy();
      plot = new uPlot(options(props, here), data, here);
    };
    const onResize = new ResizeObserver(() => plot.setSize({ width: here.clientWidth, height: props.height ?? 220 }));
    onResize.observe(here);
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", redraw);
    return () => {
      onResize.disconnect();
      system.removeEventListener("change", redraw);
      plot.destroy();
    };
  }, [props.at, props.layers, look]);
  return (
    <figure class="chart">
      <div ref={place} class="plot" style={{ height: `${props.height ?? 220}px` }} aria-hidden="true" />
      <Legend layers={props.layers} />
    </figure>
  );
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
