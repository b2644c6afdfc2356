//! Reads one record of a file: the same members whatever its form, so that everything behind is one. What is wrong is told by the
//! name of the field, never by its value.

use chrono::{DateTime, NaiveDateTime, Utc};
use serde_json::{Map, Value};

use super::super::details::Attributes;
use super::super::exports::line::{END, KINDS, SUBSCRIPTION};
use super::columns::{Columns, Field};

/// Columns that say nothing to us and are remembered.
const IGNORED_MAX: usize = 20;
/// Characters of their names that are.
const IGNORED_CHARS_MAX: usize = 64;

/// What a record says, as far as its form is right.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub endpoint: Option<String>,
    pub p256dh: Option<String>,
    pub auth: Option<String>,
    /// Milliseconds since 1970.
    pub expires_at: Option<f64>,
    pub user_id: Option<String>,
    pub tags: Option<Vec<String>>,
    pub attributes: Option<Attributes>,
    pub topics: Option<Vec<String>>,
    pub locale: Option<String>,
    pub timezone: Option<String>,
    /// An id, or the public key in base64.
    pub vapid_key: Option<String>,
    pub created_at: Option<DateTime<Utc>>,
    pub consent_at: Option<DateTime<Utc>>,
    pub consent_source: Option<String>,
    /// Of a line of an export: since when it is unsubscribed, and is to stay so.
    pub unsubscribed_at: Option<DateTime<Utc>>,
    pub policy: Option<Value>,
    /// It is not subscribed any more, or no subscription at all.
    pub left_out: bool,
}

/// What is wrong with a field.
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

/// Reads the records of one file.
#[derive(Debug)]
pub(super) struct Reader {
    columns: Columns,
    /// The columns of a CSV file, once its heading was read.
    heading: Option<(u8, Vec<String>)>,
    /// Columns that say nothing to us.
    pub ignored: Vec<String>,
    /// Whether a line of JSON was one of an export.
    is_export: bool,
    /// Whether its last line was read.
    has_end: bool,
}

impl Reader {
    pub(super) fn new(columns: Columns) -> Self {
        Self { columns, heading: None, ignored: Vec::new(), is_export: false, has_end: false }
    }

    /// Whether lines of an export were read, and not its last.
    pub(super) fn lacks_end(&self) -> bool {
        self.is_export && !self.has_end
    }

    /// Reads the heading of a CSV file: names, separated by what separates the cells.
    pub(super) fn heading(&mut self, octets: &[u8]) {
        let count = |separator: u8| octets.iter().filter(|octet| **octet == separator).count();
        let separator = [b',', b';', b'\t'].into_iter().max_by_key(|separator| (count(*separator), *separator == b','));
        let separator = separator.unwrap_or(b',');
        let names = cells(octets, separator).unwrap_or_default();
        self.heading = Some((separator, names.into_iter().map(|name| name.trim().to_owned()).collect()));
    }

    /// Whether the heading of a CSV file is still to come.
    pub(super) fn awaits_heading(&self) -> bool {
        self.heading.is_none()
    }

    /// Reads a row of a CSV file.
    pub(super) fn row(&mut self, octets: &[u8]) -> Result<Entry, Vec<Wrong>> {
        let (separator, names) = self.heading.as_ref().expect("the heading came first");
        let whole = |reason| vec![Wrong::new("", reason)];
        let cells = cells(octets, *separator).ok_or_else(|| whole("is not UTF-8"))?;
        if cells.len() > names.len() {
            return Err(whole("has more cells than there are columns"));
        }
        let filled = names.iter().zip(cells).filter(|(_, cell)| !cell.trim().is_empty());
        let members = filled.map(|(name, cell)| (name.clone(), Value::String(cell.trim().to_owned()))).collect();
        self.members(members)
    }

