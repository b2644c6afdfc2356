/** Segments as rows of conditions, and as text. Pure. The server's parser has the last word: what is read here only decides
 *  whether the rows can show a text. */

/** Subject of a condition. */
export const SUBJECTS = [
  "attribute",
  "tag",
  "topic",
  "last_seen",
  "age",
  "locale",
  "language",
  "timezone",
  "gateway",
  "browser",
  "user",
  "key",
  "received",
  "displayed",
  "clicked",
] as const;
export type Subject = (typeof SUBJECTS)[number];

export const SUBJECT_WORDS: Record<Subject, string> = {
  attribute: "Attribute",
  tag: "Tag",
  topic: "Topic",
  last_seen: "Last seen",
  age: "Subscribed for",
  locale: "Locale",
  language: "Language",
  timezone: "Time zone",
  gateway: "Push service",
  browser: "Browser",
  user: "User",
  key: "VAPID key",
  received: "Received",
  displayed: "Was shown",
  clicked: "Clicked",
};

export type Verb = "is" | "is-not" | "in" | "not-in" | "less" | "at-most" | "more" | "at-least" | "exists" | "lacks";

const SIGNS: Partial<Record<Verb, string>> = {
  is: "=",
  "is-not": "!=",
  less: "<",
  "at-most": "<=",
  more: ">",
  "at-least": ">=",
};

/** A single condition in the form. */
export interface Condition {
  subject: Subject;
  /** Of an attribute. */
  name: string;
  verb: Verb;
  /** Type of an attribute's value: a string, or a literal (number, true, time). */
  kind: "text" | "plain";
  /** One value, several separated by commas, a span such as `30d`, or what a deed was of. */
  value: string;
  /** Of a deed: not longer ago; empty: ever. */
  within: string;
}

/** All of these hold; of each group, any condition. */
export type Groups = readonly (readonly Condition[])[];

export const BLANK: Condition = { subject: "attribute", name: "", verb: "is", kind: "text", value: "", within: "" };

const isSpan = (subject: Subject) => subject === "last_seen" || subject === "age";
export const isDeed = (subject: Subject): boolean =>
  subject === "received" || subject === "displayed" || subject === "clicked";
const isCall = (subject: Subject) => subject === "tag" || subject === "topic" || isDeed(subject);

/** Operators for this subject. */
export function verbsOf(subject: Subject): readonly (readonly [Verb, string])[] {
  if (subject === "tag")
    return [
      ["is", "is"],
      ["is-not", "is not"],
    ];
  if (subject === "topic")
    return [
      ["is", "is in"],
      ["is-not", "is not in"],
    ];
  if (isDeed(subject))
    return [
      ["is", "campaign"],
      ["is-not", "not campaign"],
    ];
  if (isSpan(subject))
    return [
      ["less", "less than"],
      ["at-most", "at most"],
      ["more", "more than"],
      ["at-least", "at least"],
    ];
  const equal: (readonly [Verb, string])[] = [
    ["is", "is"],
    ["is-not", "is not"],
    ["in", "is one of"],
    ["not-in", "is none of"],
  ];
  const exist: (readonly [Verb, string])[] = [
    ["exists", "is known"],
    ["lacks", "is not known"],
  ];
  if (subject === "attribute")
    return [
      ...equal,
      ["less", "is less than"],
      ["at-most", "is at most"],
      ["more", "is more than"],
      ["at-least", "is at least"],
      ...exist,
    ];
  return subject === "gateway" || subject === "browser" || subject === "key" ? equal : [...equal, ...exist];
}

/** Values that there are to choose from. */
export const CHOICES: Partial<Record<Subject, readonly string[]>> = {
  gateway: ["fcm", "mozilla", "wns", "apple", "other"],
  browser: ["chrome", "firefox", "edge", "safari", "other"],
};

/** Whether a condition has a value at all. */
export const hasValue = ({ verb }: Condition): boolean => verb !== "exists" && verb !== "lacks";

/** Names of the attributes in expressions, each once, as far as rows can show them. */
export function attributesOf(expressions: readonly string[]): string[] {
  const conditions = expressions.flatMap((expression) => (read(expression) ?? []).flat());
  const names = conditions.flatMap(({ subject, name }) => (subject === "attribute" && name ? name : []));
  return [...new Set(names)].sort();
}

/** Hint for an expression without members. An attribute that was never stored is no error, so a misspelt name matches no subscription. */
export function noMatchWords(expression: string): string {
  const names = attributesOf([expression]);
  if (names.length === 0) return "No subscription matches.";
  return `No subscription matches. Check the spelling of the ${names.length === 1 ? "attribute" : "attributes"} ${names.join(", ")}: unknown names are accepted, but have no value.`;
}

