import type { ComponentChildren } from "preact";
import type { Tone } from "../lib/words";

/** A state: colour and shape by its tone, and always the word. */
export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return (
    <span class="badge" data-tone={tone}>
      {children}
    </span>
  );
}
