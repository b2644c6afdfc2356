//! Parses single values as databases, programming languages and spreadsheets write them. Error texts contain no values, which
//! may be secrets.

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use serde_json::{Map, Number, Value};

use bellwire_core::{base64url, request_time};

/// Parsed value, or the rule that it violates.
pub(super) type ParsedValue<T> = Result<T, &'static str>;

/// Maximum nesting of a record with extended JSON.
const DEPTH_MAX: usize = 16;
/// Spellings of an absent value, in lower case. They apply only to unquoted cells.
const NULLS: &str = "null (null) [null] <null> {null} \\n none (none) nil <nil> undefined undef nan -nan nat <na> #n/a #null! n/a dbnull";

/// Whether a cell means an absent value: `NULL`, `\N`, `None`, `nil`, R's `NA` and similar spellings.
pub(super) fn is_null(cell: &str) -> bool {
    let lower = cell.to_ascii_lowercase();
    cell.is_empty() || cell == "NA" || NULLS.split(' ').any(|null| null == lower)
}

/// Parses JSON or a similar notation of another language: Python's `{'a': None}`, Ruby's `{"a"=>nil}`, PostgreSQL's `"a"=>"b"`,
/// `{_id: ObjectId('…')}` of the MongoDB shell, or PHP's `a:1:{…}`.
pub(super) fn json(text: &str) -> Option<Value> {
    let text = text.trim();
    let strict = serde_json::from_str(text).ok();
    strict
        .or_else(|| serialized(text, DEPTH_MAX).map(|(value, _)| value))
        .or_else(|| serde_json::from_str(&as_json(text)).ok())
}