/** Condition with another subject; values that no longer fit are reset. */
export function about(condition: Condition, subject: Subject): Condition {
  const verbs = verbsOf(subject).map(([verb]) => verb);
  const fits = verbs.includes(condition.verb) && isSpan(subject) === isSpan(condition.subject);
  return {
    ...condition,
    subject,
    verb: fits ? condition.verb : (verbs[0] ?? "is"),
    value: isSpan(subject)
      ? "30d"
      : (CHOICES[subject]?.[0] ?? (isSpan(condition.subject) || CHOICES[condition.subject] ? "" : condition.value)),
  };
}

const quoted = (text: string) => `"${text.replace(/["\\]/g, "\\$&")}"`;
/** Words that are no attributes: what they mean is shown as text if no row can show it. */
const RESERVED = new Set<string>([
  "and",
  "or",
  "not",
  "in",
  "true",
  "false",
  "now",
  "exists",
  "last_clicked",
  "unclicked",
  "unclicked_for",
  ...SUBJECTS,
]);
const fieldText = ({ subject, name }: Condition) =>
  subject !== "attribute"
    ? subject
    : /^[\p{L}_][\p{L}\p{N}_.]*$/u.test(name) && !RESERVED.has(name)
      ? name
      : `attribute(${quoted(name)})`;
const listOf = (value: string) =>
  value
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean);

/** Whether there is enough of it to be written. */
export function isWhole(condition: Condition): boolean {
  const { subject, name, value } = condition;
  if (subject === "attribute" && name.trim() === "") return false;
  return (
    !hasValue(condition) ||
    (condition.verb === "in" || condition.verb === "not-in" ? listOf(value).length > 0 : value.trim() !== "")
  );
}

function conditionText(condition: Condition): string {
  const { subject, verb, kind, value, within } = condition;
  const isNot = verb === "is-not" ? "not " : "";
  if (subject === "tag" || subject === "topic") return `${isNot}${subject}(${quoted(value)})`;
  if (isDeed(subject)) return `${isNot}${subject}(${quoted(value)}${within.trim() ? `, ${within.trim()}` : ""})`;
  const field = fieldText(condition);
  if (verb === "exists" || verb === "lacks") return `${verb === "lacks" ? "not " : ""}exists(${field})`;
  const literal = (text: string) =>
    isSpan(subject) || (subject === "attribute" && kind === "plain") ? text : quoted(text);
  if (verb === "in" || verb === "not-in")
    return `${field} ${verb === "in" ? "in" : "not in"} (${listOf(value).map(literal).join(", ")})`;
  return `${field} ${SIGNS[verb]} ${literal(isSpan(subject) || kind === "plain" ? value.trim() : value)}`;
}

/** Rows as text. Those that are not whole yet are left out. */
export function write(groups: Groups): string {
  const written = groups.map((group) => group.filter(isWhole).map(conditionText)).filter((group) => group.length > 0);
  const isAlone = written.length === 1;
  return written
    .map((group) => (group.length === 1 || isAlone ? group.join(" or ") : `(${group.join(" or ")})`))
    .join(" and ");
}

type Token = { kind: "word" | "text" | "value" | "sign" | "end"; text: string };

