//! Verbs that are one request to the API. Each is declared once, with its arguments, its request and what it prints; the rest is here.

mod call;
mod group;
mod parameter;

use axum::http::Method;
use clap::{Arg, ArgMatches, Command};
use futures_util::future::LocalBoxFuture;
use serde_json::{Value, json};

use super::client::{Client, DataDirState};
use super::output::{Output, TableColumn};
pub(super) use group::{Declared, Group, group};
pub(super) use parameter::{
    app, flag, json_or_file, limit, moment, named_app, number, option, positional, tier, time, word,
};

/// Turns the text of an argument into its value when the verb runs. Begins with the argument's name, for errors.
type Read = fn(&str, &str) -> anyhow::Result<Value>;
/// Looks a value up in the API. Begins with what was given, or null.
type Find = for<'a> fn(&'a Call<'a>, Value) -> LocalBoxFuture<'a, anyhow::Result<Value>>;

/// Argument of a verb. All values are JSON.
pub(super) struct Parameter {
    arg: Arg,
    /// Name in errors, as typed.
    label: &'static str,
    /// The part of the request: `{part}` of the path, `?parameter` of the query, `/pointer` into the body (empty: the whole body), the
    /// name of a header, or `-` for none.
    to: &'static str,
    /// Value that a flag stands for.
    flag: Value,
    read: Option<Read>,
    find: Option<Find>,
}

/// A verb with the arguments that were given.
pub(super) struct Call<'a> {
    verb: &'a Verb,
    matches: &'a ArgMatches,
    pub(super) client: &'a Client,
    pub(super) out: Output,
}

