import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { digits, count } from "../lib/format";
import { useAction } from "./action";
import { Refused } from "./shown";

interface Props {
  /** Number of recipients. */
  n: number;
  /** Verb of the action: `send`, `start`. */
  verb: string;
  button: string;
  id: string;
  work: () => Promise<void>;
  onLeave: () => void;
  /** Effect of the action. */
  children: ComponentChildren;
}

/** Confirmation by typing the number of recipients, if they are many: one click must not be enough. */
export function TypedForm({ n, verb, button, id, work, onLeave, children }: Props) {
  const [typed, type] = useState("");
  const isSure = digits(typed) === String(n);
  const { run, isBusy, problem } = useAction(work);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (isSure) void run();
      }}
    >
      {children}
      <label class="field">
        <span>
          Type <strong class="number">{count(n)}</strong> to {verb}
        </span>
        <input
          id="typed"
          name="typed"
          inputMode="numeric"
          autocomplete="off"
          value={typed}
          onInput={(event) => type(event.currentTarget.value)}
        />
      </label>
      <Refused problem={problem} />
      <p class="row end">
        <button type="button" onClick={onLeave}>
          Cancel
        </button>
        <button type="submit" class="primary" id={id} disabled={isBusy || !isSure}>
          {button}
        </button>
      </p>
    </form>
  );
}