/// Rewrites single quotes, arrows, bare names, calls and keywords of other languages as JSON. Strings stay unchanged.
fn as_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    // For each open call, what closes it in JSON: nothing for `ISODate("…")`, a bracket for `date(2024, 1, 23)`.
    let mut calls = Vec::new();
    while let Some(c) = rest.chars().next() {
        let word = &rest[..rest.find(|c: char| !c.is_alphanumeric() && !"_$.".contains(c)).unwrap_or(rest.len())];
        let behind = rest[word.len()..].trim_start();
        let took = match (c, word) {
            ('"' | '\'', _) => string(rest, &mut out),
            (_, word) if !word.is_empty() && behind.starts_with('(') => {
                let is_single =
                    behind.split(')').next().is_some_and(|it| it.contains(['"', '\'']) || !it.contains(','));
                out.push_str(if is_single { "" } else { "[" });
                calls.push(if is_single { "" } else { "]" });
                rest.len() - behind.len() + 1
            }
            (_, word) if !word.is_empty() => {
                push_word(word, behind, &mut out);
                word.len()
            }
            (')', _) if !calls.is_empty() => {
                out.extend(calls.pop());
                1
            }
            ('=', _) if rest.starts_with("=>") => {
                out.push(':');
                2
            }
            // Ruby's symbols, and minus infinity.
            (':', _) if out.trim_end().ends_with(['{', ',']) => 1,
            ('-', _) if rest.starts_with("-I") => 1,
            (c, _) => {
                out.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[took..];
    }
    if text.starts_with('"') && text.contains("=>") { format!("{{{out}}}") } else { out }
}

/// Writes a bare word as JSON: a literal, or a quoted name if a colon or an arrow follows.
fn push_word(word: &str, behind: &str, out: &mut String) {
    let is_name = behind.starts_with("=>")
        || behind.strip_prefix(':').is_some_and(|it| it.starts_with([' ', '"', '\'', '{', '[']));
    match word {
        "None" | "nil" | "NULL" | "NaN" | "Infinity" | "undefined" => out.push_str("null"),
        "True" => out.push_str("true"),
        "False" => out.push_str("false"),
        // JavaScript's `new Date(…)`.
        "new" => {}
        word if is_name => out.extend(["\"", word, "\""]),
        word => out.push_str(word),
    }
}

/// Writes the string at the beginning of a text as a JSON string. Returns its length in the text.
fn string(text: &str, out: &mut String) -> usize {
    let quote = text.chars().next();
    let mut chars = text.char_indices().skip(1);
    out.push('"');
    while let Some((at, c)) = chars.next() {
        match c {
            c if Some(c) == quote => {
                out.push('"');
                return at + 1;
            }
            '\\' => match chars.next() {
                Some((_, '\'')) => out.push('\''),
                Some((_, escaped)) => out.extend(['\\', escaped]),
                None => {}
            },
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    text.len()
}

/// Parses a value of PHP's `serialize`, up to a depth. Also returns the text after it.
fn serialized(text: &str, depth: usize) -> Option<(Value, &str)> {
    let depth = depth.checked_sub(1)?;
    let (kind, rest) = text.split_at_checked(2)?;
    match kind {
        "N;" => Some((Value::Null, rest)),
        "b:" => rest.split_once(';').map(|(bit, rest)| ((bit == "1").into(), rest)),
        "i:" | "d:" => rest.split_once(';').map(|(digits, rest)| (number(digits.into()), rest)),
        "s:" => {
            let (octets, rest) = rest.split_once(":\"")?;
            let (text, rest) = rest.split_at_checked(octets.parse().ok()?)?;
            Some((text.into(), rest.strip_prefix("\";")?))
        }
        "a:" | "O:" => {
            let (head, mut rest) = rest.split_once(":{")?;
            let (mut members, items) = (Map::new(), head.rsplit(':').next()?.parse::<usize>().ok()?);
            let mut is_list = kind == "a:";
            for place in 0..items {
                let (name, behind) = serialized(rest, depth)?;
                let (value, behind) = serialized(behind, depth)?;
                is_list &= name == place;
                members.insert(text_of_name(&name), value);
                rest = behind;
            }
            let list = is_list.then(|| Value::from(by_place(&members, |value| Some(value.clone()))));
            Some((list.unwrap_or_else(|| members.into()), rest.strip_prefix('}')?))
        }
        _ => None,
    }
}

fn text_of_name(name: &Value) -> String {
    name.as_str().map_or_else(|| name.to_string(), str::to_owned)
}

/// Parses the members `0`, `1` and so on, up to the first that is missing or invalid.
fn by_place<T>(members: &Map<String, Value>, read: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    (0..members.len()).map_while(|place| read(members.get(&place.to_string())?)).collect()
}

/// Object forms of a value: the member that marks the form, and the member with the value. They come from Parse Server,
/// RethinkDB, MongoDB (old and new binaries), Firestore and protobuf.
const WRAPPED: [(&str, &str); 8] = [
    ("__type", "iso"),
    ("__type", "base64"),
    ("$reql_type$", "epoch_time"),
    ("$reql_type$", "data"),
    ("$type", "$binary"),
    ("_nanoseconds", "_seconds"),
    ("nanoseconds", "seconds"),
    ("nanos", "seconds"),
];

/// Reduces extended JSON to plain JSON: MongoDB's `{"$date": …}`, Firestore's `{"stringValue": …}` and `{"_seconds": …}`, and the
/// buffers of Node.js.
pub(super) fn plain(value: Value) -> Value {
    plain_to(value, DEPTH_MAX)
}

fn plain_to(value: Value, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else { return value };
    let value = match value {
        Value::Array(items) => return items.into_iter().map(|item| plain_to(item, depth)).collect(),
        Value::Object(members) => members,
        value => return value,
    };
    let wrapped = WRAPPED.iter().find(|(mark, holder)| value.contains_key(*mark) && value.contains_key(*holder));
    if let Some((_, holder)) = wrapped {
        return value[*holder].clone();
    }
    if value.get("type").is_some_and(|kind| kind == "Buffer")
        && let Some(data) = value.get("data")
    {
        return octets(data).map_or_else(|| data.clone(), |octets| base64url::encode(octets).into());
    }
    let mut members: Map<String, Value> =
        value.into_iter().map(|(name, value)| (name, plain_to(value, depth))).collect();
    let Some(name) = members.keys().next().filter(|_| members.len() == 1).cloned() else { return members.into() };
    let inner = members.get_mut(&name).map(Value::take).unwrap_or_default();
    match (name.as_str(), inner) {
        ("$numberLong" | "$numberInt" | "$numberDouble" | "$numberDecimal" | "integerValue" | "doubleValue", inner) => {
            number(inner)
        }
        ("$binary", Value::Object(mut binary)) => binary.remove("base64").unwrap_or_default(),
        ("$timestamp", Value::Object(mut at)) => at.remove("t").unwrap_or_default(),
        ("nullValue" | "$undefined", _) => Value::Null,
        ("mapValue", Value::Object(mut map)) => map.remove("fields").unwrap_or_default(),
        ("arrayValue", Value::Object(mut list)) => list.remove("values").unwrap_or_else(|| Value::Array(Vec::new())),
        (
            "$date" | "$oid" | "$uuid" | "$symbol" | "$binary" | "_seconds" | "stringValue" | "booleanValue"
            | "bytesValue" | "timestampValue",
            inner,
        ) => inner,
        (_, inner) => {
            members.insert(name, inner);
            members.into()
        }
    }
}

fn number(value: Value) -> Value {
    let read = value.as_str().and_then(|text| text.parse::<Number>().ok());
    read.map_or(value, Value::Number)
}

/// Reduces a DynamoDB item, whose members all name their types (`{"S": …}`), to plain JSON. Other objects stay as they are.
pub(super) fn without_types(members: Map<String, Value>) -> Map<String, Value> {
    if members.is_empty() || !members.values().all(is_typed) {
        return members;
    }
    members.into_iter().map(|(name, value)| (name, untyped(value))).collect()
}

fn is_typed(value: &Value) -> bool {
    let Some((kind, inner)) = value.as_object().filter(|it| it.len() == 1).and_then(|it| it.iter().next()) else {
        return false;
    };
    match kind.as_str() {
        "S" | "N" | "B" => inner.is_string(),
        "BOOL" | "NULL" => inner.is_boolean(),
        "M" => inner.is_object(),
        "L" | "SS" | "NS" | "BS" => inner.is_array(),
        _ => false,
    }
}

fn untyped(value: Value) -> Value {
    let Value::Object(members) = value else { return value };
    let Some((kind, inner)) = members.into_iter().next() else { return Value::Null };
    match (kind.as_str(), inner) {
        ("NULL", _) => Value::Null,
        ("N", inner) => number(inner),
        ("M", Value::Object(members)) => members.into_iter().map(|(name, value)| (name, untyped(value))).collect(),
        ("L", Value::Array(items)) => items.into_iter().map(untyped).collect(),
        (_, inner) => inner,
    }
}

fn octets(value: &Value) -> Option<Vec<u8>> {
    let octet = |value: &Value| value.as_u64().and_then(|octet| u8::try_from(octet).ok());
    match value {
        Value::Array(items) => items.iter().map(octet).collect(),
        // A Uint8Array as JSON.stringify writes it.
        Value::Object(members) => Some(by_place(members, octet)).filter(|octets| octets.len() == members.len()),
        _ => None,
    }
}

/// Parses a key of a subscription: base64, a hexadecimal `bytea`, or an array of bytes.
pub(super) fn key(value: Value) -> ParsedValue<String> {
    let value = parsed(value);
    if let Some(octets) = octets(&value) {
        return Ok(base64url::encode(octets));
    }
    let text = text(value)?;
    // Hexadecimal of a point or of 16 octets: base64 of those has other lengths.
    let digits = text.strip_prefix("\\x").or_else(|| text.strip_prefix("0x")).unwrap_or(&text);
    let octet = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let octets: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(octet).collect();
    Ok(octets.filter(|octets| [16, 65].contains(&octets.len())).map_or(text, base64url::encode))
}

/// Parses a string. A number is converted to a string.
pub(super) fn text(value: Value) -> ParsedValue<String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err("must be a string"),
    }
}

/// Whether a user id looks like a number that a program reformatted: `42.0`, `1.2E+11`.
pub(super) fn is_rewritten_number(id: &str) -> bool {
    let is_number = id.starts_with(|c: char| c.is_ascii_digit()) && id.parse::<f64>().is_ok();
    is_number && (id.trim_end_matches('0').ends_with('.') || id.contains("e+") || id.contains("E+"))
}

/// Parses an array of strings: JSON, PostgreSQL's `{a,"b c"}`, Python's `['a']`, or strings separated by `;`, `|` or `,`.
pub(super) fn list(value: Value) -> ParsedValue<Vec<String>> {
    const RULE: &str = "must be an array of strings";
    match parsed(value) {
        Value::Array(items) => {
            let items = items.into_iter().filter(|item| !item.is_null());
            items.map(text).collect::<ParsedValue<_>>().map_err(|_| RULE)
        }
        Value::String(text) => match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(array) => Ok(array_literal(array)),
            None => {
                let items = text.split([';', '|', ',']).map(str::trim).filter(|item| !item.is_empty());
                Ok(items.map(str::to_owned).collect())
            }
        },
        _ => Err(RULE),
    }
}

