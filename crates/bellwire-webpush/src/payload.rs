//! The plaintext of a push: prepared once for a message, stamped once for each delivery.
//!
//! Structured content becomes declarative web push JSON (W3C Push API), in the spelling that both its readers accept. Firefox
//! reads `mutable` inside `notification`, Safari next to it. Safari has read `app_badge` in both places. Firefox drops an action
//! without `navigate`. `mutable` is always true, so that Bellwire's service worker, if present, can drop repeats and report
//! receipts. Browsers without the feature pass the same JSON to the worker.
//!
//! ```text
//! declarative  {"web_push":8030,"mutable":true,"notification":{…,"data":{"bellwire":STAMP,…}}}
//! raw          {"bellwire":STAMP,"payload":"…"}       octets: "payload":{"base64":"…"}
//! untouched    …                                      envelope: false
//! STAMP        {"id":"22 characters","receipt":"64 characters","retried":0}
//! removal      {"web_push":8030,"mutable":true,"notification":{…,"data":{"bellwire":STAMP},"tag":"bellwire:ID"}}
//! ```
//!
//! A removal closes the notification of another delivery. Its stamp also has `"withdraws":"ID"`, the id of that delivery. Without
//! Bellwire's worker it replaces the notification by its own text: it has the same tag. An update has `"updates":"ID"` instead.
//!
//! In a raw payload's envelope the stamp also has `"content_type"`, if a delivery policy sets it (SNS's
//! `requestPolicy.headerContentType`; a worker assumes `text/plain; charset=UTF-8` otherwise). No space is reserved for it: if
//! the payload leaves no room, it is left out.
//!
//! `navigate` is required, and Safari wants it absolute: paths are completed when a message is accepted
//! ([`Notification::complete`]). For an app without origins they stay, and lead to `/` by default. Bellwire's worker resolves
//! them against the site, and Safari wakes the worker as for any push.

use std::fmt;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use bellwire_core::message::{CONTENT_MAX, Content, Direction, ENVELOPE_RESERVE, Notification, PLAINTEXT_MAX, Payload};

/// Maximum bytes of a stamp; `retried` has at most ten digits.
const STAMP_MAX: usize = r#""bellwire":{"id":"","receipt":"","retried":}"#.len() + 22 + 64 + 10;
const EMPTY_DATA: &str = r#","data":{}"#;
const CONTENT_TYPE: &str = r#","content_type":"#;
const RAW_FRAME: &str = r#"{,"payload":""}"#;

// The reserve suffices for any content: the stamp and the JSON that has to stand around it.
const _: () = assert!(STAMP_MAX + EMPTY_DATA.len() <= ENVELOPE_RESERVE);
const _: () = assert!(STAMP_MAX + RAW_FRAME.len() <= ENVELOPE_RESERVE);

/// Content that does not fit into a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the content has {octets} octets when sent; the limit is {limit}")]
pub struct TooLarge {
    /// Bytes of the content as sent, without Bellwire's envelope.
    pub octets: usize,
    /// Maximum bytes that fit.
    pub limit: usize,
}

/// Values that differ between the pushes of one message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamp<'a> {
    /// Id from [`delivery_id`](super::stamp::delivery_id).
    pub id: [u8; 16],
    /// Token from [`receipt_token`](super::stamp::receipt_token).
    pub receipt: [u8; 64],
    /// Number of previous attempts.
    pub retried: u32,
    /// Notification that the push removes or updates. `None`: an ordinary push.
    pub replaces: Option<Replaced>,
    /// Media type of a raw payload, if a policy sets it.
    pub content_type: Option<&'a str>,
}

/// Notification of another delivery that a push removes or updates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// Id of that delivery.
    pub id: [u8; 16],
    /// Whether the push shows new content in its place.
    pub is_update: bool,
}

impl fmt::Debug for Stamp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stamp(…, retried {})", self.retried)
    }
}