    /// Reads a JSON object.
    pub(super) fn object(&mut self, octets: &[u8]) -> Result<Entry, Vec<Wrong>> {
        match serde_json::from_slice(octets) {
            Ok(Value::Object(members)) => {
                let kind = self.kind(&members);
                self.is_export |= kind.is_some();
                self.has_end |= kind == Some(END);
                self.members(members)
            }
            Ok(_) => Err(vec![Wrong::new("", "is not a JSON object")]),
            Err(_) => Err(vec![Wrong::new("", "is not JSON")]),
        }
    }

    fn members(&mut self, mut members: Map<String, Value>) -> Result<Entry, Vec<Wrong>> {
        let (mut entry, mut wrong) = (Entry::default(), Vec::new());
        match self.kind(&members) {
            Some(SUBSCRIPTION) => wrong.extend(entry.of_export(&mut members)),
            Some(_) => return Ok(Entry { left_out: true, ..entry }),
            None => {}
        }
        self.read(members, true, &mut entry, &mut wrong);
        if wrong.is_empty() || entry.left_out { Ok(entry) } else { Err(wrong) }
    }

    /// What a line of an export is; none: it is of another file. Those have types, too, which may be called as ours are: but whatever
    /// has an endpoint is a subscription.
    fn kind(&self, members: &Map<String, Value>) -> Option<&'static str> {
        let said = members.get("type")?.as_str()?;
        let kind = KINDS.into_iter().find(|kind| *kind == said)?;
        (kind == SUBSCRIPTION || !self.has_endpoint(members, true)).then_some(kind)
    }

    fn has_endpoint(&self, members: &Map<String, Value>, outer: bool) -> bool {
        members.iter().any(|(name, value)| match (self.columns.field(name), value) {
            (Some(Field::Endpoint), value) => !value.is_null(),
            (Some(Field::Nested), Value::Object(members)) => outer && self.has_endpoint(members, false),
            // A text that is an object within: no line of an export has one.
            (Some(Field::Nested), value) => value.is_string(),
            _ => false,
        })
    }

    fn read(&mut self, members: Map<String, Value>, outer: bool, entry: &mut Entry, wrong: &mut Vec<Wrong>) {
        for (name, value) in members {
            match self.columns.field(&name) {
                None => self.ignore(name),
                Some(Field::Nothing) => {}
                Some(_) if value.is_null() => {}
                Some(Field::Nested) => match nested(value) {
                    Some(members) if outer || name == "keys" => self.read(members, false, entry, wrong),
                    _ => wrong.push(Wrong::new(name_of(&name), "is not a JSON object")),
                },
                Some(field) => {
                    if let Err(reason) = entry.set(&field, value) {
                        wrong.push(Wrong::new(field.name(), reason));
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

/// A name as it may be kept.
fn name_of(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(IGNORED_CHARS_MAX).collect()
}

/// The cells of a line. None: they are not UTF-8.
fn cells(octets: &[u8], separator: u8) -> Option<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(separator)
        .buffer_capacity(octets.len().max(1))
        .from_reader(octets);
    let mut record = csv::StringRecord::new();
    match reader.read_record(&mut record) {
        Ok(_) => Some(record.iter().map(str::to_owned).collect()),
        Err(_) => None,
    }
}

/// An object, or a text that has one, as tables keep subscriptions in.
fn nested(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(members) => Some(members),
        Value::String(text) => serde_json::from_str(&text).ok(),
        _ => None,
    }
}

type Read<T> = Result<T, &'static str>;

impl Entry {
    /// Takes out of a line of an export what other files do not say, or say otherwise. Returns what is wrong.
    fn of_export(&mut self, members: &mut Map<String, Value>) -> Option<Wrong> {
        members.remove("type");
        members.remove("id");
        match members.remove("state")?.as_str() {
            Some("active") => None,
            Some("unsubscribed") => match members.remove("unsubscribed_at").as_ref().map(time) {
                Some(Ok(at)) => {
                    self.unsubscribed_at = Some(at);
                    None
                }
                _ => Some(Wrong::new("unsubscribed_at", "must say since when")),
            },
            _ => Some(Wrong::new("state", "must be `active` or `unsubscribed`")),
        }
    }

    /// Takes in what a column says. Of two columns that say the same thing the first holds.
    fn set(&mut self, field: &Field, value: Value) -> Read<()> {
        fn first<T>(place: &mut Option<T>, value: T) {
            place.get_or_insert(value);
        }
        match field {
            Field::Endpoint => first(&mut self.endpoint, text(value)?),
            Field::P256dh => first(&mut self.p256dh, text(value)?),
            Field::Auth => first(&mut self.auth, text(value)?),
            Field::User => first(&mut self.user_id, text(value)?),
            Field::Topics => first(&mut self.topics, list(value)?),
            Field::Locale => first(&mut self.locale, text(value)?.replace('_', "-")),
            // Some give seconds from Greenwich, of which no zone follows.
            Field::Timezone => match text(value)? {
                offset if offset.parse::<f64>().is_ok() => {}
                zone => first(&mut self.timezone, zone),
            },
            Field::VapidKey => first(&mut self.vapid_key, text(value)?),
            Field::CreatedAt => first(&mut self.created_at, time(&value)?),
            Field::ConsentAt => first(&mut self.consent_at, time(&value)?),
            Field::ConsentSource => first(&mut self.consent_source, text(value)?),
            // Whether somebody agreed says neither when nor where.
            Field::Consent => {
                let Value::Object(mut consent) = parsed(value) else { return Ok(()) };
                for (name, field) in [("at", Field::ConsentAt), ("source", Field::ConsentSource)] {
                    if let Some(part) = consent.remove(name).filter(|part| !part.is_null()) {
                        self.set(&field, part)?;
                    }
                }
            }
            Field::ExpiresAt => first(&mut self.expires_at, time(&value)?.timestamp_millis() as f64),
            Field::Policy => first(&mut self.policy, parsed(value)),
            Field::Tags => match parsed(value) {
                // Pairs of names and values are attributes here.
                Value::Object(members) => self.attributes.get_or_insert_default().extend(members),
                value => first(&mut self.tags, list(value)?),
            },
            Field::Attributes => match parsed(value) {
                Value::Object(members) => self.attributes.get_or_insert_default().extend(members),
                _ => return Err("must be a JSON object"),
            },
            Field::Attribute(name) => {
                self.attributes.get_or_insert_default().insert(name.clone(), value);
            }
            Field::Active => self.left_out |= !truth(&value)?,
            Field::Ended => self.left_out |= truth(&value).unwrap_or(true),
            Field::Nested | Field::Nothing => {}
        }
        Ok(())
    }
}

/// A text that stands for JSON, read; any other value as it is.
fn parsed(value: Value) -> Value {
    match &value {
        Value::String(text) if text.starts_with(['{', '[']) => serde_json::from_str(text).unwrap_or(value),
        _ => value,
    }
}

/// A text, or a number as one.
fn text(value: Value) -> Read<String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err("must be a text"),
    }
}

/// A list of texts: a JSON array, or texts separated by `;`, `|` or `,`.
fn list(value: Value) -> Read<Vec<String>> {
    match parsed(value) {
        Value::Array(items) => items.into_iter().map(text).collect::<Read<_>>().map_err(|_| "must be a list of texts"),
        Value::String(text) => {
            let items = text.split([';', '|', ',']).map(str::trim).filter(|item| !item.is_empty());
            Ok(items.map(str::to_owned).collect())
        }
        _ => Err("must be a list of texts"),
    }
}

/// RFC 3339, such a time without an offset (UTC), or seconds or milliseconds since 1970.
fn time(value: &Value) -> Read<DateTime<Utc>> {
    const RULE: &str = "must be a time of RFC 3339, or seconds or milliseconds since 1970";
    /// From here on a number is taken for milliseconds: as seconds it would lie in the year 5138.
    const MILLISECONDS: f64 = 1e11;
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => return Err(RULE),
    };
    if let Some(number) = number.filter(|number: &f64| number.is_finite() && (0.0..1e14).contains(number)) {
        let ms = if number >= MILLISECONDS { number } else { number * 1e3 };
        return DateTime::from_timestamp_millis(ms as i64).ok_or(RULE);
    }
    let text = value.as_str().ok_or(RULE)?.trim();
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Ok(time.to_utc());
    }
    let plain = text.trim_end_matches("UTC").trim_end_matches('Z').trim_end().replace('T', " ");
    let local = NaiveDateTime::parse_from_str(&plain, "%Y-%m-%d %H:%M:%S%.f");
    local.map(|time| time.and_utc()).map_err(|_| RULE)
}