/// Splits a PostgreSQL array literal into its elements. Omits unquoted `NULL`s.
fn array_literal(text: &str) -> Vec<String> {
    let (mut items, mut item, mut is_quoted, mut is_within) = (Vec::new(), String::new(), false, false);
    let mut chars = text.chars().chain([',']);
    while let Some(c) = chars.next() {
        match c {
            '\\' if is_within => item.extend(chars.next()),
            '"' => (is_quoted, is_within) = (true, !is_within),
            ',' if !is_within => {
                let whole = std::mem::take(&mut item);
                if is_quoted || !is_null(whole.trim()) {
                    items.push(whole.trim().to_owned());
                }
                is_quoted = false;
            }
            c => item.push(c),
        }
    }
    items
}

/// Parses a string that contains an object or an array, even if it is encoded twice. Other values stay unchanged.
pub(super) fn parsed(value: Value) -> Value {
    const BEGINNINGS: [&str; 6] = ["{", "[", "\"{", "\"[", "a:", "O:"];
    match &value {
        Value::String(text) if BEGINNINGS.iter().any(|begin| text.starts_with(begin)) || text.contains("=>") => {
            match json(text).map(plain) {
                Some(Value::String(inner)) if inner.len() < text.len() => parsed(inner.into()),
                Some(parsed) => parsed,
                None => value,
            }
        }
        _ => value,
    }
}

