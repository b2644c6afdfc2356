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
//! ```
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

/// Most octets of a stamp: retried has at most ten digits.
const STAMP_MAX: usize = r#""bellwire":{"id":"","receipt":"","retried":}"#.len() + 22 + 64 + 10;
const EMPTY_DATA: &str = r#","data":{}"#;
const CONTENT_TYPE: &str = r#","content_type":"#;
const RAW_FRAME: &str = r#"{,"payload":""}"#;

// The reserve suffices for any content: the stamp and the JSON that has to stand around it.
const _: () = assert!(STAMP_MAX + EMPTY_DATA.len() <= ENVELOPE_RESERVE);
const _: () = assert!(STAMP_MAX + RAW_FRAME.len() <= ENVELOPE_RESERVE);

/// Content that does not fit into a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the content has {octets} octets as sent, the limit is {limit}")]
pub struct TooLarge {
    /// Octets of the content as sent, our envelope not counted.
    pub octets: usize,
    /// Maximum octets.
    pub limit: usize,
}

/// Values that differ between the pushes of one message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamp<'a> {
    /// Id from [`delivery_id`](super::stamp::delivery_id).
    pub id: [u8; 16],
    /// Token from [`receipt_token`](super::stamp::receipt_token).
    pub receipt: [u8; 64],
    /// Attempts that went before.
    pub retried: u32,
    /// Media type of a raw payload, if a policy sets it.
    pub content_type: Option<&'a str>,
}

impl fmt::Debug for Stamp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stamp(…, retried {})", self.retried)
    }
}

/// A message's plaintext with a gap for the stamp. `Debug` shows its size only.
#[derive(Clone, PartialEq, Eq)]
pub struct PayloadTemplate {
    head: Vec<u8>,
    /// Text after the stamp. `None`: the payload is sent unchanged, and `head` has all of it.
    tail: Option<Vec<u8>>,
    /// Whether the stamp may name a content type.
    is_raw: bool,
}

impl fmt::Debug for PayloadTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({} octets at most)", self.max_len())
    }
}

impl PayloadTemplate {
    /// Writes down everything that does not differ between deliveries. The limit is 3,833 octets of content, or 3,993
    /// without our envelope.
    pub fn new(content: &Content) -> Result<Self, TooLarge> {
        let (template, octets, limit) = Self::measured(content);
        if octets > limit { Err(TooLarge { octets, limit }) } else { Ok(template) }
    }

    /// Renders a notification.
    ///
    /// # Errors
    /// If it does not fit a push message.
    pub fn of_content(notification: &Notification) -> Result<Self, TooLarge> {
        match Self::declarative(notification) {
            (_, octets) if octets > CONTENT_MAX => Err(TooLarge { octets, limit: CONTENT_MAX }),
            (template, _) => Ok(template),
        }
    }

    /// Returns the octets of a notification as sent, without the envelope: at most 3,833 fit.
    pub fn content_octets(notification: &Notification) -> usize {
        Self::declarative(notification).1
    }

    /// Returns a notification of any size, for [`shrink`](super::shrink) to measure.
    pub(super) fn of_notification(notification: &Notification) -> Self {
        Self::declarative(notification).0
    }

