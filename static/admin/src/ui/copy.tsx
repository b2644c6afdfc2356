import { useState } from "preact/hooks";

/** A line to be copied, as it stands. Where the browser keeps the clipboard to itself, it can be selected. */
export function Copy({ text }: { text: string }) {
  const [said, say] = useState("Copy");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say("Copied");
    } catch {
      say("Select it");
    }
  };
  return (
    <div class="copy">
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
      <button type="button" aria-label={`Copy ${text}`} onClick={() => void copy()}>
        {said}
      </button>
      <span class="hidden" role="status">
        {said === "Copied" && "Copied"}
      </span>
    </div>
  );
}