/// Parses a time. `None`: a value that means no time, such as MySQL's zero date.
pub(super) fn time(value: &Value) -> ParsedValue<Option<DateTime<Utc>>> {
    const RULE: &str = "must be a time of RFC 3339 (years 1 to 9999), or seconds or milliseconds since 1970";
    let bounded = |at: Option<DateTime<Utc>>| at.and_then(request_time::bounded).map(Some).ok_or(RULE);
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => Ok(None),
        Value::Number(number) => bounded(number.as_f64().and_then(since_1970)),
        Value::String(text) if is_no_time(text.trim()) => Ok(None),
        Value::String(text) => bounded(written(text.trim())),
        Value::Array(parts) => bounded(of_parts(parts)),
        Value::Null => Ok(None),
        _ => Err(RULE),
    }
}

fn is_no_time(text: &str) -> bool {
    const NEVER: [&str; 4] = ["0000-00-00", "0001-01-01", "1753-01-01", "9999-12-31"];
    is_null(text) || ["0", "infinity", "-infinity"].contains(&text) || NEVER.iter().any(|never| text.starts_with(never))
}

/// Converts a Unix time in seconds, milliseconds, microseconds or nanoseconds. The magnitude is unambiguous for the years 1973
/// to 5138.
fn since_1970(number: f64) -> Option<DateTime<Utc>> {
    let ms = match number {
        // Days since 1900, as spreadsheets write times from 1970 to 2100.
        25_569.0..73_051.0 => (number - 25_569.0) * 86_400e3,
        ..1e8 => return None,
        ..1e11 => number * 1e3,
        ..1e14 => number,
        ..1e17 => number / 1e3,
        // Steps of 100 ns since the year 1, as .NET counts.
        6e17..7e17 => number / 1e4 - 62_135_596_800e3,
        ..1e20 => number / 1e6,
        _ => return None,
    };
    DateTime::from_timestamp_millis(ms.round() as i64)
}