    /// The template, the octets of its content, and how many there may be.
    fn measured(content: &Content) -> (Self, usize, usize) {
        match content {
            Content::Notification { content, .. } => {
                let (template, octets) = Self::declarative(content);
                (template, octets, CONTENT_MAX)
            }
            Content::Raw { payload, envelope: false } => {
                let head = payload.as_bytes().to_vec();
                let octets = head.len();
                (Self { head, tail: None, is_raw: true }, octets, PLAINTEXT_MAX)
            }
            Content::Raw { payload, envelope: true } => {
                let (value, quotes) = match payload {
                    Payload::Text(text) => (json(text), 2),
                    Payload::Octets(_) => (json(payload), 0),
                };
                let octets = value.len() - quotes;
                let tail = [br#","payload":"#, &value[..], b"}"].concat();
                (Self { head: b"{".to_vec(), tail: Some(tail), is_raw: true }, octets, CONTENT_MAX)
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
        (Self { head, tail: Some(tail), is_raw: false }, octets)
    }

    /// By how many octets the longest rendering would exceed [`PLAINTEXT_MAX`] if it named this content type. 0: it
    /// fits, or would not be named at all.
    #[inline]
    pub fn excess_with(&self, content_type: &str) -> usize {
        if !self.is_raw || self.tail.is_none() {
            return 0;
        }
        (self.max_len() + CONTENT_TYPE.len() + json(content_type).len()).saturating_sub(PLAINTEXT_MAX)
    }

    /// Octets of the longest rendering without a content type: retried 4,294,967,295 times. At most [`PLAINTEXT_MAX`].
    #[inline]
    pub fn max_len(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, |tail| STAMP_MAX + tail.len())
    }

    /// Appends the plaintext of one delivery: a few copies.
    pub fn render(&self, stamp: &Stamp<'_>, out: &mut Vec<u8>) {
        out.reserve(self.max_len());
        out.extend_from_slice(&self.head);
        let Some(tail) = &self.tail else { return };
        let mut id = [0; 22];
        URL_SAFE_NO_PAD.encode_slice(stamp.id, &mut id).expect("16 octets are 22 characters");
        out.extend_from_slice(br#""bellwire":{"id":""#);
        out.extend_from_slice(&id);
        out.extend_from_slice(br#"","receipt":""#);
        out.extend_from_slice(&stamp.receipt);
        write!(out, r#"","retried":{}"#, stamp.retried).expect("a Vec takes everything");
        if let Some(content_type) = stamp.content_type.filter(|named| self.is_raw && self.excess_with(named) == 0) {
            out.extend_from_slice(CONTENT_TYPE.as_bytes());
            out.extend_from_slice(&json(content_type));
        }
        out.push(b'}');
        out.extend_from_slice(tail);
    }
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
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use bellwire_core::message::ENVELOPE_MEMBER;

    const STAMP: Stamp<'_> = Stamp { id: [0xff; 16], receipt: [b'r'; 64], retried: 7, content_type: None };

    fn notification(value: Value) -> Content {
        let content = Some(serde_json::from_value(value).unwrap());
        Content::from_request(content, None, None, None).unwrap()
    }

    fn text(text: impl Into<String>, envelope: bool) -> Content {
        Content::Raw { payload: Payload::Text(text.into()), envelope }
    }

    fn rendered(content: &Content, retried: u32) -> Vec<u8> {
        let mut out = b"before".to_vec();
        PayloadTemplate::new(content).unwrap().render(&Stamp { retried, ..STAMP }, &mut out);
        out.split_off(6)
    }

    fn stamp() -> Value {
        json!({"id": "_____________________w", "receipt": "r".repeat(64), "retried": 7})
    }

    #[test]
    fn notification_is_readable_by_safari_and_firefox() {
        let full = notification(json!({
            "title": "T\"", "body": "B", "url": "https://example.com/x", "icon": "/i", "image": "/m", "badge": "/b",
            "tag": "t", "dir": "ltr", "lang": "en", "require_interaction": true, "silent": true, "app_badge": 3,
            "renotify": true, "timestamp": 5, "vibrate": [9],
            "actions": [{"action": "a", "title": "A", "icon": "/a"}, {"action": "b", "title": "B", "url": "/b"}],
            "data": {"mine": {"deep": [1]}}
        }));
        let read: Value = serde_json::from_slice(&rendered(&full, 7)).unwrap();
        assert_eq!(
            read,
            json!({
                "web_push": 8030, "mutable": true, "app_badge": 3, "notification": {
                    "title": "T\"", "navigate": "https://example.com/x", "mutable": true, "body": "B", "icon": "/i",
                    "image": "/m", "badge": "/b", "tag": "t", "dir": "ltr", "lang": "en", "requireInteraction": true,
                    "silent": true, "app_badge": "3", "renotify": true, "timestamp": 5, "actions": [
                        {"action": "a", "title": "A", "icon": "/a", "navigate": "https://example.com/x"},
                        {"action": "b", "title": "B", "navigate": "/b"}
                    ],
                    "data": {ENVELOPE_MEMBER: stamp(), "mine": {"deep": [1]}}
                }
            })
        );
        for bare in [json!({"title": "T"}), json!({"title": "T", "data": {}})] {
            let read: Value = serde_json::from_slice(&rendered(&notification(bare), 7)).unwrap();
            assert_eq!(
                read,
                json!({
                    "web_push": 8030, "mutable": true,
                    "notification": {"title": "T", "navigate": "/", "mutable": true, "data": {ENVELOPE_MEMBER: stamp()}}
                })
            );
        }
    }

    #[test]
    fn raw_payload_is_enveloped_unless_disabled() {
        let read = |content| serde_json::from_slice::<Value>(&rendered(&content, 7)).unwrap();
        assert_eq!(read(text("a\n\"b", true)), json!({ENVELOPE_MEMBER: stamp(), "payload": "a\n\"b"}));
        let octets = |envelope| Content::Raw { payload: Payload::Octets(vec![0, 255]), envelope };
        assert_eq!(read(octets(true)), json!({ENVELOPE_MEMBER: stamp(), "payload": {"base64": "AP8"}}));
        assert_eq!(rendered(&octets(false), 7), [0, 255]);
        assert_eq!(rendered(&text("", false), 7), b"");
    }

    #[test]
    fn raw_payload_has_the_label_of_policy() {
        let rendered = |content: &Content, content_type| {
            let mut out = Vec::new();
            let stamp = Stamp { content_type: Some(content_type), ..STAMP };
            PayloadTemplate::new(content).unwrap().render(&stamp, &mut out);
            out
        };
        let label = r#"application/json; note="a b""#;
        let read: Value = serde_json::from_slice(&rendered(&text("{}", true), label)).unwrap();
        let mut labelled = stamp();
        labelled["content_type"] = json!(label);
        assert_eq!(read, json!({ENVELOPE_MEMBER: labelled, "payload": "{}"}));
        assert_eq!(rendered(&text("{}", false), label), b"{}");
        let declarative = notification(json!({"title": "T"}));
        assert!(!String::from_utf8(rendered(&declarative, label)).unwrap().contains("content_type"));
        assert_eq!(PayloadTemplate::new(&declarative).unwrap().excess_with(label), 0);
        assert_eq!(PayloadTemplate::new(&text("x".repeat(PLAINTEXT_MAX), false)).unwrap().excess_with(label), 0);
    }

    #[test]
    fn overlong_label_is_left_out() {
        const LABEL: &str = "text/plain; charset=UTF-8";
        type Make = fn(usize) -> Content;
        let makes: [Make; 2] =
            [|n| text("x".repeat(n), true), |n| Content::Raw { payload: Payload::Octets(vec![0; n]), envelope: true }];
        for make in makes {
            // Base64 grows in steps, so the sizes are looked for.
            let fits = |n: &usize| PayloadTemplate::new(&make(*n)).is_ok_and(|made| made.excess_with(LABEL) == 0);
            let fitting = (0..CONTENT_MAX).rev().find(fits).unwrap();
            let [widest, wider] = [fitting, fitting + 1].map(|n| {
                let mut out = Vec::new();
                let longest = Stamp { retried: u32::MAX, content_type: Some(LABEL), ..STAMP };
                PayloadTemplate::new(&make(n)).unwrap().render(&longest, &mut out);
                out
            });
            let contains = |plaintext: &[u8]| String::from_utf8_lossy(plaintext).contains(LABEL);
            assert!(contains(&widest) && widest.len() <= PLAINTEXT_MAX && widest.len() > PLAINTEXT_MAX - 4);
            assert!(!contains(&wider) && wider.len() <= PLAINTEXT_MAX);
            assert!((1..=4).contains(&PayloadTemplate::new(&make(fitting + 1)).unwrap().excess_with(LABEL)));
        }
    }

    #[test]
    fn longest_stamp_fits_at_the_exact_limit() {
        type Make = fn(usize) -> Content;
        let with_data: Make = |n| notification(json!({"title": "T", "data": {"a": "x".repeat(n)}}));
        let without_data: Make = |n| {
            let (tag, url) = (&"t".repeat(n.min(200)), "u".repeat(n.saturating_sub(200).min(1980)));
            let icon = "i".repeat(n.saturating_sub(2180));
            notification(json!({"title": "T", "tag": tag, "url": format!("/{url}"), "icon": format!("/{icon}")}))
        };
        let raw_text: Make = |n| text("x".repeat(n), true);
        let raw_octets: Make = |n| Content::Raw { payload: Payload::Octets(vec![0; n]), envelope: true };
        for make in [with_data, without_data, raw_text, raw_octets] {
            let fitting = (0..PLAINTEXT_MAX).rfind(|&n| PayloadTemplate::new(&make(n)).is_ok()).unwrap();
            let longest = rendered(&make(fitting), u32::MAX);
            assert!(longest.len() <= PLAINTEXT_MAX, "{}", longest.len());
            assert_eq!(longest.len(), PayloadTemplate::new(&make(fitting)).unwrap().max_len());
            let refused = PayloadTemplate::new(&make(fitting + 1)).unwrap_err();
            assert!(refused.limit == CONTENT_MAX && (1..=2).contains(&(refused.octets - CONTENT_MAX)));
        }
        assert_eq!(
            rendered(&text("x".repeat(CONTENT_MAX), true), 0).len(),
            CONTENT_MAX + RAW_FRAME.len() + STAMP_MAX - 9
        );
        assert_eq!(rendered(&text("x".repeat(PLAINTEXT_MAX), false), 0).len(), PLAINTEXT_MAX);
        let refused = TooLarge { octets: PLAINTEXT_MAX + 1, limit: PLAINTEXT_MAX };
        assert_eq!(PayloadTemplate::new(&text("x".repeat(PLAINTEXT_MAX + 1), false)), Err(refused));
    }

    #[test]
    fn the_admin_page_measures_as_we_do() {
        #[derive(serde::Deserialize)]
        struct Case {
            name: String,
            site: Option<String>,
            content: Value,
            octets: usize,
        }
        // The page's own test reads the same file.
        let cases: Vec<Case> = serde_json::from_str(include_str!("../../../static/admin/test/sizes.json")).unwrap();
        for Case { name, site, content, octets } in cases {
            let mut notification: Notification = serde_json::from_value(content).unwrap();
            notification.complete(site.as_deref());
            assert_eq!(PayloadTemplate::declarative(&notification).1, octets, "{name}");
        }
    }

    #[test]
    fn characters_count_as_they_are_sent() {
        let refused = PayloadTemplate::new(&text("\n".repeat(2000), true)).unwrap_err();
        assert_eq!(refused, TooLarge { octets: 4000, limit: CONTENT_MAX });
    }

    #[test]
    fn debug_shows_no_content() {
        let template = PayloadTemplate::new(&text("secret", true)).unwrap();
        assert!(!format!("{template:?} {STAMP:?}").contains("secret") && !format!("{STAMP:?}").contains("rr"));
    }
}
