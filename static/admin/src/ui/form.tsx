import "./form.css";
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { useAction } from "./action";
import { Dialog } from "./dialog";
import { Refused } from "./shown";

/** Values of the fields of a form. */
export class Written {
  constructor(private readonly data: FormData) {}
  text = (name: string): string => String(this.data.get(name) ?? "").trim();
  /** The same without a trim: passwords. */
  exact = (name: string): string => String(this.data.get(name) ?? "");
  all = (name: string): string[] => this.data.getAll(name).map(String);
  has = (name: string): boolean => this.data.has(name);
  /** Lines that are not empty. */
  lines = (name: string): string[] =>
    this.text(name)
      .split(/[\s,]+/)
      .filter(Boolean);
}

interface FormProps {
  /** Label and id of the button. */
  button: string;
  id: string;
  work: (written: Written) => Promise<unknown>;
  /** Instead of doing it: in a dialog. */
  onLeave?: () => void;
  /** Label of the button that leaves, by default "Cancel". */
  leave?: string | undefined;
  isGrave?: boolean;
  /** Read-only mode for users without permission: all fields are disabled, and there is no button. */
  isOff?: boolean;
  children?: ComponentChildren;
}

/** Form with one action, and its error. */
export function Form({ button, id, work, onLeave, leave = "Cancel", isGrave, isOff = false, children }: FormProps) {
  const { run, isBusy, problem } = useAction(async (written: Written) => void (await work(written)));
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    void run(new Written(new FormData(event.currentTarget as HTMLFormElement)));
  };
  return (
    <form class="form" onSubmit={submit}>
      <fieldset class="plain-set" disabled={isOff}>
        {children}
      </fieldset>
      <Refused problem={problem} />
      {!isOff && (
        <p class={onLeave ? "row end" : "row"}>
          {onLeave && (
            <button type="button" onClick={onLeave}>
              {leave}
            </button>
          )}
          <button type="submit" class={isGrave ? "primary grave" : "primary"} id={id} disabled={isBusy}>
            {isBusy ? "Please wait…" : button}
          </button>
        </p>
      )}
    </form>
  );
}

interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  /** The input, given the ids that tie it to its hint. */
  children: (tie: { "aria-describedby": string | undefined }) => ComponentChildren;
}

/** An input with its name above and a hint below. */
export function Field({ label, hint, children }: FieldProps) {
  const id = useId();
  return (
    <label class="field">
      <span>{label}</span>
      {children({ "aria-describedby": hint ? id : undefined })}
      {hint && (
        <span class="fine" id={id}>
          {hint}
        </span>
      )}
    </label>
  );
}

interface AskProps {
  title: string;
  /** Effect of the action, with counts. */
  says: ComponentChildren;
  button: string;
  leave?: string | undefined;
  isGrave?: boolean;
  work: (written: Written) => Promise<unknown>;
  onClose: () => void;
  children?: ComponentChildren;
}

/** Shows the effect of an action before it is carried out. */
export function Ask({ title, says, button, leave, isGrave, work, onClose, children }: AskProps) {
  return (
    <Dialog title={title} onClose={onClose}>
      <Form button={button} id="do-it" work={work} onLeave={onClose} leave={leave} isGrave={isGrave}>
        <p>{says}</p>
        {children}
        <p class="fine">The audit log records this with your name.</p>
      </Form>
    </Dialog>
  );
}