/// Converts an array of year, month, day and time of day, as Java's Jackson writes it.
fn of_parts(parts: &[Value]) -> Option<DateTime<Utc>> {
    let part = |at: usize| parts.get(at).map_or(Some(0), |part| u32::try_from(part.as_u64()?).ok());
    let date = NaiveDate::from_ymd_opt(i32::try_from(part(0)?).ok()?, part(1)?, part(2)?)?;
    Some(date.and_hms_opt(part(3)?, part(4)?, part(5)?)?.and_utc())
}

fn written(text: &str) -> Option<DateTime<Utc>> {
    // PostgreSQL, Ruby, Go, JavaScript and mail; `%#z` reads `+00`, `+0000` and `+00:00`.
    const WITH_OFFSET: [&str; 6] = [
        "%Y-%m-%d %H:%M:%S%.f%#z",
        "%Y-%m-%d %H:%M:%S%.f %#z",
        "%a %b %d %Y %H:%M:%S GMT%#z",
        "%a, %d %b %Y %H:%M:%S %#z",
        "%a %b %d %H:%M:%S %#z %Y",
        "%Y-%m-%d %H:%M%#z",
    ];
    // SQL, SQL Server, C, Java, compact ISO 8601, DB2, Oracle, and spreadsheets; all are in UTC.
    const PLAIN: [&str; 17] = [
        "%Y-%m-%d %H:%M:%S%.f",
        "%b %e %Y %I:%M%p",
        "%a %b %e %H:%M:%S %Y",
        "%a %b %e %H:%M:%S UTC %Y",
        "%a %b %e %H:%M:%S GMT %Y",
        "%Y-%m-%d %H:%M",
        "%Y%m%d%H%M%S",
        "%Y%m%dT%H%M%S%.f",
        "%Y/%m/%d %H:%M:%S",
        "%Y/%m/%d %H:%M",
        "%Y-%m-%d-%H.%M.%S%.f",
        "%d-%b-%y %I.%M.%S%.f %p",
        "%d.%m.%Y %H:%M:%S",
        "%d.%m.%Y %H:%M",
        "%B %e, %Y, %I:%M %p",
        "%B %e, %Y %I:%M:%S %p",
        "%d %B %Y %H:%M:%S",
    ];
    const DATES: [&str; 5] = ["%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%Y%m%d", "%B %e, %Y"];
    // Java's zone in brackets, JavaScript's in parentheses, Go's monotonic clock and .NET's wrapping say nothing more.
    let text = text.strip_prefix("/Date(").map_or(text, |ms| ms.trim_end_matches([')', '/']));
    let text = text.split(['[', '(']).next()?.split(" m=").next()?.trim();
    let offset_twice = |text: &str| text.strip_suffix(" UTC").is_some_and(|text| text.contains(" +"));
    let text = if offset_twice(text) { &text[..text.len() - " UTC".len()] } else { text };
    let is_compact = text.len() == "20240123082500".len() && text.bytes().all(|octet| octet.is_ascii_digit());
    if let Some(time) = text.parse().ok().filter(|_| !is_compact).and_then(since_1970) {
        return Some(time);
    }
    if let Ok(time) = DateTime::parse_from_rfc3339(text).or_else(|_| DateTime::parse_from_rfc2822(text)) {
        return Some(time.to_utc());
    }
    let is_iso = text.as_bytes().get(10) == Some(&b'T') && text.starts_with(|c: char| c.is_ascii_digit());
    let text = if is_iso { text.replacen('T', " ", 1) } else { text.to_owned() };
    if let Some(time) = WITH_OFFSET.iter().find_map(|form| DateTime::parse_from_str(&text, form).ok()) {
        return Some(time.to_utc());
    }
    let local = text.trim_end_matches("UTC").trim_end_matches("GMT").trim_end_matches('Z').trim_end();
    let plain = PLAIN.iter().find_map(|form| NaiveDateTime::parse_from_str(local, form).ok());
    let date = || DATES.iter().find_map(|form| NaiveDate::parse_from_str(local, form).ok())?.and_hms_opt(0, 0, 0);
    plain.or_else(date).map(|time| time.and_utc())
}

