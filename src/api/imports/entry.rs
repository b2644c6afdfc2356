//! Parses one record of a file into the same members for each format. A fault names the field, and never contains the value.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::super::exports::record::{END, KINDS, SUBSCRIPTION};
use super::super::http::nul::{self, NO_NUL, any_text};
use super::columns::{Columns, Field, hides_state, looks_like_state};
use super::sample::SampleCell;
use super::values::{
    self, ParsedValue, is_null, is_rewritten_number, is_subscribed, key, list, parsed, text, time, truth,
};
use crate::api::http::csv_cells::{NEUTRALISED, restore};

/// Maximum unknown columns in a report.
const IGNORED_MAX: usize = 20;
/// Maximum characters of such a column name.
const IGNORED_CHARS_MAX: usize = 64;
/// Maximum depth of objects around a subscription that are searched.
const ENVELOPES_MAX: usize = 6;
/// Time zone numbers from here on are offsets in seconds; smaller ones are hours and minutes such as `-0800`.
const HHMM_END: f64 = 1_500.0;
/// OneSignal `device_type` values that are not browsers with keys: apps, e-mail, SMS and legacy Safari.
const OTHER_DEVICES: [&str; 12] = ["0", "1", "2", "3", "4", "6", "7", "9", "10", "11", "13", "14"];
/// Replacement for bytes that are invalid in the file's encoding.
pub(super) const UNREADABLE: char = '\u{fffd}';
const ENCODING_RULE: &str =
    "holds characters that are not UTF-8: save the file as UTF-8, or name its encoding by `charset`";
const STATE_RULE: &str = "is unknown and may contain the state of subscriptions: map it to `active`, `unsubscribed_at` or another member, or to \
                          nothing (`NAME:`) to ignore it";

/// Content of a record, with all members that could be parsed.
#[derive(Debug, Default)]
pub(super) struct RecordInput {
    pub endpoint: Option<String>,
    pub p256dh: Option<String>,
    pub auth: Option<String>,
    pub expires_at: Option<DateTime<Utc>>,
    pub user_id: Option<String>,
    pub tags: Option<Vec<String>>,
    pub attributes: Option<Map<String, Value>>,
    pub topics: Option<Vec<String>>,
    pub locale: Option<String>,
    pub timezone: Option<String>,
    /// VAPID key id, or the public key in base64.
    pub vapid_key: Option<String>,
    pub created_at: Option<DateTime<Utc>>,
    pub consent_at: Option<DateTime<Utc>>,
    pub consent_source: Option<String>,
    /// Time of the unsubscribe in a Bellwire export, which the import keeps.
    pub unsubscribed_at: Option<DateTime<Utc>>,
    pub policy: Option<Value>,
    /// Time until which only transactional messages are sent. A Bellwire export has 9999-12-31 for no end.
    pub muted_until: Option<DateTime<Utc>>,
    /// Whether the file marks the record as not subscribed.
    pub left_out: bool,
    /// Whether the device is not a browser. Without keys the record is then skipped.
    is_other_device: bool,
    /// Optional values that cannot be parsed and are omitted.
    pub warnings: Vec<Wrong>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    pub field: String,
    pub reason: String,
}

impl Wrong {
    pub(super) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

/// Parser of the records of one file.
#[derive(Debug)]
pub(super) struct RecordReader {
    columns: Columns,
    /// Separator from the first line of the file, as Excel writes it (`sep=;`).
    separator: Option<u8>,
    /// Separator and columns of a CSV file. `None`: the header line was not read yet.
    heading: Option<(u8, Vec<String>)>,
    pub ignored: Vec<String>,
    /// Whether an export line was read.
    is_export: bool,
    /// Whether the last line of an export was read.
    has_end: bool,
    /// Cells of the last record. `None`: no sample is requested.
    pub cells: Option<Vec<SampleCell>>,
}

impl RecordReader {
    pub(super) fn new(columns: Columns) -> Self {
        let (separator, heading, ignored, cells) = (None, None, Vec::new(), None);
        Self { columns, separator, heading, ignored, is_export: false, has_end: false, cells }
    }

    /// Whether export lines were read without the last line of an export.
    pub(super) fn lacks_end(&self) -> bool {
        self.is_export && !self.has_end
    }

