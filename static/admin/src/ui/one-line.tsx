/** Length up to which a text fits on its line. */
const SHORT = 38;

/** A text on one line. A long one is cut; pressing it shows the whole text. */
export function OneLine({ text }: { text: string }) {
  if (text.length <= SHORT) return <span class="one-line">{text}</span>;
  return (
    <details class="one-line">
      <summary>{text}</summary>
    </details>
  );
}