/// Text that a verb prints for people.
pub(super) type Words = fn(&Call<'_>, &Value) -> anyhow::Result<String>;

/// Printed part of the response.
enum Shown {
    Table(&'static [TableColumn]),
    Fields(&'static [TableColumn]),
    /// A text with `{ARGUMENT}` and `{/pointer/into/the/answer}`.
    Sentence(&'static str),
    Words(Words),
    /// The answer as it comes, which has to end in these octets.
    Stream(&'static [u8]),
}

/// Changes the body of a request, or refuses the arguments.
type Shape = fn(&Call<'_>, &mut Value) -> anyhow::Result<()>;
/// Does what a verb does, unless that is its request alone.
type Run = for<'a> fn(&'a Call<'a>) -> LocalBoxFuture<'a, anyhow::Result<()>>;
/// Returns the answer as `--json` prints it.
type Machine = Box<dyn Fn(&Call<'_>, &Value) -> Value>;
/// A text for people, and the answers that have it.
type Note = (fn(&Value) -> bool, &'static str);

/// A verb, declared.
pub(super) struct Verb {
    command: Command,
    method: Method,
    /// Path below `/v1`, with `{part}` for what arguments give. A section in brackets is left out if its part is not given.
    path: &'static str,
    parameters: Vec<Parameter>,
    body: Value,
    headers: Vec<(&'static str, &'static str)>,
    /// Names of parts of the request that no argument fills alone.
    names: Vec<(&'static str, &'static str)>,
    is_read_to_its_end: bool,
    shape: Option<Shape>,
    shown: Shown,
    machine: Option<Machine>,
    note: Option<Note>,
    run: Option<Run>,
    beginning: DataDirState,
}

/// Declares a verb by its name, its request, such as `GET /apps/{app}`, and its help. Prints the answer's `id`, unless told otherwise.
pub(super) fn verb(name: &'static str, request: &'static str, about: &'static str) -> Verb {
    let (method, path) = request.split_once(' ').expect("a method and a path");
    Verb {
        command: Command::new(name).about(about),
        method: method.parse().expect("a method"),
        path,
        parameters: Vec::new(),
        body: Value::Null,
        headers: Vec::new(),
        names: Vec::new(),
        is_read_to_its_end: false,
        shape: None,
        shown: Shown::Sentence("{/id}"),
        machine: None,
        note: None,
        run: None,
        beginning: DataDirState::Before,
    }
}

impl Verb {
    /// Adds arguments.
    pub(super) fn takes(mut self, parameters: impl IntoIterator<Item = Parameter>) -> Self {
        self.parameters.extend(parameters);
        self
    }

    /// Adds examples below the help, one a line.
    pub(super) fn examples<const N: usize>(self, examples: [&'static str; N]) -> Self {
        let heading = if N == 1 { "Example" } else { "Examples" };
        let text = examples.iter().fold(format!("{heading}:"), |text, example| text + "\n  " + example);
        self.with(|command| command.after_help(text))
    }

    /// Adds a text below the examples.
    pub(super) fn remark(self, remark: &'static str) -> Self {
        let examples = self.command.get_after_help().map(ToString::to_string).unwrap_or_default();
        self.with(|command| command.after_help(format!("{examples}\n\n{remark}")))
    }

    /// Changes the command itself.
    pub(super) fn with(mut self, change: impl FnOnce(Command) -> Command) -> Self {
        self.command = change(self.command);
        self
    }

    /// Sends this body, to which the arguments are added.
    pub(super) fn body(self, body: Value) -> Self {
        Self { body, ..self }
    }

    pub(super) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Names parts of the request that no argument fills alone.
    pub(super) fn names<const N: usize>(mut self, names: [(&'static str, &'static str); N]) -> Self {
        self.names.extend(names);
        self
    }

    pub(super) fn shape(self, shape: Shape) -> Self {
        Self { shape: Some(shape), ..self }
    }

    /// Prints one page of a list as a table.
    pub(super) fn table(self, columns: &'static [TableColumn]) -> Self {
        Self { shown: Shown::Table(columns), ..self }
    }

    /// Reads a list to its end, and prints it as a table.
    pub(super) fn list(self, columns: &'static [TableColumn]) -> Self {
        Self { is_read_to_its_end: true, ..self.table(columns) }
    }

    /// Prints members of the answer, one a line.
    pub(super) fn fields(self, fields: &'static [TableColumn]) -> Self {
        Self { shown: Shown::Fields(fields), ..self }
    }

    /// Prints a text with `{ARGUMENT}` and `{/pointer/into/the/answer}`.
    pub(super) fn says(self, sentence: &'static str) -> Self {
        Self { shown: Shown::Sentence(sentence), ..self }
    }

    /// Prints what the function makes of the answer.
    pub(super) fn words(self, words: Words) -> Self {
        Self { shown: Shown::Words(words), ..self }
    }

    /// Copies the answer to standard output. It is incomplete unless it ends in these octets.
    pub(super) fn copies(self, end: &'static [u8]) -> Self {
        Self { shown: Shown::Stream(end), ..self }
    }

    /// Prints this for `--json` instead of the answer.
    pub(super) fn machine(self, machine: impl Fn(&Call<'_>, &Value) -> Value + 'static) -> Self {
        Self { machine: Some(Box::new(machine)), ..self }
    }

    /// Prints the sentence, and for `--json` the argument under that name, and that it is deleted.
    pub(super) fn deleted(self, name: &'static str, argument: &'static str, sentence: &'static str) -> Self {
        self.says(sentence).machine(move |call, _| json!({name: call.value(argument), "deleted": true}))
    }

    /// Adds a text for people, filled in as [`Self::says`] does.
    pub(super) fn note(self, sentence: &'static str) -> Self {
        self.note_if(|_| true, sentence)
    }

    /// Adds a text for people to some answers.
    pub(super) fn note_if(self, condition: fn(&Value) -> bool, sentence: &'static str) -> Self {
        Self { note: Some((condition, sentence)), ..self }
    }

    /// Does this instead of making the request and printing its answer.
    pub(super) fn run(self, run: Run) -> Self {
        Self { run: Some(run), ..self }
    }

    /// Lets the verb be the first thing that happens in a data directory.
    pub(super) fn may_come_first(self) -> Self {
        Self { beginning: DataDirState::Here, ..self }
    }
}