const TOKEN =
  /\s*(?:("(?:[^"\\]|\\["'\\])*"|'(?:[^'\\]|\\["'\\])*')|(\d{4}-[\w:.+-]*|\d[\p{L}\p{N}._]*)|([\p{L}_][\p{L}\p{N}_.]*)|(!=|<=|>=|[(),=<>+-]))/uy;

function tokens(text: string): Token[] | undefined {
  const found: Token[] = [];
  TOKEN.lastIndex = 0;
  while (text.slice(TOKEN.lastIndex).trim() !== "") {
    const match = TOKEN.exec(text);
    if (!match) return undefined;
    const [, quotedText, value, word, sign = ""] = match;
    if (quotedText !== undefined) found.push({ kind: "text", text: quotedText.slice(1, -1).replace(/\\(.)/g, "$1") });
    else if (value !== undefined) found.push({ kind: "value", text: value });
    else found.push(word !== undefined ? { kind: "word", text: word } : { kind: "sign", text: sign });
  }
  return [...found, { kind: "end", text: "" }];
}

/** Reason why a text cannot be shown as rows. */
class Unshown extends Error {}

type Node = { all: Node[] } | { any: Node[] } | { test: Condition };

/** Rows of an expression. Undefined: invalid, or more than rows can show. */
export function read(text: string): Groups | undefined {
  if (text.trim() === "") return [];
  try {
    const reader = new Reader(tokens(text) ?? []);
    return groupsOf(reader.whole());
  } catch (thrown) {
    if (thrown instanceof Unshown) return undefined;
    throw thrown;
  }
}

function groupsOf(node: Node): Groups {
  const test = (node: Node) => {
    if ("test" in node) return node.test;
    throw new Unshown();
  };
  const group = (node: Node) => ("any" in node ? node.any.map(test) : [test(node)]);
  return "all" in node ? node.all.map(group) : [group(node)];
}

const NEGATED: Partial<Record<Verb, Verb>> = {
  is: "is-not",
  "is-not": "is",
  in: "not-in",
  "not-in": "in",
  exists: "lacks",
  lacks: "exists",
};
const VERBS = new Map(Object.entries(SIGNS).map(([verb, sign]) => [sign, verb as Verb]));

/** The server's grammar, as far as rows go. */
class Reader {
  #at = 0;
  constructor(private readonly all: readonly Token[]) {}

  whole(): Node {
    const node = this.#joined("or", () => this.#joined("and", () => this.#one()));
    if (this.#next().kind !== "end") throw new Unshown();
    return node;
  }

  #joined(word: "and" | "or", read: () => Node): Node {
    const first = read();
    const nodes = [first];
    while (this.#takes("word", word)) nodes.push(read());
    if (nodes.length === 1) return first;
    return word === "and"
      ? { all: nodes.flatMap((node) => ("all" in node ? node.all : [node])) }
      : { any: nodes.flatMap((node) => ("any" in node ? node.any : [node])) };
  }

  #one(): Node {
    if (this.#takes("word", "not")) {
      const node = this.#one();
      const verb = "test" in node ? NEGATED[node.test.verb] : undefined;
      if (!("test" in node) || !verb) throw new Unshown();
      return { test: { ...node.test, verb } };
    }
    if (this.#takes("sign", "(")) {
      const node = this.#joined("or", () => this.#joined("and", () => this.#one()));
      this.#expect(")");
      return node;
    }
    return { test: this.#test() };
  }

  #test(): Condition {
    const word = this.#take("word");
    if (word === "exists") {
      this.#expect("(");
      const field = this.#field(this.#take("word"));
      this.#expect(")");
      return { ...field, verb: "exists" };
    }
    if (SUBJECTS.includes(word as Subject) && isCall(word as Subject)) return this.#call(word as Subject);
    return this.#comparison(this.#field(word));
  }

  #call(subject: Subject): Condition {
    this.#expect("(");
    const value = this.#take("text");
    const within = isDeed(subject) && this.#takes("sign", ",") ? this.#take("value") : "";
    this.#expect(")");
    return { ...BLANK, subject, value, within };
  }

  #field(word: string): Condition {
    if (word === "attribute") {
      this.#expect("(");
      const name = this.#take("text");
      this.#expect(")");
      return { ...BLANK, name };
    }
    if (SUBJECTS.includes(word as Subject)) return { ...BLANK, subject: word as Subject };
    if (RESERVED.has(word)) throw new Unshown();
    return { ...BLANK, name: word };
  }

  #comparison(field: Condition): Condition {
    const isNot = this.#takes("word", "not");
    if (this.#takes("word", "in")) {
      this.#expect("(");
      const values = [this.#value(field)];
      while (this.#takes("sign", ",")) values.push(this.#value(field));
      this.#expect(")");
      const [{ kind } = { kind: "text" as const }] = values;
      if (
        values.some(
          (value) =>
            value.kind !== kind || value.text.includes(",") || value.text.trim() !== value.text || value.text === "",
        )
      )
        throw new Unshown();
      return { ...field, verb: isNot ? "not-in" : "in", kind, value: values.map(({ text }) => text).join(", ") };
    }
    const verb = VERBS.get(this.#take("sign"));
    if (isNot || !verb || !verbsOf(field.subject).some(([known]) => known === verb)) throw new Unshown();
    const { kind, text } = this.#value(field);
    return { ...field, verb, kind, value: text };
  }

  #value({ subject }: Condition): { kind: "text" | "plain"; text: string } {
    const token = this.#next();
    this.#at += 1;
    if (token.kind === "text" && !isSpan(subject)) return { kind: "text", text: token.text };
    if (isSpan(subject) && token.kind === "value") return { kind: "text", text: token.text };
    if (subject !== "attribute") throw new Unshown();
    if (token.text === "-" && this.#next().kind === "value") return { kind: "plain", text: `-${this.#take("value")}` };
    if (token.kind === "value" || token.text === "true" || token.text === "false")
      return { kind: "plain", text: token.text };
    if (token.text !== "now") throw new Unshown();
    for (const sign of ["+", "-"])
      if (this.#takes("sign", sign)) return { kind: "plain", text: `now ${sign} ${this.#take("value")}` };
    return { kind: "plain", text: "now" };
  }

  #next(): Token {
    return this.all[this.#at] ?? { kind: "end", text: "" };
  }

  #takes(kind: Token["kind"], text: string): boolean {
    const token = this.#next();
    if (token.kind !== kind || token.text !== text) return false;
    this.#at += 1;
    return true;
  }

  #take(kind: Token["kind"]): string {
    const token = this.#next();
    if (token.kind !== kind) throw new Unshown();
    this.#at += 1;
    return token.text;
  }

  #expect(sign: string): void {
    if (!this.#takes("sign", sign)) throw new Unshown();
  }
}
