import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { digits, fullCount } from "../lib/format";
import { useAction } from "./action";
import { Refused } from "./shown";

interface Props {
  /** How many it reaches. */
  n: number;
  /** What is done: `send`, `start`. */
  verb: string;
  button: string;
  id: string;
  work: () => Promise<void>;
  onLeave: () => void;
  /** Says what it will do. */
  children: ComponentChildren;
}

/** What reaches many is done when their number was typed: not by one careless click. */
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
          Type <strong class="number">{fullCount(n)}</strong> to {verb} it
        </span>
        <input id="typed" name="typed" inputMode="numeric" autocomplete="off" value={typed} onInput={(event) => type(event.currentTarget.value)} />
      </label>
      <Refused problem={problem} />
      <p class="row end">
        <button type="button" onClick={onLeave}>
          Leave it
        </button>
        <button type="submit" class="primary" id={id} disabled={isBusy || !isSure}>
          {button}
        </button>
      </p>
    </form>
  );
}
