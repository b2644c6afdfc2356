import "./filters.css";

interface FieldProps {
  label: string;
  name: string;
  value: string | undefined;
  hint: string;
  class?: string;
}

/** A field of a search. What is written there stands in the address once the search is begun. */
export function SearchField({ label, name, value, hint, class: more = "" }: FieldProps) {
  return (
    <label class={`field ${more}`}>
      <span>{label}</span>
      <input
        key={value ?? ""}
        id={name}
        name={name}
        defaultValue={value ?? ""}
        placeholder={hint}
        autocomplete="off"
        spellcheck={false}
        maxLength={300}
      />
    </label>
  );
}

/** Text fields of a form, trimmed; empty fields are no filter. */
export function written(form: HTMLFormElement): Record<string, string | undefined> {
  return Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, String(value).trim() || undefined]));
}
