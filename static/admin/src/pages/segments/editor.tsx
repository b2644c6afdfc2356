import { useId, useState } from "preact/hooks";
import type { AppResponse } from "../../api/types";
import {
  about,
  attributesOf,
  BLANK,
  CHOICES,
  hasValue,
  isDeed,
  read,
  SUBJECTS,
  SUBJECT_WORDS,
  verbsOf,
  write,
  type Condition,
  type Groups,
  type Subject,
  type Verb,
} from "../../lib/segments";
import { capital } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { Position } from "../../ui/position";
import { loadTopics } from "../messages/load";
import { loadSegments } from "./load";
import "./segments.css";

interface Props {
  app: AppResponse;
  text: string;
  change: (text: string) => void;
  /** Error of the server's parser. */
  fault: string | undefined;
}

/** Editor of a segment: rows of conditions, and beside them their text. A text that rows cannot show stays text. */
export function SegmentEditor({ app, text, change, fault }: Props) {
  const [groups, setGroups] = useState<Groups | undefined>(() => read(text));
  const id = useId();
  const build = (groups: Groups) => {
    setGroups(groups);
    change(write(groups));
  };
  const type = (text: string) => {
    setGroups(read(text));
    change(text);
  };
  const topics = useResource(`topics ${app.id}`, (stop) => loadTopics(app.id, stop), { everyS: 300 });
  const stored = useResource(`segments to suggest from ${app.id}`, (stop) => loadSegments(app.id, undefined, stop), {
    everyS: 300,
  });
  const expressions = (stored.known.value?.value.segments ?? []).map(({ expression }) => expression);
  return (
    <div class="segment-editor">
      <div class="builder" role="group" aria-label="Conditions">
        {groups ? (
          <Builder groups={groups} build={build} topics={`${id}-topics`} attributes={`${id}-attributes`} />
        ) : (
          <p class="soft" id="only-text">
            {fault ? "Rows are shown when the text is valid." : "Rows cannot show this expression; edit it as text."}
          </p>
        )}
        <datalist id={`${id}-topics`}>
          {(topics.known.value?.value ?? []).map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
        <datalist id={`${id}-attributes`}>
          {attributesOf(expressions).map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
      </div>
      <div class="field as-text">
        <label for={id}>Expression</label>
        <textarea
          id={id}
          name="expression"
          rows={4}
          spellcheck={false}
          autocomplete="off"
          value={text}
          placeholder={'plan = "pro" and last_seen < 30d'}
          aria-describedby={`${id}-about`}
          aria-invalid={fault !== undefined}
          onInput={(event) => type(event.currentTarget.value)}
        />
        <div id={`${id}-about`} class={fault ? "fault" : "fine"} role={fault ? "alert" : undefined}>
          {fault ? (
            <>
              {capital(fault)}.
              <Position text={text} detail={fault} />
            </>
          ) : (
            "Written by the rows, and editable. Unknown names are attributes."
          )}
        </div>
      </div>
    </div>
  );
}

interface BuilderProps extends Suggestions {
  groups: Groups;
  build: (groups: Groups) => void;
}

/** Ids of the lists of suggestions. */
interface Suggestions {
  topics: string;
  /** Attributes that stored segments use. */
  attributes: string;
}

function Builder({ groups, build, topics, attributes }: BuilderProps) {
  const put = (at: number, group: readonly Condition[]) =>
    build(groups.map((other, n) => (n === at ? group : other)).filter((group) => group.length > 0));
  return (
    <>
      {groups.length === 0 && <p class="soft">No conditions: all subscriptions match.</p>}
      {groups.map((group, at) => (
        <div
          key={at}
          class="group"
          role="group"
          aria-label={groups.length > 1 ? `Group ${at + 1} of ${groups.length}: all groups hold` : undefined}
        >
          {at > 0 && <p class="joint">and</p>}
          <div class="rows">
            {group.map((condition, n) => (
              <Row
                key={n}
                condition={condition}
                joint={n > 0}
                topics={topics}
                attributes={attributes}
                change={(condition) =>
                  put(
                    at,
                    group.map((other, m) => (m === n ? condition : other)),
                  )
                }
                remove={() =>
                  put(
                    at,
                    group.filter((_, m) => m !== n),
                  )
                }
              />
            ))}
            <button type="button" class="plain" onClick={() => put(at, [...group, BLANK])}>
              or…
            </button>
          </div>
        </div>
      ))}
      <p>
        <button type="button" id="add-condition" onClick={() => build([...groups, [BLANK]])}>
          {groups.length === 0 ? "Add a condition" : "and…"}
        </button>
      </p>
    </>
  );
}

interface RowProps extends Suggestions {
  condition: Condition;
  /** Whether it stands after another one, as another way to belong. */
  joint: boolean;
  change: (condition: Condition) => void;
  remove: () => void;
}

function Row({ condition, joint, topics, attributes, change, remove }: RowProps) {
  const { subject, name, verb, kind, value, within } = condition;
  const write = (changes: Partial<Condition>) => change({ ...condition, ...changes });
  const choices = verb === "is" || verb === "is-not" ? CHOICES[subject] : undefined;
  return (
    <div class="condition" role="group" aria-label={`${joint ? "or " : ""}${SUBJECT_WORDS[subject]} ${name}`}>
      {joint && <span class="joint">or</span>}
      <select
        aria-label="Subject"
        data-part="subject"
        value={subject}
        onChange={(event) => change(about(condition, event.currentTarget.value as Subject))}
      >
        {SUBJECTS.map((subject) => (
          <option key={subject} value={subject}>
            {SUBJECT_WORDS[subject]}
          </option>
        ))}
      </select>
      {subject === "attribute" && (
        <input
          aria-label="Attribute name"
          data-part="name"
          list={attributes}
          placeholder="plan"
          maxLength={64}
          autocomplete="off"
          value={name}
          onInput={(event) => write({ name: event.currentTarget.value })}
        />
      )}
      <select
        aria-label="Operator"
        data-part="verb"
        value={verb}
        onChange={(event) => write({ verb: event.currentTarget.value as Verb })}
      >
        {verbsOf(subject).map(([verb, words]) => (
          <option key={verb} value={verb}>
            {words}
          </option>
        ))}
      </select>
      {subject === "attribute" && hasValue(condition) && (
        <select
          aria-label="Type of value"
          data-part="kind"
          value={kind}
          onChange={(event) => write({ kind: event.currentTarget.value as Condition["kind"] })}
        >
          <option value="text">text</option>
          <option value="plain">number, true, time</option>
        </select>
      )}
      {hasValue(condition) &&
        (choices ? (
          <select
            aria-label="Value"
            data-part="value"
            value={value}
            onChange={(event) => write({ value: event.currentTarget.value })}
          >
            {[...new Set([...choices, ...(value ? [value] : [])])].map((choice) => (
              <option key={choice} value={choice}>
                {choice}
              </option>
            ))}
          </select>
        ) : (
          <input
            aria-label="Value"
            data-part="value"
            list={subject === "topic" ? topics : undefined}
            placeholder={placeholder(condition)}
            maxLength={2_000}
            autocomplete="off"
            value={value}
            onInput={(event) => write({ value: event.currentTarget.value })}
          />
        ))}
      {subject === "last_seen" && <span class="fine">ago</span>}
      {isDeed(subject) && (
        <input
          class="short"
          aria-label="Within"
          data-part="within"
          placeholder="ever, or 7d"
          maxLength={10}
          autocomplete="off"
          value={within}
          onInput={(event) => write({ within: event.currentTarget.value })}
        />
      )}
      <button
        type="button"
        class="plain remove"
        aria-label={`Remove: ${SUBJECT_WORDS[subject]} ${name}`}
        onClick={remove}
      >
        ✕
      </button>
    </div>
  );
}

function placeholder({ subject, verb, kind }: Condition): string {
  if (verb === "in" || verb === "not-in") return "values, separated by commas";
  if (subject === "last_seen" || subject === "age") return "30d, 12h";
  if (isDeed(subject)) return "spring, or a message’s id";
  if (subject === "attribute") return kind === "text" ? "pro" : "12, now - 30d";
  return (
    { locale: "de-AT", language: "de", timezone: "Europe/Vienna", topic: "news", tag: "beta" }[subject as string] ?? ""
  );
}