/// A message's plaintext with a gap for the stamp. `Debug` shows only its size.
#[derive(Clone, PartialEq, Eq)]
pub struct PayloadTemplate {
    head: Vec<u8>,
    /// Text after the stamp. `None`: the payload is sent unchanged, and `head` has all of it.
    tail: Option<Vec<u8>>,
    /// Whether the stamp may contain a content type.
    is_raw: bool,
    /// Whether the notification has a tag of its own.
    has_tag: bool,
}

impl fmt::Debug for PayloadTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({} octets at most)", self.max_len())
    }
}

impl PayloadTemplate {
    /// Serialises everything that is the same in all deliveries. The limit is 3,833 bytes of content, or 3,993 without
    /// Bellwire's envelope.
    pub fn new(content: &Content) -> Result<Self, TooLarge> {
        let (template, octets, limit) = Self::measured(content);
        if octets > limit { Err(TooLarge { octets, limit }) } else { Ok(template) }
    }

    /// Serialises a notification.
    ///
    /// # Errors If it does not fit into a push.
    pub fn of_content(notification: &Notification) -> Result<Self, TooLarge> {
        match Self::declarative(notification) {
            (_, octets) if octets > CONTENT_MAX => Err(TooLarge { octets, limit: CONTENT_MAX }),
            (template, _) => Ok(template),
        }
    }

    /// Returns the bytes of a notification as sent, without the envelope: at most 3,833 fit.
    pub fn content_octets(notification: &Notification) -> usize {
        Self::declarative(notification).1
    }

    /// Returns a notification of any size, for [`shrink`](super::shrink) to measure.
    pub(super) fn of_notification(notification: &Notification) -> Self {
        Self::declarative(notification).0
    }

