import "./form.css";
import { useState } from "preact/hooks";

/** Copies a text to the clipboard. Shows a note if the browser refuses; the text is visible. */
export function Copy({ text, what }: { text: string; what: string }) {
  const [said, say] = useState("");
  const copy = async () => {
    const done = await navigator.clipboard?.writeText(text).then(
      () => true,
      () => false,
    );
    say(done ? "Copied" : "Select and copy it");
    setTimeout(() => say(""), 2_000);
  };
  return (
    <button type="button" class="copy" aria-label={`Copy ${what}`} onClick={copy}>
      <span role="status">{said || "Copy"}</span>
    </button>
  );
}

/** A text to take along as it is. */
export function Snippet({ text, what, id }: { text: string; what: string; id?: string }) {
  return (
    <div class="snippet">
      <pre tabIndex={0} role="group" aria-label={what}>
        <code id={id}>{text}</code>
      </pre>
      <Copy text={text} what={what} />
    </div>
  );
}

/** Secret that is shown once: it cannot be shown again. */
export function ShownOnce({ text, what, id }: { text: string; what: string; id: string }) {
  return (
    <div class="once">
      <Snippet text={text} what={what} id={id} />
      <p class="fine">Store it now: it is not shown again.</p>
    </div>
  );
}
