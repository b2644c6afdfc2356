/** A choice that a list is filtered by; none of them: any. */
export function Select({
  label,
  value,
  choices,
  choose,
}: {
  label: string;
  value: string | undefined;
  choices: readonly (readonly [string, string])[];
  choose: (value: string) => void;
}) {
  return (
    <label>
      {label}{" "}
      <select value={value ?? ""} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="">Any</option>
        {choices.map(([value, words]) => (
          <option key={value} value={value}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}