    /// Returns the template, the bytes of its content, and their maximum.
    fn measured(content: &Content) -> (Self, usize, usize) {
        match content {
            Content::Notification { content, .. } => {
                let (template, octets) = Self::declarative(content);
                (template, octets, CONTENT_MAX)
            }
            Content::Raw { payload, envelope: false } => {
                let head = payload.as_bytes().to_vec();
                let octets = head.len();
                (Self { head, tail: None, is_raw: true, has_tag: false }, octets, PLAINTEXT_MAX)
            }
            Content::Raw { payload, envelope: true } => {
                let (value, quotes) = match payload {
                    Payload::Text(text) => (json(text), 2),
                    Payload::Octets(_) => (json(payload), 0),
                };
                let octets = value.len() - quotes;
                let tail = [br#","payload":"#, &value[..], b"}"].concat();
                (Self { head: b"{".to_vec(), tail: Some(tail), is_raw: true, has_tag: false }, octets, CONTENT_MAX)
            }
        }
    }

    fn declarative(content: &Notification) -> (Self, usize) {
        let navigate = content.url.as_deref().unwrap_or("/");
        let mut notification = json(&DeclarativePayload {
            title: &content.title,
            navigate,
            mutable: true,
            body: content.body.as_deref(),
            icon: content.icon.as_deref(),
            image: content.image.as_deref(),
            badge: content.badge.as_deref(),
            tag: content.tag.as_deref(),
            dir: content.dir,
            lang: content.lang.as_deref(),
            require_interaction: content.require_interaction,
            // Browsers refuse a notification that has these members without effect.
            renotify: content.renotify && content.tag.as_ref().is_some_and(|tag| !tag.is_empty()),
            vibrate: if content.silent { &[] } else { &content.vibrate },
            timestamp: content.timestamp,
            silent: content.silent,
            app_badge: content.app_badge.map(|n| n.to_string()),
            actions: content
                .actions
                .iter()
                .map(|action| WireAction {
                    action: &action.action,
                    title: &action.title,
                    icon: action.icon.as_deref(),
                    navigate: action.url.as_deref().unwrap_or(navigate),
                })
                .collect(),
        });
        notification.pop(); // its closing brace: `data` follows
        let app_badge = content.app_badge.map(|n| format!(r#""app_badge":{n},"#)).unwrap_or_default();
        let mut head = format!(r#"{{"web_push":8030,"mutable":true,{app_badge}"notification":"#).into_bytes();
        head.extend_from_slice(&notification);
        head.extend_from_slice(br#","data":{"#);
        let data = content.data.as_ref().filter(|data| !data.is_empty()).map(json);
        let (tail, ours) = match data {
            Some(data) => ([b",", &data[1..], b"}}"].concat(), 1), // `data` ends in the brace of its own
            None => (b"}}}".to_vec(), EMPTY_DATA.len()),
        };
        let octets = head.len() + tail.len() - ours;
        (Self { head, tail: Some(tail), is_raw: false, has_tag: content.tag.is_some() }, octets)
    }

    /// Returns the bytes by which the longest rendering would exceed [`PLAINTEXT_MAX`] with this content type. 0: it fits, or
    /// the content type would be omitted.
    #[inline]
    pub fn excess_with(&self, content_type: &str) -> usize {
        if !self.is_raw || self.tail.is_none() {
            return 0;
        }
        (self.max_len() + CONTENT_TYPE.len() + json(content_type).len()).saturating_sub(PLAINTEXT_MAX)
    }

    /// Returns the bytes of the longest rendering without a content type: with `retried` 4,294,967,295. At most
    /// [`PLAINTEXT_MAX`].
    #[inline]
    pub fn max_len(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, |tail| STAMP_MAX + tail.len())
    }

    /// Appends the plaintext of one delivery.
    pub fn render(&self, stamp: &Stamp<'_>, out: &mut Vec<u8>) {
        out.reserve(self.max_len());
        out.extend_from_slice(&self.head);
        let Some(tail) = &self.tail else { return };
        out.extend_from_slice(br#""bellwire":{"id":""#);
        out.extend_from_slice(&id_text(stamp.id));
        out.extend_from_slice(br#"","receipt":""#);
        out.extend_from_slice(&stamp.receipt);
        write!(out, r#"","retried":{}"#, stamp.retried).expect("a Vec takes everything");
        if let Some(content_type) = stamp.content_type.filter(|named| self.is_raw && self.excess_with(named) == 0) {
            out.extend_from_slice(CONTENT_TYPE.as_bytes());
            out.extend_from_slice(&json(content_type));
        }
        let Some(replaced) = stamp.replaces else {
            out.push(b'}');
            return out.extend_from_slice(tail);
        };
        let id = id_text(replaced.id);
        out.extend_from_slice(if replaced.is_update { &br#","updates":""#[..] } else { br#","withdraws":""# });
        out.extend_from_slice(&id);
        out.extend_from_slice(br#""}"#);
        if self.has_tag {
            return out.extend_from_slice(tail);
        }
        out.extend_from_slice(tail.strip_suffix(b"}}").unwrap_or(tail));
        out.extend_from_slice(br#","tag":"bellwire:"#);
        out.extend_from_slice(&id);
        out.extend_from_slice(br#""}}"#);
    }
}

/// Returns a delivery id as base64url.
fn id_text(id: [u8; 16]) -> [u8; 22] {
    let mut text = [0; 22];
    URL_SAFE_NO_PAD.encode_slice(id, &mut text).expect("16 octets are 22 characters");
    text
}

fn json(value: &(impl Serialize + ?Sized)) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings, numbers and maps with string keys encode")
}

fn is_false(flag: &bool) -> bool {
    !flag
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeclarativePayload<'a> {
    title: &'a str,
    navigate: &'a str,
    mutable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icon: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    badge: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<Direction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lang: Option<&'a str>,
    #[serde(skip_serializing_if = "is_false")]
    require_interaction: bool,
    #[serde(skip_serializing_if = "is_false")]
    renotify: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    vibrate: &'a [u32],
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    silent: bool,
    #[serde(rename = "app_badge", skip_serializing_if = "Option::is_none")]
    app_badge: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    actions: Vec<WireAction<'a>>,
}

#[derive(Serialize)]
struct WireAction<'a> {
    action: &'a str,
    title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    icon: Option<&'a str>,
    navigate: &'a str,
}

#[cfg(test)]
#[path = "../../../tests/crates/webpush/unit/payload.rs"]
mod tests;
