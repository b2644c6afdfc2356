//! Property tests of rules that all resources share: paging, entity tags, and schema faults of bodies.

use std::collections::BTreeSet;

use axum::http::header::IF_MATCH;
use axum::http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

use super::api_keys::NewApiKey;
use super::flows::FlowRequest;
use super::http::etag::{self, Comparison};
use super::http::paging::{Page, Paging};
use super::http::problem::FieldError;
use super::http::schema_errors::mismatches;
use super::topics::TopicRequest;
use crate::api::messages::compose::MessageRequest;
use bellwire_store::keyset::{Keyset, Towards};

/// Builds a page from rows with these ids, as a statement with the page's conditions and limit returns them.
fn page(rows: &BTreeSet<u128>, limit: u16, iterator: Option<&String>) -> Page<u128> {
    let cut = Paging { limit: Some(limit), iterator: iterator.cloned() }.cut().expect("an iterator of this list");
    let Keyset { towards, beyond, limit } = cut.ask();
    let limit = usize::try_from(limit).expect("a small limit");
    let found: Vec<u128> = match towards {
        Towards::Older => rows.range(..beyond.as_u128()).rev().take(limit).copied().collect(),
        Towards::Newer => rows.range(beyond.as_u128() + 1..).take(limit).copied().collect(),
    };
    cut.page(found, |row| Uuid::from_u128(*row), |row| row)
}

fn rows(max: usize) -> impl Strategy<Value = BTreeSet<u128>> {
    prop::collection::btree_set(1..10_000u128, 0..max)
}

/// Generates an opaque tag (RFC 9110 section 8.8.3).
fn opaque_tag() -> impl Strategy<Value = String> {
    "[!#-~]{0,12}".prop_map(|octets| format!("\"{octets}\""))
}

fn tag_list() -> impl Strategy<Value = Vec<(bool, String)>> {
    prop::collection::vec((any::<bool>(), opaque_tag()), 0..6)
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..300u32).prop_map(Value::from),
        "[a-z]{0,6}".prop_map(Value::from),
        Just(Value::from("018f4c3e-0000-7000-8000-000000000001")),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}|base64|title|body", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Change of a body: the member at an index (modulo their number) is removed, renamed or replaced.
#[derive(Debug, Clone)]
enum BodyChange {
    Remove,
    Add(String, Value),
    Replace(Value),
}

fn changes() -> impl Strategy<Value = Vec<(usize, BodyChange)>> {
    let change = prop_oneof![
        Just(BodyChange::Remove),
        ("[a-z_]{1,8}", any_value()).prop_map(|(name, value)| BodyChange::Add(name, value)),
        any_value().prop_map(BodyChange::Replace),
    ];
    prop::collection::vec((0..64usize, change), 1..4)
}

/// Collects pointers to all members and items of a body.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, member)| pointers(member, &format!("{at}/{name}"), found))
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| pointers(item, &format!("{at}/{n}"), found))
        }
        _ => {}
    }
}

fn changed(mut body: Value, changes: Vec<(usize, BodyChange)>) -> Value {
    for (at, change) in changes {
        let mut found = Vec::new();
        pointers(&body, "", &mut found);
        let pointer = found[at % found.len()].clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap_or_default();
        match change {
            BodyChange::Replace(value) => *body.pointer_mut(&pointer).expect("a member") = value,
            BodyChange::Remove => {
                body.pointer_mut(parent).and_then(Value::as_object_mut).and_then(|members| members.remove(name));
            }
            BodyChange::Add(name, value) => {
                body.pointer_mut(&pointer).and_then(Value::as_object_mut).map(|members| members.insert(name, value));
            }
        }
    }
    body
}

/// Checks that the published schema refuses no body that serde accepts. Serde also reads a struct from an array of its members
/// in order.
fn check<T: DeserializeOwned + ToSchema>(body: &Value) -> Result<(), TestCaseError> {
    let read = serde_json::from_value::<T>(body.clone());
    let found = mismatches::<T>(body);
    let is_array =
        |error: &FieldError| error.pointer.as_ref().and_then(|at| body.pointer(at)).is_some_and(Value::is_array);
    prop_assert!(read.is_err() || found.iter().all(is_array), "{} is read, but {:?}", body, found);
    for error in found {
        let pointer = error.pointer.expect("a pointer");
        let (parent, _) = pointer.rsplit_once('/').unwrap_or_default();
        prop_assert!(body.pointer(parent).is_some(), "{} is not in {}", pointer, body);
        prop_assert!(!error.detail.is_empty());
    }
    Ok(())
}

