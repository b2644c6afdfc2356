import "./form.css";
import { useState } from "preact/hooks";

/** Puts a text on the clipboard. Where the browser does not let it, says so: the text stands beside it. */
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

/** What is shown once: nobody, this page included, can show it again. */
export function ShownOnce({ text, what, id }: { text: string; what: string; id: string }) {
  return (
    <div class="once">
      <Snippet text={text} what={what} id={id} />
      <p class="fine">Keep it now: it is shown this once, and never again.</p>
    </div>
  );
}