    /// Reads the header line of a CSV file, or the line before it with the separator.
    ///
    /// # Errors Its rows cannot be read as subscriptions, or an unknown column may contain their state.
    pub(super) fn heading(&mut self, octets: &[u8]) -> Result<(), Vec<Wrong>> {
        if let Some([separator]) = octets.strip_suffix(b"\r").unwrap_or(octets).strip_prefix(b"sep=") {
            self.separator = Some(*separator);
            return Ok(());
        }
        let count = |separator: u8| octets.iter().filter(|octet| **octet == separator).count();
        let guess = || b",;\t|".iter().copied().max_by_key(|separator| (count(*separator), *separator == b','));
        let separator = self.separator.or_else(guess).unwrap_or(b',');
        let names: Vec<String> = cells(octets, separator).into_iter().map(|(name, _)| name.trim().to_owned()).collect();
        let fields: Vec<_> = names.iter().map(|name| self.columns.field(name)).collect();
        let has = |field: Field| fields.contains(&Some(field)) || fields.contains(&Some(Field::Nested));
        let is_whole = has(Field::Endpoint) && has(Field::P256dh) && has(Field::Auth);
        let unknown = names.iter().zip(&fields).filter(|(_, field)| field.is_none()).map(|(name, _)| name);
        let (wrong, ignored): (Vec<_>, Vec<_>) = match is_whole {
            true => unknown
                .filter(|name| looks_like_state(name))
                .map(|it| (Wrong::new(name_of(it), STATE_RULE), it))
                .unzip(),
            // One of them may be the endpoint, once `map` says so.
            false => (vec![Wrong::new("", no_heading(&names))], unknown.filter(|_| !are_values(&names)).collect()),
        };
        ignored.into_iter().for_each(|name| self.ignore(name.clone()));
        self.heading = Some((separator, names));
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Whether the header line of a CSV file was not read yet.
    pub(super) fn awaits_heading(&self) -> bool {
        self.heading.is_none()
    }

    pub(super) fn row(&mut self, octets: &[u8]) -> Result<RecordInput, Vec<Wrong>> {
        let (separator, names) = self.heading.as_ref().expect("the heading came first");
        let cells = cells(octets, *separator);
        if cells.iter().skip(names.len()).any(|(cell, _)| !cell.is_empty()) {
            return Err(vec![Wrong::new("", "has more cells than there are columns")]);
        }
        let marker = names.iter().position(|name| name == NEUTRALISED);
        let is_neutralised = marker.and_then(|at| cells.get(at)).is_some_and(|(cell, _)| cell.trim() == "true");
        let value = |(cell, is_quoted): (String, bool)| match cell.trim() {
            cell if cell.is_empty() || !is_quoted && is_null(cell) => Value::Null,
            cell => Value::from(if is_neutralised { restore(cell) } else { cell }),
        };
        let named = names.iter().cloned().zip(cells.into_iter().map(value));
        let members = named.filter(|(name, _)| name != NEUTRALISED || !is_neutralised).collect();
        self.members(members)
    }

    /// Parses a JSON object, or a Python dictionary as `print` writes it.
    pub(super) fn object(&mut self, octets: &[u8]) -> Result<RecordInput, Vec<Wrong>> {
        // Separators of JSON text sequences, and commas of an array whose lines were cut out.
        let octets = octets.trim_ascii();
        let octets = octets.strip_prefix(b"\x1e").unwrap_or(octets);
        let octets = octets.strip_suffix(b",").unwrap_or(octets);
        match str::from_utf8(octets).ok().and_then(values::json) {
            Some(Value::Object(members)) => {
                let kind = self.kind(&members);
                self.is_export |= kind.is_some();
                self.has_end |= kind == Some(END);
                let plain = |value| match value {
                    Value::Object(inner) => values::plain(values::without_types(inner).into()),
                    value => values::plain(value),
                };
                let members = values::without_types(members);
                self.members(members.into_iter().map(|(name, value)| (name, plain(value))).collect())
            }
            Some(Value::Array(_)) => Err(vec![Wrong::new("", "is a JSON array: set the format to `json`")]),
            Some(_) => Err(vec![Wrong::new("", "is not a JSON object")]),
            None => Err(vec![Wrong::new("", "is not JSON")]),
        }
    }

    fn members(&mut self, mut members: Map<String, Value>) -> Result<RecordInput, Vec<Wrong>> {
        let (mut entry, mut wrong) = (RecordInput::default(), Vec::new());
        match self.kind(&members) {
            Some(SUBSCRIPTION) => wrong.extend(entry.of_export(&mut members)),
            Some(_) => return Ok(RecordInput { left_out: true, ..entry }),
            None => {}
        }
        if let Some(reason) = self.many_in(&members, ENVELOPES_MAX) {
            return Err(vec![Wrong::new("", reason)]);
        }
        if let Some(cells) = &mut self.cells {
            cells.clear();
        }
        self.read(members, ENVELOPES_MAX, &mut entry, &mut wrong);
        entry.left_out |= entry.is_other_device && entry.p256dh.is_none();
        if wrong.is_empty() || entry.left_out { Ok(entry) } else { Err(wrong) }
    }

    /// Returns the type of an export line. `None`: a line of another file. A line with an endpoint is a subscription,
    /// with any `type`.
    fn kind(&self, members: &Map<String, Value>) -> Option<&'static str> {
        let said = members.get("type")?.as_str()?;
        let kind = KINDS.into_iter().find(|kind| *kind == said)?;
        (kind == SUBSCRIPTION || !self.has_endpoint(members, 2)).then_some(kind)
    }

