//! One run of a declared verb: sends the request and prints the response.

use std::io::Write as _;

use anyhow::ensure;
use clap::ArgAction;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::{Call, Parameter, Shown, Verb};
use crate::cli::client::{ApiRequest, encoded};
use crate::cli::output::{Stdout, fields_of, rows, table_of, text, time};

impl Call<'_> {
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        if let Some(run) = self.verb.run {
            return run(self).await;
        }
        if let Shown::Stream(end) = self.verb.shown {
            return self.copy(end).await;
        }
        let request = self.request().await?;
        let answer = match self.verb.is_read_to_its_end {
            true => self.client.list(request).await?,
            false => self.client.ask(&request).await?,
        };
        self.print(&answer)
    }

    /// Sends the declared request.
    pub(in crate::cli) async fn ask(&self) -> anyhow::Result<Value> {
        self.client.ask(&self.request().await?).await
    }

    /// Prints a response as declared.
    pub(in crate::cli) fn print(&self, answer: &Value) -> anyhow::Result<()> {
        let people = match self.verb.shown {
            Shown::Table(columns) => table_of(columns, rows(answer)),
            Shown::Fields(fields) => fields_of(fields, answer),
            Shown::Sentence(sentence) => self.fill(sentence, answer),
            Shown::Words(words) => words(self, answer)?,
            Shown::Stream(_) => String::new(),
        };
        match &self.verb.machine {
            Some(machine) => self.out.say(&machine(self, answer), &people)?,
            None => self.out.say(answer, &people)?,
        }
        if answer["data"].is_array() && answer["done"] == false {
            self.out.note("There may be more.");
        }
        if let Some((_, sentence)) = self.verb.note.filter(|(condition, _)| condition(answer)) {
            self.out.note(&self.fill(sentence, answer));
        }
        Ok(())
    }

    async fn copy(&self, end: &[u8]) -> anyhow::Result<()> {
        let mut last = Vec::new();
        let take = |octets: &[u8]| {
            last.extend_from_slice(octets);
            last.drain(..last.len().saturating_sub(end.len()));
            Stdout.write_all(octets)
        };
        self.client.stream(&self.request().await?, take).await?;
        ensure!(last.ends_with(end), "the export is incomplete");
        Ok(())
    }

    /// Replaces `{ARGUMENT}` and `{/pointer/into/the/response}`.
    pub(in crate::cli) fn fill(&self, sentence: &str, answer: &Value) -> String {
        let mut filled = String::new();
        let mut rest = sentence;
        while let Some((before, (name, after))) =
            rest.split_once('{').and_then(|(b, rest)| Some((b, rest.split_once('}')?)))
        {
            let value = if name.starts_with('/') { time(answer, name) } else { self.text(name) };
            filled.extend([before, &value]);
            rest = after;
        }
        filled + rest
    }

    /// Name of the verb.
    pub(in crate::cli) fn name(&self) -> &str {
        self.verb.command.get_name()
    }

    /// Value of an argument. Null if it is not given, and an array if it is repeatable.
    pub(in crate::cli) fn value(&self, id: &str) -> Value {
        self.verb.parameters.iter().find(|parameter| parameter.id() == id).map_or(Value::Null, |it| self.given(it))
    }

    pub(in crate::cli) fn text(&self, id: &str) -> String {
        text(&self.value(id), "")
    }

    pub(in crate::cli) fn has(&self, id: &str) -> bool {
        !self.value(id).is_null()
    }

    fn given(&self, parameter: &Parameter) -> Value {
        let id = parameter.id();
        match parameter.arg.get_action() {
            ArgAction::SetTrue if self.matches.get_flag(id) => parameter.flag.clone(),
            ArgAction::SetTrue => Value::Null,
            ArgAction::Append => self.matches.get_many::<Value>(id).map_or(Value::Null, |all| all.cloned().collect()),
            _ => self.matches.get_one::<Value>(id).cloned().unwrap_or_default(),
        }
    }

    /// Builds the request from the arguments. Reads files named in them.
    pub(in crate::cli) async fn request(&self) -> anyhow::Result<ApiRequest> {
        let Verb { method, parameters, body, headers, names, shape, .. } = self.verb;
        let mut request = ApiRequest::new(method.clone(), self.verb.path.to_owned()).body(body.clone());
        request.headers.extend(headers.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let (mut is_whole, mut query, mut unused) = (false, Vec::new(), Vec::new());
        for parameter in parameters {
            let mut value = self.given(parameter);
            if let (Some(read), Some(given)) = (parameter.read, value.as_str()) {
                value = read(parameter.label, given)?;
            }
            if let Some(find) = parameter.find {
                value = find(self, value).await?;
            }
            let (to, place) = (parameter.to, parameter.place());
            if to.is_empty() || to.starts_with('/') {
                request.body = if request.body.is_null() { json!({}) } else { request.body };
            }
            if to == "-" || value.is_null() {
                unused.extend((to != "-" && !to.is_empty()).then_some((place, parameter.label)));
                continue;
            }
            request.names.push((place, parameter.label));
            match to.chars().next() {
                None => (request.body, is_whole) = (value, true),
                Some('/') => put(&mut request.body, to, value),
                Some('{') => request.path = request.path.replace(to, &encoded(&plain(&value))),
                Some('?') => query.push((place, plain(&value))),
                Some(_) => request.headers.push((to, plain(&value))),
            }
        }
        request.names.extend(unused); // what was given comes first
        request.names.extend(names);
        if is_whole {
            request.names.retain(|(place, _)| !place.is_empty() && !place.starts_with('/')); // in a whole document pointers say it better
        }
        if let Some(shape) = shape {
            shape(self, &mut request.body)?;
        }
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        let mark = if query.is_empty() { "" } else { "?" };
        request.path = format!("/v1{}{mark}{query}", complete(&request.path));
        Ok(request)
    }
}

/// Formats a value for a URL or a header.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Sets a member of a body, creating objects on the way.
fn put(body: &mut Value, pointer: &str, value: Value) {
    let member = pointer.split('/').skip(1).fold(body, |at, name| &mut at[name]);
    *member = value;
}

/// Removes the brackets of a path, and the sections in brackets that lack a part.
fn complete(path: &str) -> String {
    let Some((before, (section, after))) = path.split_once('[').and_then(|(b, rest)| Some((b, rest.split_once(']')?)))
    else {
        return path.to_owned();
    };
    let section = if section.contains('{') { "" } else { section };
    format!("{before}{section}{}", complete(after))
}

#[cfg(test)]
#[path = "../../../tests/unit/cli/call.rs"]
mod tests;
