import { marked } from "../lib/position";
import "./position.css";

/** A text with the place marked that a complaint about it names; nothing if it names none. */
export function Position({ text, detail }: { text: string; detail: string }) {
  const place = text === "" ? undefined : marked(text, detail);
  if (!place) return null;
  const [before, there, after] = place;
  return (
    <code class="position">
      {before}
      <mark>{there}</mark>
      {after}
    </code>
  );
}