    fn has_endpoint(&self, members: &Map<String, Value>, depth: usize) -> bool {
        members.iter().any(|(name, value)| match (self.columns.field(name), value) {
            (Some(Field::Endpoint), value) => value.as_str().is_some_and(|text| text.contains("://")),
            (Some(Field::Nothing | Field::Attributes | Field::Tags), _) => false,
            (_, Value::Object(members)) => depth > 1 && self.has_endpoint(members, depth - 1),
            // A text that is an object within: no line of an export has one.
            (Some(Field::Nested), value) => value.is_string(),
            _ => false,
        })
    }

    /// Describes an object that contains several subscriptions. `None`: it contains at most one.
    fn many_in(&self, members: &Map<String, Value>, depth: usize) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        if members.iter().any(|(name, value)| self.columns.field(name) == Some(Field::Endpoint) && !value.is_null()) {
            return None;
        }
        let is_one = |value: &Value| value.as_object().is_some_and(|members| self.has_endpoint(members, depth));
        let is_list = |value: &Value| value.as_array().is_some_and(|items| items.iter().any(is_one));
        if let Some((name, _)) = members.iter().find(|(_, value)| is_list(value)) {
            let name = name_of(name);
            return Some(format!("is an object with an array of subscriptions: send the array `{name}` alone"));
        }
        let mut holders = members.values().filter(|value| is_one(value));
        match (holders.next().and_then(Value::as_object), holders.next()) {
            (Some(_), Some(_)) => Some("is an object of subscriptions by name: send an array of its values".to_owned()),
            (Some(inner), None) => self.many_in(inner, depth),
            (None, _) => None,
        }
    }

    fn read(&mut self, members: Map<String, Value>, depth: usize, entry: &mut RecordInput, wrong: &mut Vec<Wrong>) {
        for (name, value) in members {
            let field = self.columns.field(&name);
            if let Some(cells) = &mut self.cells {
                cells.push(SampleCell::new(name_of(&name), field.as_ref(), &value));
            }
            match (field, value) {
                (Some(Field::Nothing), _) => {}
                (Some(_), Value::Null) => {}
                (Some(Field::Nested), value) => match parsed(value) {
                    Value::Object(members) if depth > 1 => self.read(members, depth - 1, entry, wrong),
                    _ => wrong.push(Wrong::new(name_of(&name), "is not a JSON object")),
                },
                (None, Value::Object(members)) if depth > 1 && self.has_endpoint(&members, depth - 1) => {
                    self.read(members, depth - 1, entry, wrong);
                }
                (None, value) => {
                    if !value.is_null() && looks_like_state(&name) || hides_state(&value, depth) {
                        wrong.push(Wrong::new(name_of(&name), STATE_RULE));
                    }
                    self.ignore(name);
                }
                (Some(field), value) => {
                    let is_garbled = value.as_str().is_some_and(|text| text.contains(UNREADABLE));
                    let set = match is_garbled {
                        true => Err(ENCODING_RULE),
                        false if has_nul(field.name()) || any_text(&value, &has_nul) => Err(NO_NUL),
                        false => entry.set(&field, value),
                    };
                    let Err(reason) = set else { continue };
                    match field.is_vital() {
                        true => wrong.push(Wrong::new(name_of(&name), reason)),
                        false => entry.warnings.push(Wrong::new(field.name(), reason)),
                    }
                }
            }
        }
    }