/// Words for true in JSON, SQL and spreadsheets, in several languages.
const TRUE: &str = "true t yes y on 1 1.0 b'1' \u{1} wahr ja vrai oui verdadero verdadeiro sí si sim vero waar";
const FALSE: &str = "false f no n off 0 0.0 b'0' \0 falsch nein faux non falso não nao onwaar nee";
/// Words for the state subscribed, in lower case without punctuation.
const SUBSCRIBED: &str =
    "active subscribed enabled granted allowed optedin optin valid ok confirmed verified registered live accepted";
const NOT_SUBSCRIBED: &str = "inactive unsubscribed disabled denied default prompt blocked optedout optout invalid deleted removed gone \
    expired revoked suspended paused banned bounced unreachable uninstalled replaced neversubscribed notsubscribed nopermission \
    cancelled canceled withdrawn suppressed failed dead closed ended archived trashed muted rejected declined lapsed erased";

/// Parses a boolean. `None`: absent.
pub(super) fn truth(value: &Value) -> ParsedValue<Option<bool>> {
    const RULE: &str = "must be true or false";
    match value {
        Value::Null => Ok(None),
        Value::Bool(is) => Ok(Some(*is)),
        Value::Number(number) => match number.as_f64() {
            Some(0.0) => Ok(Some(false)),
            Some(1.0) => Ok(Some(true)),
            _ => Err(RULE),
        },
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            text if is_null(text) => Ok(None),
            text if TRUE.split(' ').any(|word| word == text) => Ok(Some(true)),
            text if FALSE.split(' ').any(|word| word == text) => Ok(Some(false)),
            _ => Err(RULE),
        },
        _ => Err(RULE),
    }
}

/// Parses whether a subscription has ended: a boolean, or the time of its end.
pub(super) fn ended(value: &Value) -> ParsedValue<bool> {
    if let Ok(is) = truth(value) {
        return Ok(is.unwrap_or(false));
    }
    time(value).map(|at| at.is_some()).map_err(|_| "must be empty, true, false or a time")
}

/// Parses a word for a subscription state. `Ok(true)`: subscribed.
pub(super) fn is_subscribed(value: &Value) -> ParsedValue<bool> {
    if let Ok(is) = truth(value) {
        return Ok(is.unwrap_or(true));
    }
    let letters = value.as_str().unwrap_or_default().chars().filter(char::is_ascii_alphanumeric);
    let word: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    let is_in = |words: &str| words.split_whitespace().any(|known| known == word);
    match (is_in(SUBSCRIBED), is_in(NOT_SUBSCRIBED)) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err("is no known word for a state; map the column to `active`, or to nothing to take every line"),
    }
}
