//! Arguments of declared verbs, with the part of the request that each fills.

use std::ops::RangeBounds;

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use clap::builder::{
    NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, RangedI64ValueParser, StringValueParser,
    TypedValueParser,
};
use clap::{Arg, ArgAction};
use serde_json::{Value, json};

use super::{Find, Parameter, Read};
use crate::cli::a_tier;
use crate::cli::file::given_json;

/// Declares an option with a value, such as `--since <TIME>`.
pub(in crate::cli) fn option(spec: &'static str, to: &'static str, help: &'static str) -> Parameter {
    let (label, value) = spec.split_once(" <").expect("an option and its value");
    let (name, value) = (label.trim_start_matches('-'), value.trim_end_matches('>'));
    new(Arg::new(name).long(name).value_name(value), label, to, help).is(StringValueParser::new().map(Value::from))
}

/// Declares a positional argument, such as `TOPIC`, or `[KEY]` if it is optional. It must not be empty.
pub(in crate::cli) fn positional(spec: &'static str, to: &'static str, help: &'static str) -> Parameter {
    let name = spec.trim_matches(['[', ']']);
    new(Arg::new(name).value_name(name).required(name == spec), name, to, help).is(word())
}

/// Declares an option without a value.
pub(in crate::cli) fn flag(label: &'static str, to: &'static str, help: &'static str) -> Parameter {
    let name = label.trim_start_matches('-');
    new(Arg::new(name).long(name).action(ArgAction::SetTrue), label, to, help)
}

fn new(arg: Arg, label: &'static str, to: &'static str, help: &'static str) -> Parameter {
    Parameter { arg: arg.help(help), label, to, flag: true.into(), read: None, find: None }
}

impl Parameter {
    pub(super) fn id(&self) -> &str {
        self.arg.get_id().as_str()
    }

    /// Returns the name that problems use for this part of the request.
    pub(super) fn place(&self) -> &'static str {
        self.to.trim_matches(['{', '}', '?'])
    }

    /// Changes the clap argument.
    pub(in crate::cli) fn with(mut self, change: impl FnOnce(Arg) -> Arg) -> Self {
        self.arg = change(self.arg);
        self
    }

    pub(in crate::cli) fn is(self, parser: impl TypedValueParser<Value = Value>) -> Self {
        self.with(|arg| arg.value_parser(parser))
    }

    pub(in crate::cli) fn required(self) -> Self {
        self.with(|arg| arg.required(true))
    }

    pub(in crate::cli) fn default(self, value: &'static str) -> Self {
        self.with(|arg| arg.default_value(value))
    }

    /// Makes the argument repeatable. The value is an array.
    pub(in crate::cli) fn many(self) -> Self {
        let is_positional = self.arg.get_long().is_none();
        let many = self.with(|arg| arg.action(ArgAction::Append));
        if is_positional { many.with(|arg| arg.num_args(1..)) } else { many }
    }

    /// Makes the argument repeatable, and splits values at commas. The value is an array.
    pub(in crate::cli) fn several(self) -> Self {
        self.many().with(|arg| arg.value_delimiter(','))
    }

    pub(in crate::cli) fn one_of(self, values: impl IntoIterator<Item = impl Into<PossibleValue>>) -> Self {
        self.is(PossibleValuesParser::new(values).map(Value::from))
    }

    /// Excludes other arguments, separated by spaces.
    pub(in crate::cli) fn conflicts(self, others: &'static str) -> Self {
        self.with(|arg| arg.conflicts_with_all(others.split_whitespace()))
    }

    /// Sets the value of a flag, instead of `true`.
    pub(in crate::cli) fn sets(self, value: impl Into<Value>) -> Self {
        Self { flag: value.into(), ..self }
    }

    /// Sets the function that converts the text when the verb runs, for example by reading a file.
    pub(in crate::cli) fn read(self, read: Read) -> Self {
        Self { read: Some(read), ..self }
    }

    /// Sets the function that looks the value up when the verb runs.
    pub(in crate::cli) fn find(self, find: Find) -> Self {
        Self { find: Some(find), ..self }
    }
}

/// Option with the app that a verb acts in.
pub(in crate::cli) fn app() -> Parameter {
    option("--app <APP>", "{app}", "The app's short name or id").is(word()).required()
}

/// Positional argument with the app that a verb is about.
pub(in crate::cli) fn named_app() -> Parameter {
    positional("APP", "{app}", "Slug or id of the app")
}

/// Option with the maximum number of rows.
pub(in crate::cli) fn limit(default: &'static str, help: &'static str) -> Parameter {
    option("--limit <LIMIT>", "?limit", help).is(number(0..=i64::from(u16::MAX))).default(default)
}

/// Declares an option that is a day or a time.
pub(in crate::cli) fn time(spec: &'static str, to: &'static str, help: &'static str) -> Parameter {
    option(spec, to, help).is(|text: &str| moment(text).map(|time| json!(time)))
}

pub(in crate::cli) fn tier(to: &'static str, help: &'static str) -> Parameter {
    option("--tier <TIER>", to, help).is(a_tier().map(|tier| tier.name().into()))
}

/// Declares an option that is a JSON value, or @FILE.
pub(in crate::cli) fn json_or_file(spec: &'static str, to: &'static str, help: &'static str) -> Parameter {
    option(spec, to, help).read(given_json)
}

/// Parser of an integer within a range.
pub(in crate::cli) fn number(range: impl RangeBounds<i64>) -> impl TypedValueParser<Value = Value> {
    RangedI64ValueParser::<i64>::new().range(range).map(Value::from)
}

/// Parser of a non-empty text.
pub(in crate::cli) fn word() -> impl TypedValueParser<Value = Value> {
    NonEmptyStringValueParser::new().map(Value::from)
}

/// Parses a time, or the beginning of a day.
pub(in crate::cli) fn moment(text: &str) -> Result<DateTime<Utc>, &'static str> {
    let day = || text.parse::<NaiveDate>().ok().map(|day| day.and_time(NaiveTime::MIN).and_utc());
    text.parse().ok().or_else(day).ok_or("must be such as 2030-01-31 or 2030-01-31T08:30:00Z")
}
