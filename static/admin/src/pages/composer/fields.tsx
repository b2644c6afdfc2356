import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { faultWords } from "../../lib/format";
import { zoneFault } from "../../lib/time-zone";
import { Marked } from "../../ui/marked";

interface FieldProps {
  label: string;
  /** Short description of the value. */
  hint?: ComponentChildren;
  /** Fault of the value, from the server. */
  fault?: string | undefined;
  /** Fault that the page itself finds. It is not shown during typing. */
  check?: string | undefined;
  /** Draws what is filled in, given what describes it. */
  children: (described: {
    id: string;
    "aria-describedby": string | undefined;
    "aria-invalid": boolean;
  }) => ComponentChildren;
}

/** Something to fill in, with what belongs there and what is wrong with it. */
export function Field({ label, hint, fault: refused, check, children }: FieldProps) {
  const id = useId();
  const [isTyping, setTyping] = useState(false);
  const fault = isTyping ? refused : (check ?? refused);
  const described = hint || fault ? `${id}-about` : undefined;
  return (
    <div
      class="field"
      onInput={() => setTyping(true)}
      onChange={() => setTyping(false)}
      onFocusOut={() => setTyping(false)}
    >
      <label for={id}>{label}</label>
      {children({ id, "aria-describedby": described, "aria-invalid": fault !== undefined })}
      {described && (
        <p id={described} class={fault ? "fault" : "fine"}>
          {fault ? <Marked text={faultWords(fault)} /> : hint}
        </p>
      )}
    </div>
  );
}

interface TextProps extends Omit<FieldProps, "children"> {
  name: string;
  value: string;
  change: (value: string) => void;
  placeholder?: string;
  max?: number;
  /** More than one line. */
  rows?: number;
  /** Suggestions of a line. */
  suggestions?: readonly string[] | undefined;
  onFocus?: () => void;
}

export function Text({ name, value, change, placeholder, max, rows, suggestions, onFocus, ...field }: TextProps) {
  const list = useId();
  return (
    <Field {...field}>
      {(described) => {
        const props = {
          ...described,
          name,
          value,
          maxLength: max,
          autocomplete: "off",
          placeholder: placeholder ?? "",
          onFocus,
        };
        return rows ? (
          <textarea {...props} rows={rows} onInput={(event) => change(event.currentTarget.value)} />
        ) : (
          <>
            <input
              {...props}
              list={suggestions ? list : undefined}
              onInput={(event) => change(event.currentTarget.value)}
            />
            {suggestions && (
              <datalist id={list}>
                {suggestions.map((suggestion) => (
                  <option key={suggestion} value={suggestion} />
                ))}
              </datalist>
            )}
          </>
        );
      }}
    </Field>
  );
}

interface ChoiceProps extends Omit<FieldProps, "children"> {
  name: string;
  value: string;
  choices: readonly (readonly [string, string])[];
  choose: (value: string) => void;
}

export function Choice({ name, value, choices, choose, ...field }: ChoiceProps) {
  return (
    <Field {...field}>
      {(described) => (
        <select {...described} name={name} value={value} onChange={(event) => choose(event.currentTarget.value)}>
          {choices.map(([value, words]) => (
            <option key={value} value={value}>
              {words}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

/** A few choices side by side. */
export function Segments<T extends string>({
  legend,
  name,
  value,
  choices,
  choose,
}: {
  legend: string;
  name: string;
  value: T;
  choices: readonly (readonly [T, string])[];
  choose: (value: T) => void;
}) {
  return (
    <fieldset class="segments">
      <legend class="hidden">{legend}</legend>
      {choices.map(([choice, words]) => (
        <label key={choice}>
          <input type="radio" name={name} value={choice} checked={value === choice} onChange={() => choose(choice)} />
          <span>{words}</span>
        </label>
      ))}
    </fieldset>
  );
}

export function Check({
  name,
  checked,
  change,
  children,
}: {
  name: string;
  checked: boolean;
  change: (checked: boolean) => void;
  children: ComponentChildren;
}) {
  return (
    <label class="check">
      <input type="checkbox" name={name} checked={checked} onChange={(event) => change(event.currentTarget.checked)} />{" "}
      <span>{children}</span>
    </label>
  );
}

interface MomentProps {
  label: string;
  name: string;
  value: string;
  change: (value: string) => void;
  hint?: string;
  fault?: string | undefined;
}

export function Moment({ label, name, value, change, hint, fault }: MomentProps) {
  return (
    <Field label={label} hint={hint} fault={fault}>
      {(described) => (
        <input
          {...described}
          type="datetime-local"
          name={name}
          value={value}
          onInput={(event) => change(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

export function ZoneField({
  timezone,
  change,
  fault,
}: {
  timezone: string;
  change: (timezone: string) => void;
  fault?: string | undefined;
}) {
  const id = useId();
  return (
    <Field label="Time zone" hint="Time zone of the schedule." fault={fault} check={zoneFault(timezone)}>
      {(described) => (
        <>
          <input
            {...described}
            name="timezone"
            list={id}
            maxLength={64}
            autocomplete="off"
            spellcheck={false}
            value={timezone}
            onInput={(event) => change(event.currentTarget.value)}
          />
          <datalist id={id}>
            {Intl.supportedValuesOf("timeZone").map((zone) => (
              <option key={zone} value={zone} />
            ))}
          </datalist>
        </>
      )}
    </Field>
  );
}
