//! Declarations of verbs that are one API request, each with its arguments, its request and its output.

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

/// Converts the text of an argument to its value when the verb runs. The first parameter is the argument's name, for errors.
type Read = fn(&str, &str) -> anyhow::Result<Value>;
/// Looks a value up in the API. The parameter is the given value, or null.
type Find = for<'a> fn(&'a Call<'a>, Value) -> LocalBoxFuture<'a, anyhow::Result<Value>>;

/// Argument of a verb. All values are JSON.
pub(super) struct Parameter {
    arg: Arg,
    /// Name in errors, as typed.
    label: &'static str,
    /// Part of the request that the argument fills: `{part}` of the path, `?parameter` of the query, `/pointer` into the body
    /// (empty: the whole body), the name of a header, or `-` for none.
    to: &'static str,
    /// Value that a flag sets.
    flag: Value,
    read: Option<Read>,
    find: Option<Find>,
}

/// A call of a verb with its arguments.
pub(super) struct Call<'a> {
    verb: &'a Verb,
    matches: &'a ArgMatches,
    pub(super) client: &'a Client,
    pub(super) out: Output,
}

/// Function that returns the text to print.
pub(super) type Words = fn(&Call<'_>, &Value) -> anyhow::Result<String>;

/// Printed part of the response.
enum Shown {
    Table(&'static [TableColumn]),
    Fields(&'static [TableColumn]),
    /// Text with `{ARGUMENT}` and `{/pointer/into/the/response}`.
    Sentence(&'static str),
    Words(Words),
    /// Raw response. It is complete only if it ends in these bytes.
    Stream(&'static [u8]),
}

/// Function that changes the body of a request, or refuses the arguments.
type Shape = fn(&Call<'_>, &mut Value) -> anyhow::Result<()>;
/// Function that replaces the single request of a verb.
type Run = for<'a> fn(&'a Call<'a>) -> LocalBoxFuture<'a, anyhow::Result<()>>;
/// Function that returns the output of `--json`.
type Machine = Box<dyn Fn(&Call<'_>, &Value) -> Value>;
/// Text for people, with the condition on the response under which it is printed.
type Note = (fn(&Value) -> bool, &'static str);

/// Declaration of a verb.
pub(super) struct Verb {
    command: Command,
    method: Method,
    /// Path below `/v1`, with `{part}` for arguments. A section in brackets is omitted if its part is not given.
    path: &'static str,
    parameters: Vec<Parameter>,
    body: Value,
    headers: Vec<(&'static str, &'static str)>,
    /// Names, in errors, of parts of the request that several arguments fill.
    names: Vec<(&'static str, &'static str)>,
    is_read_to_its_end: bool,
    shape: Option<Shape>,
    shown: Shown,
    machine: Option<Machine>,
    note: Option<Note>,
    run: Option<Run>,
    beginning: DataDirState,
}

/// Declares a verb by its name, its request (such as `GET /apps/{app}`) and its help. By default it prints the response's `id`.
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

    /// Adds a help text below the examples.
    pub(super) fn remark(self, remark: &'static str) -> Self {
        let examples = self.command.get_after_help().map(ToString::to_string).unwrap_or_default();
        self.with(|command| command.after_help(format!("{examples}\n\n{remark}")))
    }

    /// Changes the clap command.
    pub(super) fn with(mut self, change: impl FnOnce(Command) -> Command) -> Self {
        self.command = change(self.command);
        self
    }

    /// Sets the body of the request, to which the arguments are added.
    pub(super) fn body(self, body: Value) -> Self {
        Self { body, ..self }
    }

    pub(super) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Adds names, in errors, of parts of the request that several arguments fill.
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

    /// Prints members of the response, one per line.
    pub(super) fn fields(self, fields: &'static [TableColumn]) -> Self {
        Self { shown: Shown::Fields(fields), ..self }
    }

    /// Prints a text with `{ARGUMENT}` and `{/pointer/into/the/response}`.
    pub(super) fn says(self, sentence: &'static str) -> Self {
        Self { shown: Shown::Sentence(sentence), ..self }
    }

    /// Prints the text that the function returns.
    pub(super) fn words(self, words: Words) -> Self {
        Self { shown: Shown::Words(words), ..self }
    }

    /// Copies the response to standard output. It is complete only if it ends in these bytes.
    pub(super) fn copies(self, end: &'static [u8]) -> Self {
        Self { shown: Shown::Stream(end), ..self }
    }

    /// Sets the output of `--json` in place of the response.
    pub(super) fn machine(self, machine: impl Fn(&Call<'_>, &Value) -> Value + 'static) -> Self {
        Self { machine: Some(Box::new(machine)), ..self }
    }

    /// Prints the sentence. For `--json`, prints the argument under `name`, and that the object is deleted.
    pub(super) fn deleted(self, name: &'static str, argument: &'static str, sentence: &'static str) -> Self {
        self.says(sentence).machine(move |call, _| json!({name: call.value(argument), "deleted": true}))
    }

    /// Adds a text for people, with placeholders as in [`Self::says`].
    pub(super) fn note(self, sentence: &'static str) -> Self {
        self.note_if(|_| true, sentence)
    }

    /// Adds a text for people that is printed under a condition on the response.
    pub(super) fn note_if(self, condition: fn(&Value) -> bool, sentence: &'static str) -> Self {
        Self { note: Some((condition, sentence)), ..self }
    }

    /// Replaces the request and its output by a function.
    pub(super) fn run(self, run: Run) -> Self {
        Self { run: Some(run), ..self }
    }

    /// Allows the verb to create the data in an empty data directory.
    pub(super) fn may_come_first(self) -> Self {
        Self { beginning: DataDirState::Here, ..self }
    }
}