proptest! {
    #[test]
    fn pages_are_the_list_in_both_directions(rows in rows(40), limit in 1..9u16) {
        let (mut pages, mut iterator) = (Vec::new(), None);
        loop {
            let next = page(&rows, limit, iterator.as_ref());
            iterator = next.iterator.clone();
            prop_assert_eq!(next.done, iterator.is_none());
            pages.push(next);
            if iterator.is_none() {
                break;
            }
        }
        let forwards: Vec<u128> = pages.iter().flat_map(|page| page.data.clone()).collect();
        prop_assert_eq!(&forwards, &rows.iter().rev().copied().collect::<Vec<_>>());
        for pair in pages.windows(2) {
            let before = page(&rows, limit, pair[1].prev_iterator.as_ref());
            prop_assert_eq!(&before.data, &pair[0].data);
            prop_assert_eq!(before.prev_iterator.is_some(), pair[0].prev_iterator.is_some());
        }
        prop_assert!(pages[0].prev_iterator.is_none());
    }

    #[test]
    fn changing_list_repeats_and_hides_no_row(
        lasting in rows(30),
        changes in prop::collection::vec((1..10_000u128, any::<bool>()), 0..40),
        limit in 1..6u16,
    ) {
        let (mut list, mut seen, mut iterator) = (lasting.clone(), Vec::new(), None);
        let mut changes = changes.into_iter();
        loop {
            let next = page(&list, limit, iterator.as_ref());
            seen.extend(next.data.clone());
            iterator = next.iterator.clone();
            if iterator.is_none() {
                break;
            }
            for (row, inserted) in changes.by_ref().take(2) {
                match inserted {
                    true => list.insert(row),
                    false => !lasting.contains(&row) && list.remove(&row),
                };
            }
        }
        prop_assert!(seen.windows(2).all(|pair| pair[0] > pair[1]), "in order, each once: {:?}", seen);
        prop_assert!(lasting.iter().all(|row| seen.contains(row)), "{:?} of {:?}", seen, lasting);
    }

    #[test]
    fn tag_list_matches_by_comparison(own in opaque_tag(), others in tag_list(), weak in prop::option::of(any::<bool>()), at in 0..6usize) {
        let mut list = others;
        list.retain(|(_, tag)| *tag != own);
        if let Some(weak) = weak {
            list.insert(at.min(list.len()), (weak, own.clone()));
        }
        let written = list.iter().map(|(weak, tag)| format!("{}{tag}", if *weak { "W/" } else { "" })).collect::<Vec<_>>();
        let tag = HeaderValue::try_from(own).expect("visible ASCII");
        let one_line = HeaderMap::from_iter([(IF_MATCH, HeaderValue::try_from(written.join(" , ")).expect("ASCII"))]);
        let lines = written.iter().map(|tag| (IF_MATCH, HeaderValue::try_from(tag.as_str()).expect("ASCII")));
        let mut separate = HeaderMap::new();
        lines.for_each(|(name, value)| { separate.append(name, value); });
        for headers in [one_line, separate] {
            let named = |by| etag::is_named(&headers, &IF_MATCH, Some(&tag), by);
            prop_assert_eq!(named(Comparison::Weak), weak.is_some());
            prop_assert_eq!(named(Comparison::Strong), weak == Some(false));
            prop_assert!(!etag::is_named(&headers, &IF_MATCH, None, Comparison::Weak));
        }
    }

    #[test]
    fn published_schema_accepts_every_body_that_is_read(changes in changes()) {
        let message = json!({
            "to": {"topic": "news", "segment": "age > 3d"}, "tier": "promotional", "ttl": 60, "urgency": "high",
            "content": {"title": "a", "body": "b", "actions": [{"action": "open", "title": "Open"}]},
            "payload": {"base64": "AA"}, "envelope": true, "data": {"a": 1}, "sunset": {"unclicked": 3}
        });
        check::<MessageRequest>(&changed(message, changes.clone()))?;
        let api_key = json!({"name": "shop", "scopes": ["send", "read"], "expires_at": "2027-01-01T00:00:00Z"});
        check::<NewApiKey>(&changed(api_key, changes.clone()))?;
        check::<FlowRequest>(&changed(json!({"rate": 5, "period": "1m", "parallelism": 3}), changes.clone()))?;
        check::<TopicRequest>(&changed(json!({"join": "server"}), changes))?;
    }
}
