//! Smaller versions of a notification that a gateway refused as too large. Raw payloads never shrink, because only the page can identify
//! optional parts.

use std::mem;

use super::payload::PayloadTemplate;
use bellwire_core::message::{Content, Notification};

/// A smaller push, and what it lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shrunk {
    /// Renders to at most the wanted octets, which leaves no room for padding beyond them.
    pub template: PayloadTemplate,
    /// Names of what was given up, in order: `content` (the compact variant went out instead), `image`, `actions`,
    /// `data`, `the end of body`. Empty: leaving out the padding is enough.
    pub dropped: Vec<&'static str>,
}

/// Leaves out a part of a notification; false if it was not there.
type ShrinkStep = (&'static str, fn(&mut Notification) -> bool);

const STEPS: [ShrinkStep; 3] = [
    ("image", |it| it.image.take().is_some()),
    ("actions", |it| !mem::take(&mut it.actions).is_empty()),
    ("data", |it| it.data_optional && it.data.take().is_some()),
];

/// Returns the fullest version whose plaintext has at most `limit` octets with any retry count. It loses its padding, then
/// becomes the compact variant, then loses image, actions and optional data, and last a part of its body. `None`: no version
/// fits.
pub fn shrink(content: &Content, limit: usize) -> Option<Shrunk> {
    let Content::Notification { content, compact } = content else { return None };
    let mut dropped = Vec::new();
    let mut candidate = (**content).clone();
    if let Some(template) = fit(&candidate, limit) {
        return Some(Shrunk { template, dropped });
    }
    if let Some(compact) = compact {
        candidate.clone_from(compact);
        dropped.push("content");
        if let Some(template) = fit(&candidate, limit) {
            return Some(Shrunk { template, dropped });
        }
    }
    for (name, leave_out) in STEPS {
        if leave_out(&mut candidate) {
            dropped.push(name);
            if let Some(template) = fit(&candidate, limit) {
                return Some(Shrunk { template, dropped });
            }
        }
    }
    dropped.push("the end of body");
    let (_, template) = cut_body(candidate, |notification| fit(notification, limit))?;
    Some(Shrunk { template, dropped })
}

/// A notification with as much of its body as fits a push, and the same written down. None: it has no body, or would not fit
/// with hardly any of it.
pub fn cut_to_fit(notification: Notification) -> Option<(Notification, PayloadTemplate)> {
    cut_body(notification, |notification| PayloadTemplate::of_content(notification).ok())
}

fn fit(notification: &Notification, limit: usize) -> Option<PayloadTemplate> {
    Some(PayloadTemplate::of_notification(notification)).filter(|template| template.max_len() <= limit)
}

/// Keeps as many characters of the body as fit, and an ellipsis.
fn cut_body(
    mut notification: Notification,
    fit: impl Fn(&Notification) -> Option<PayloadTemplate>,
) -> Option<(Notification, PayloadTemplate)> {
    let body = notification.body.take()?;
    let mut cut_at = |end: usize| {
        notification.body = Some(format!("{}…", &body[..end]));
        fit(&notification)
    };
    let ends: Vec<usize> = body.char_indices().map(|(at, _)| at).collect();
    let fitting = ends.partition_point(|&end| cut_at(end).is_some());
    let template = cut_at(*ends.get(fitting.checked_sub(1)?)?)?;
    Some((notification, template))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::payload::Stamp;
    use bellwire_core::message::Payload;

    fn content(compact: Option<Value>, full: Value) -> Content {
        let read = |value| serde_json::from_value::<Notification>(value).unwrap();
        Content::from_request(Some(read(full)), compact.map(read), None, None).unwrap()
    }

    fn full() -> Value {
        json!({
            "title": "T", "body": "é\"".repeat(300), "image": format!("https://example.com/{}", "i".repeat(400)),
            "actions": [{"action": "a", "title": "A", "url": format!("https://example.com/{}", "a".repeat(400))}],
            "data": {"d": "d".repeat(400)}, "data_optional": true
        })
    }

    fn rendered(shrunk: &Shrunk) -> Value {
        let mut out = Vec::new();
        shrunk.template.render(&Stamp { id: [0; 16], receipt: [b'r'; 64], retried: 0, content_type: None }, &mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn ladder_gives_up_as_little_as_possible() {
        let whole = content(None, full());
        let size = shrink(&whole, 9999).unwrap().template.max_len();
        let ladder: Vec<_> = (0..size).rev().map_while(|limit| shrink(&whole, limit).map(|s| (limit, s))).collect();
        for (limit, shrunk) in &ladder {
            assert!(shrunk.template.max_len() <= *limit);
        }
        let mut rungs: Vec<_> = ladder.into_iter().map(|(_, shrunk)| shrunk.dropped).collect();
        rungs.dedup();
        assert_eq!(
            rungs,
            [
                vec!["image"],
                vec!["image", "actions"],
                vec!["image", "actions", "data"],
                vec!["image", "actions", "data", "the end of body"]
            ]
        );
        assert_eq!(shrink(&whole, size).unwrap().dropped, [""; 0]);
    }

    #[test]
    fn cut_body_keeps_characters_and_ends_with_ellipsis() {
        let whole = content(None, full());
        let [one, other] = [500, 501].map(|limit| shrink(&whole, limit).unwrap());
        for shrunk in [one, other] {
            let shown = rendered(&shrunk);
            let body = shown["notification"]["body"].as_str().unwrap();
            assert!(body.ends_with('…') && "é\"".repeat(300).starts_with(body.trim_end_matches('…')));
            assert!((497..=501).contains(&shrunk.template.max_len()), "{}", shrunk.template.max_len());
        }
        assert_eq!(shrink(&whole, 100), None);
    }

    #[test]
    fn compact_variant_comes_first_needed_data_stays() {
        let mut needed = full();
        needed["data_optional"] = json!(false);
        let whole = content(Some(json!({"title": "Short", "image": "/i"})), needed.clone());
        let shrunk = shrink(&whole, 600).unwrap();
        assert_eq!(shrunk.dropped, ["content"]);
        assert_eq!(rendered(&shrunk)["notification"]["title"], "Short");
        let cut = shrink(&content(None, needed), 900).unwrap();
        assert_eq!(cut.dropped, ["image", "actions", "the end of body"]);
        assert!(rendered(&cut)["notification"]["data"]["d"].is_string());
    }

    #[test]
    fn raw_payloads_are_left_alone() {
        assert_eq!(shrink(&Content::Raw { payload: Payload::Text("x".into()), envelope: true }, 9999), None);
    }
}