    fn ignore(&mut self, name: String) {
        let name = name_of(&name);
        if self.ignored.len() < IGNORED_MAX && !self.ignored.contains(&name) {
            self.ignored.push(name);
        }
    }
}

/// Whether a first line contains values, which may be secrets, instead of column names.
fn are_values(names: &[String]) -> bool {
    names.iter().any(|name| name.contains("://") || name.contains('{') || name.chars().count() > IGNORED_CHARS_MAX)
}

/// Describes a first line without the columns of a subscription. A line of values is not shown, because they may be secrets.
fn no_heading(names: &[String]) -> String {
    const EXPECTED: &str =
        "expected a line of names, with `endpoint`, `p256dh` and `auth` or names that `map` gives these meanings";
    if are_values(names) {
        return format!("found {} cells with values and no names; {EXPECTED}", names.len());
    }
    let shown: Vec<String> = names.iter().take(IGNORED_MAX).map(|name| format!("`{}`", name_of(name))).collect();
    format!("found the columns {}; {EXPECTED}", shown.join(", ")).chars().take(480).collect()
}

/// Truncates and cleans a column name for storing and showing.
pub(super) fn name_of(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(IGNORED_CHARS_MAX).collect()
}

/// Splits a line into cells, each with whether it was quoted: the `csv` crate does not report that.
fn cells(octets: &[u8], separator: u8) -> Vec<(String, bool)> {
    let mut reader = csv_core::ReaderBuilder::new().delimiter(separator).build();
    let line = [octets, b"\n"].concat();
    let (mut cells, mut cell, mut rest) = (Vec::new(), vec![0; line.len()], line.as_slice());
    loop {
        let is_quoted = rest.first() == Some(&b'"');
        let (result, read, written) = reader.read_field(rest, &mut cell);
        rest = &rest[read..];
        cells.push((String::from_utf8_lossy(&cell[..written]).into_owned(), is_quoted));
        if !matches!(result, csv_core::ReadFieldResult::Field { record_end: false }) {
            return cells;
        }
    }
}

impl RecordInput {
    /// Removes members that only export lines have, or have in another form. Returns a fault if one cannot be parsed.
    fn of_export(&mut self, members: &mut Map<String, Value>) -> Option<Wrong> {
        members.remove("type");
        members.remove("id");
        match members.remove("state").filter(|state| !state.is_null())?.as_str() {
            Some("active") => None,
            Some("unsubscribed") => match members.remove("unsubscribed_at").as_ref().map(time) {
                Some(Ok(Some(at))) => {
                    self.unsubscribed_at = Some(at);
                    None
                }
                _ => Some(Wrong::new("unsubscribed_at", "must contain the time of the unsubscription")),
            },
            _ => Some(Wrong::new("state", "must be `active` or `unsubscribed`")),
        }
    }

