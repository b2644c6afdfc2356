import { useId } from "preact/hooks";
import type { Refusal } from "../../api/problem";
import type { PolicyLevel } from "../../api/types";
import { fieldsOf, FORMS, FORM_WORDS, toDraft, toPolicy, type Draft } from "../../lib/policies";
import type { Field } from "../../lib/policy-fields";
import { Position } from "../../ui/position";

interface Props {
  draft: Draft;
  place: PolicyLevel;
  /** Error of the server; its pointers begin with `/policy`. */
  problem: Refusal | undefined;
  change: (draft: Draft) => void;
}

/** A policy as a form. What is wrong stands at the field that it is about. */
export function PolicyForm({ draft, place, problem, change }: Props) {
  const fields = fieldsOf(draft.form, place);
  const groups = [...new Set(fields.map(({ group }) => group))];
  const write = (pointer: string, value: string) => change({ ...draft, values: { ...draft.values, [pointer]: value } });
  const known = new Set(fields.map(({ pointer }) => `/policy${pointer}`));
  const elsewhere = problem?.faults.filter(({ where }) => !known.has(where)) ?? [];
  return (
    <form class="policy-form" onSubmit={(event) => event.preventDefault()}>
      <FormChoice draft={draft} place={place} change={change} />
      {draft.form === "json" ? (
        <Json draft={draft} change={change} wrong={problem !== undefined} />
      ) : (
        groups.map((group) => (
          <fieldset key={group ?? ""} class="fields">
            {group && <legend>{group}</legend>}
            {fields
              .filter((field) => field.group === group)
              .map((field) => (
                <FieldInput
                  key={field.pointer}
                  field={field}
                  value={draft.values[field.pointer] ?? ""}
                  fault={problem?.fault(`/policy${field.pointer}`)}
                  write={(value) => write(field.pointer, value)}
                />
              ))}
          </fieldset>
        ))
      )}
      {problem && (elsewhere.length > 0 || problem.faults.length === 0) && (
        <div class="refused" role="alert" id="policy-refused">
          {elsewhere.length === 0 && <p>{problem.message}</p>}
          {elsewhere.map(({ where, detail }) => (
            <p key={where + detail}>
              {where.replace(/^\/policy/, "") && <code>{where.replace(/^\/policy/, "")}</code>} {detail}
            </p>
          ))}
        </div>
      )}
    </form>
  );
}

function FormChoice({ draft, place, change }: Pick<Props, "draft" | "place" | "change">) {
  const choose = (form: Draft["form"]) => {
    if (form === draft.form) return;
    // What was filled in goes along: into JSON as it stands, and from JSON into the fields that can show it.
    const policy = toPolicy(draft, place);
    const json = form === "json" && typeof policy !== "string" ? JSON.stringify(policy, null, 2) : draft.json;
    const read = draft.form === "json" && typeof policy !== "string" ? toDraft(policy, place) : undefined;
    change({ form, values: read?.form === form ? read.values : draft.values, json });
  };
  return (
    <fieldset class="forms">
      <legend>Format</legend>
      {FORMS.map((form) => (
        <label key={form}>
          <input type="radio" name="form" value={form} checked={draft.form === form} onChange={() => choose(form)} />{" "}
          {FORM_WORDS[form].title}
        </label>
      ))}
      <p class="fine">{FORM_WORDS[draft.form].help}</p>
    </fieldset>
  );
}

function FieldInput({
  field,
  value,
  fault,
  write,
}: {
  field: Field;
  value: string;
  fault: string | undefined;
  write: (value: string) => void;
}) {
  const [id, about] = [`field${field.pointer.replaceAll("/", "-")}`, useId()];
  const said = {
    "aria-invalid": fault ? true : undefined,
    "aria-describedby": fault || field.help ? about : undefined,
  } as const;
  if (field.kind === "switch") {
    return (
      <label class="switch">
        <input
          id={id}
          type="checkbox"
          checked={value === "true"}
          onChange={(event) => write(event.currentTarget.checked ? "true" : "")}
        />{" "}
        {field.label}
      </label>
    );
  }
  return (
    <div class={`field ${field.kind === "text" ? "wide" : ""}`}>
      <label for={id}>
        {field.label} {field.unit && <span class="fine">({field.unit})</span>}
      </label>
      {field.kind === "choice" ? (
        <select id={id} value={value} onChange={(event) => write(event.currentTarget.value)} {...said}>
          <option value="">{field.standard || "Choose…"}</option>
          {field.choices
            ?.filter((choice) => choice !== field.standard)
            .map((choice) => (
              <option key={choice} value={choice}>
                {choice}
              </option>
            ))}
        </select>
      ) : (
        <input
          id={id}
          value={value}
          placeholder={field.standard}
          inputMode={field.kind === "integer" ? "numeric" : field.kind === "number" ? "decimal" : undefined}
          autocomplete="off"
          spellcheck={false}
          maxLength={300}
          onInput={(event) => write(event.currentTarget.value)}
          {...said}
        />
      )}
      {(fault || field.help) && (
        <p id={about} class={fault ? "fault" : "fine"} role={fault ? "alert" : undefined}>
          {fault ? <Fault detail={fault} value={value} /> : field.help}
        </p>
      )}
    </div>
  );
}

/** A complaint about an expression shows the place. */
function Fault({ detail, value }: { detail: string; value: string }) {
  return (
    <>
      {detail}
      <Position text={value} detail={detail} />
    </>
  );
}

function Json({ draft, change, wrong }: { draft: Draft; change: (draft: Draft) => void; wrong: boolean }) {
  return (
    <div class="field">
      <label for="policy-json">Policy</label>
      <textarea
        id="policy-json"
        rows={14}
        value={draft.json}
        maxLength={16_384}
        spellcheck={false}
        aria-invalid={wrong || undefined}
        onInput={(event) => change({ ...draft, json: event.currentTarget.value })}
      />
    </div>
  );
}
