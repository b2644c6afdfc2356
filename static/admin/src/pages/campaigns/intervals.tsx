import type { ComponentChildren } from "preact";
import "./campaigns.css";

/** An estimate with its interval. */
export interface Bar {
  name: string;
  mark: number;
  from: number;
  to: number;
  /** Counts for screen readers. */
  about?: string;
}

interface Props {
  of: readonly Bar[];
  /** Ends of the axis. */
  axis: readonly [number, number];
  write: (value: number) => string;
  /** Description of mark and bar. */
  children: ComponentChildren;
}

/** Intervals on one axis. Bar, edges and mark differ by shape, and their figures are beside them. */
export function Intervals({ of, axis: [first, last], write, children }: Props) {
  const share = (value: number) => Math.min(1, Math.max(0, (value - first) / (last - first)));
  const at = (value: number) => `${share(value) * 100}%`;
  return (
    <figure>
      <ul class="intervals">
        {of.map(({ name, mark, from, to, about }) => (
          <li key={name}>
            <span class="name">{name}</span>
            <svg class="drawn" aria-hidden="true">
              <line class="axis-line" x1="0" x2="100%" y1="50%" y2="50%" />
              {first < 0 && <line class="axis-line" x1={at(0)} x2={at(0)} y1="0" y2="100%" />}
              <rect
                class="interval-bar"
                x={at(from)}
                width={`${(share(to) - share(from)) * 100}%`}
                y="25%"
                height="50%"
              />
              <line class="interval-edge" x1={at(from)} x2={at(from)} y1="20%" y2="80%" />
              <line class="interval-edge" x1={at(to)} x2={at(to)} y1="20%" y2="80%" />
              <line class="interval-mark" x1={at(mark)} x2={at(mark)} y1="5%" y2="95%" />
            </svg>
            <span class="number counted">
              <strong>{write(mark)}</strong>{" "}
              <span class="fine">
                {write(from)} to {write(to)}
              </span>
              {about && <span class="hidden">: {about}</span>}
            </span>
          </li>
        ))}
        <li aria-hidden="true">
          <span class="ends fine number">
            <span>{first === 0 ? "0 %" : write(first)}</span>
            {first < 0 && <span>0 %</span>}
            <span>{write(last)}</span>
          </span>
        </li>
      </ul>
      <figcaption class="fine">{children}</figcaption>
    </figure>
  );
}