    /// Stores the value of a column. If two columns map to the same field, the first one counts.
    fn set(&mut self, field: &Field, value: Value) -> ParsedValue<()> {
        fn first<T>(place: &mut Option<T>, value: T) {
            place.get_or_insert(value);
        }
        fn first_time(place: &mut Option<DateTime<Utc>>, value: &Value) -> ParsedValue<()> {
            let at = time(value)?;
            *place = place.take().or(at);
            Ok(())
        }
        match field {
            Field::Endpoint => first(&mut self.endpoint, text(value)?),
            Field::P256dh => first(&mut self.p256dh, key(value)?),
            Field::Auth => first(&mut self.auth, key(value)?),
            Field::User => self.set_user(text(value)?),
            Field::OwnerType => return is_user(&text(value)?),
            Field::Topics => first(&mut self.topics, list(value)?),
            Field::Locale => first(&mut self.locale, text(value)?),
            // Some give seconds from Greenwich, of which no zone follows.
            Field::Timezone => match text(value)? {
                offset if offset.parse().is_ok_and(|n: f64| n.abs() >= HHMM_END || !offset.starts_with(['+', '-'])) => {
                }
                zone => first(&mut self.timezone, zone),
            },
            Field::VapidKey => first(&mut self.vapid_key, text(value)?),
            Field::CreatedAt => first_time(&mut self.created_at, &value)?,
            Field::ConsentAt => first_time(&mut self.consent_at, &value)?,
            Field::ConsentSource => first(&mut self.consent_source, text(value)?),
            Field::Consent => return self.set_consent(parsed(value)),
            Field::ExpiresAt => first_time(&mut self.expires_at, &value)?,
            Field::MutedUntil => first_time(&mut self.muted_until, &value)?,
            Field::Policy => first(&mut self.policy, parsed(value)),
            Field::Tags => match parsed(value) {
                // Pairs of names and values are attributes here.
                Value::Object(members) => self.set_attributes(members),
                value => first(&mut self.tags, list(value)?),
            },
            Field::Attributes => match parsed(value) {
                Value::Object(members) => self.set_attributes(members),
                _ => return Err("must be a JSON object"),
            },
            Field::Attribute(name) => self.set_attributes([(name.clone(), value)].into_iter().collect()),
            Field::Active => self.left_out |= !is_subscribed(&value)?,
            Field::Ended => self.left_out |= values::ended(&value)?,
            Field::NotificationTypes => {
                let number = text(value).ok().and_then(|text| text.trim().parse::<f64>().ok());
                self.left_out |= number.ok_or("must be a number; above zero means subscribed")? <= 0.0;
            }
            Field::DeviceType => self.is_other_device = OTHER_DEVICES.contains(&text(value)?.as_str()),
            Field::TestDevice => self.left_out |= truth(&value).unwrap_or(Some(true)).unwrap_or(false),
            Field::Nested | Field::Nothing => {}
        }
        Ok(())
    }

    /// Parses a consent: an object with time and source, a boolean, or a time.
    fn set_consent(&mut self, value: Value) -> ParsedValue<()> {
        const RULE: &str = "must be true, false, a time, or an object with `at` and `source`; map the column to `consent_source` or to nothing";
        let given = truth(&value);
        let mut consent = match (value, given) {
            (Value::Object(consent), _) => consent,
            (_, Ok(given)) => {
                self.left_out |= given == Some(false);
                return Ok(());
            }
            (value, Err(_)) => {
                self.consent_at = self.consent_at.or(time(&value).map_err(|_| RULE)?);
                return Ok(());
            }
        };
        for (name, field) in [("at", Field::ConsentAt), ("source", Field::ConsentSource)] {
            let part = consent.remove(name).filter(|part| !part.is_null());
            if let Some(Err(reason)) = part.map(|part| self.set(&field, part)) {
                self.warnings.push(Wrong::new(field.name(), reason));
            }
        }
        let is_unclear = consent.values().any(Value::is_boolean) || hides_state(&consent.into(), ENVELOPES_MAX);
        if is_unclear { Err(RULE) } else { Ok(()) }
    }

    fn set_attributes(&mut self, members: Map<String, Value>) {
        self.attributes.get_or_insert_default().extend(members.into_iter().filter(|(_, value)| !value.is_null()));
    }

    fn set_user(&mut self, id: String) {
        if id.is_empty() || self.user_id.is_some() {
            return;
        }
        let warning = match &id {
            id if is_null(id) => Some("is a word for no user at all: leave the member out where there is none"),
            id if is_rewritten_number(id) => {
                Some("looks like a number that a program rewrote, as `42` to `42.0`: export it as text")
            }
            _ => None,
        };
        self.warnings.extend(warning.map(|reason| Wrong::new("user_id", reason)));
        self.user_id = Some(id);
    }
}

/// Whether a text contains NUL, as a character or escaped in JSON.
fn has_nul(text: &str) -> bool {
    let in_json = |json: &Value| !json.is_string() && any_text(json, &has_nul);
    nul::has_nul(text) || (text.contains("\\u0000") && in_json(&parsed(text.into())))
}

/// Checks that the type of an owner is a user. Ids of other owner types could equal user ids.
fn is_user(kind: &str) -> ParsedValue<()> {
    let last = kind.rsplit(['\\', '/', '.', ':']).next().unwrap_or(kind);
    match last.to_ascii_lowercase().as_str() {
        "user" | "users" | "" => Ok(()),
        _ => Err(
            "is another kind of owner than a user, whose ids may be those of users: ignore the column by `map` if all owners are \
                  of one kind",
        ),
    }
}