/// Yes or no, as JSON, SQL and spreadsheets write it.
fn truth(value: &Value) -> Read<bool> {
    match value {
        Value::Bool(is) => Ok(*is),
        Value::Number(number) => Ok(number.as_f64() != Some(0.0)),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "1" => Ok(true),
            "false" | "f" | "no" | "n" | "0" | "" => Ok(false),
            _ => Err("must be true or false"),
        },
        _ => Err("must be true or false"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reader() -> Reader {
        Reader::new(Columns::default())
    }

    fn read(object: &Value) -> Entry {
        reader().object(object.to_string().as_bytes()).unwrap()
    }

    fn row(heading: &str, row: &str) -> (Entry, Vec<String>) {
        let mut reader = reader();
        reader.heading(heading.as_bytes());
        (reader.row(row.as_bytes()).unwrap(), reader.ignored)
    }

    #[test]
    fn a_subscription_is_the_same_however_deep_its_parts_lie() {
        let keys = json!({"p256dh": "P", "auth": "A"});
        let whole = json!({"endpoint": "E", "expirationTime": 1_900_000_000_123_u64, "keys": keys});
        for object in [
            json!({"endpoint": "E", "p256dh": "P", "auth": "A", "expires_at": "2030-03-17T17:46:40.123Z", "user_id": 7}),
            json!({"endpoint": "E", "expirationTime": 1_900_000_000_123_u64, "keys": keys, "user_id": "7"}),
            json!({"subscription": whole, "user_id": "7"}),
            json!({"subscription": whole.to_string(), "uid": "7"}),
        ] {
            let entry = read(&object);
            let parts =
                [&entry.endpoint, &entry.p256dh, &entry.auth, &entry.user_id].map(|part| part.as_deref().unwrap());
            assert_eq!(parts, ["E", "P", "A", "7"], "{object}");
            assert_eq!(entry.expires_at, Some(1_900_000_000_123.0), "{object}");
        }
    }

    #[test]
    fn exports_of_other_senders_are_read_as_they_are() {
        // OneSignal's: tags are pairs, the zone is an offset, and what is dead says so.
        let heading = "id,identifier,session_count,language,timezone,tags,created_at,invalid_identifier,external_user_id,web_auth,web_p256";
        let (entry, ignored) = row(
            heading,
            r#"9f,https://fcm.googleapis.com/fcm/send/x,3,de,3600,"{""plan"":""pro""}",2024-01-23 08:25:00 UTC,f,42,A,P"#,
        );
        assert_eq!(entry.endpoint.as_deref(), Some("https://fcm.googleapis.com/fcm/send/x"));
        assert_eq!((entry.locale.as_deref(), entry.timezone, entry.left_out), (Some("de"), None, false));
        assert_eq!(entry.attributes.unwrap()["plan"], "pro");
        assert_eq!(entry.created_at.unwrap().to_rfc3339(), "2024-01-23T08:25:00+00:00");
        assert_eq!(ignored, ["id", "session_count"]);
        assert!(row(heading, "9f,https://x,3,de,3600,,,t,42,A,P").0.left_out);
        // Pushpad's.
        let (entry, _) = row("id,endpoint,p256dh,auth,uid,tags", "1,E,P,A,ann,sports;news");
        assert_eq!(
            (entry.user_id.as_deref(), entry.tags.unwrap()),
            (Some("ann"), vec!["sports".to_owned(), "news".to_owned()])
        );
        // Laravel's table.
        let (entry, _) =
            row("subscribable_id;endpoint;public_key;auth_token;created_at", "7;E;P;A;2025-05-01 10:00:00");
        assert_eq!(
            (entry.user_id.as_deref(), entry.p256dh.as_deref(), entry.auth.as_deref()),
            (Some("7"), Some("P"), Some("A"))
        );
        // Django's.
        let (entry, _) = row("id\tregistration_id\tp256dh\tauth\tactive\tuser_id", "1\tE\tP\tA\tFalse\t7");
        assert!(entry.left_out && entry.endpoint.as_deref() == Some("E"));
    }

    #[test]
    fn what_is_wrong_names_the_field_and_never_its_value() {
        for (object, field) in [
            (json!({"endpoint": ["hush"]}), "endpoint"),
            (json!({"tags": 7}), "tags"),
            (json!({"attributes": "hush"}), "attributes"),
            (json!({"created_at": "hush"}), "created_at"),
            (json!({"keys": "hush"}), "keys"),
            (json!({"type": "subscription", "state": "hush"}), "state"),
            (json!({"type": "subscription", "state": "unsubscribed"}), "unsubscribed_at"),
        ] {
            let wrong = reader().object(object.to_string().as_bytes()).unwrap_err();
            assert_eq!(wrong[0].field, field, "{object}");
            assert!(!format!("{wrong:?}").contains("hush"));
        }
        for line in ["hush", "[]", "{\"a\": hush}"] {
            let wrong = reader().object(line.as_bytes()).unwrap_err();
            assert!(wrong[0].field.is_empty() && !wrong[0].reason.contains("hush"), "{wrong:?}");
        }
    }

    #[test]
    fn lines_of_an_export_that_are_no_subscriptions_are_left_out() {
        for kind in KINDS {
            assert_eq!(read(&json!({"type": kind, "id": "x"})).left_out, kind != SUBSCRIPTION, "{kind}");
        }
    }

    #[test]
    fn whatever_has_an_endpoint_is_a_subscription_also_if_its_file_calls_it_as_an_export_calls_other_lines() {
        for kind in KINDS.into_iter().chain(["web"]) {
            for line in [
                json!({"type": kind, "endpoint": "E"}),
                json!({"type": kind, "subscription": {"endpoint": "E"}}),
                json!({"type": kind, "subscription": "{\"endpoint\": \"E\"}"}),
            ] {
                let entry = read(&line);
                assert_eq!((entry.left_out, entry.endpoint.as_deref()), (false, Some("E")), "{line}");
            }
            let mut reader = reader();
            let _ = reader.object(json!({"type": kind, "endpoint": "E"}).to_string().as_bytes());
            assert_eq!(reader.lacks_end(), kind == SUBSCRIPTION, "{kind}");
        }
    }

    #[test]
    fn an_export_without_its_last_line_lacks_its_end() {
        for (lines, lacks) in [
            (&["{}"][..], false),
            (&[r#"{"type":"web"}"#], false),
            (&[r#"{"type":"app"}"#], true),
            (&[r#"{"type":"subscription"}"#], true),
            (&[r#"{"type":"subscription"}"#, r#"{"type":"end","counts":{}}"#], false),
        ] {
            let mut reader = reader();
            for line in lines {
                let _ = reader.object(line.as_bytes());
            }
            assert_eq!(reader.lacks_end(), lacks, "{lines:?}");
        }
    }

    #[test]
    fn who_is_unsubscribed_in_an_export_stays_so() {
        let said = json!({"type": "subscription", "state": "unsubscribed", "unsubscribed_at": "2030-01-01T00:00:00Z"});
        let entry = read(&said);
        assert_eq!(entry.unsubscribed_at.unwrap().to_rfc3339(), "2030-01-01T00:00:00+00:00");
        assert!(!entry.left_out, "it is kept, as unsubscribed");
    }
}
