//! Content of a message: a structured notification, or a payload for the site's own push handler. Values may come directly from
//! a request, so [`Content::validate`] must run before anything is stored.

mod links;
mod payload;
mod texts;

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use self::payload::Payload;
pub use self::texts::TextField;
use crate::base64url;
use crate::id::AppId;
use crate::named;
use crate::origin::is_this_machine;

named! {
    /// State of a message requested by its sender, as stored in `messages.state`. Done is not a state: a message is done when
    /// it has no cursors, batches and queue rows.
    pub enum MessageState {
        /// Never stored: a scheduled message is `sending`, and none of its deliveries is due.
        Scheduled = "scheduled",
        /// Due deliveries are sent. Set by acceptance (`store::queue::sending`) and by resuming (`store::queue::steering`).
        Sending = "sending",
        /// Nothing is sent until it is resumed: cursors and queue rows are due at infinity. Set by its sender
        /// (`store::queue::steering`). Its time to live keeps running; after it, maintenance ends parked deliveries as expired
        /// (`store::operations::sweeps`).
        Paused = "paused",
        /// No delivery is sent any further. Set by the sender, or by the deletion of its app. Cursors are deleted at once, and
        /// waiting deliveries end as cancelled (`store::queue::steering`).
        Cancelled = "cancelled",
    }
}

/// Maximum plaintext bytes of one push: a body of 4,096 minus header (86), delimiter (1) and tag (16), RFC 8291 section 4.
pub const PLAINTEXT_MAX: usize = 3993;
/// Bytes of every plaintext reserved for Bellwire's envelope: delivery id, receipt token, retries, and the JSON around them.
pub const ENVELOPE_RESERVE: usize = 160;
/// Maximum bytes of content in a push with the envelope.
pub const CONTENT_MAX: usize = PLAINTEXT_MAX - ENVELOPE_RESERVE;

pub(crate) const TITLE_MAX: usize = 200;
/// Maximum characters of a body.
pub const BODY_MAX: usize = 2000;
/// Maximum bytes of a URL.
pub(crate) const URL_MAX: usize = 2048;
pub(crate) const TAG_MAX: usize = 200;
/// Latest time of a JavaScript `Date`, in milliseconds since 1970.
const TIMESTAMP_MAX: u64 = 8_640_000_000_000_000;
/// Maximum numbers in a vibration pattern. Browsers truncate longer ones.
const VIBRATE_MAX: usize = 100;
const VIBRATE_PART_MAX: u32 = 10_000;
pub(crate) const ACTIONS_MAX: usize = 4;
/// Number of buttons that Chrome and Edge show (`Notification.maxActions`). Others show fewer, or none.
pub const ACTIONS_SHOWN: usize = 2;
/// Maximum characters of a button's name and title.
pub(crate) const ACTION_TEXT_MAX: usize = 100;
/// Maximum nesting of `data`, counted in objects and arrays.
pub const DATA_DEPTH_MAX: usize = 16;
/// Maximum characters of a language tag (RFC 5646 section 4.4.1 requires room for 35).
pub(crate) const LANG_MAX: usize = 35;
/// Maximum characters of a collapse key.
pub const COLLAPSE_KEY_MAX: usize = 200;

/// Member of a declarative push that contains the envelope.
pub const ENVELOPE_MEMBER: &str = "bellwire";

/// A fault of a request's content, for the API's caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// RFC 6901 pointer into the message, such as `/content/actions/0/title`.
    pub pointer: String,
    /// The fault and the violated rule, without the value.
    pub detail: String,
}

/// Content of a message, in the form that `messages.content` stores encrypted. `Debug` shows only its kind.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Content {
    /// Notification that browsers or the service worker display.
    Notification {
        /// Normal notification.
        content: Box<Notification>,
        /// Notification for push services that refuse `content` as too large.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compact: Option<Box<Notification>>,
    },
    /// Bytes for the site's own push handler.
    Raw {
        /// Payload for the site's own push handler.
        payload: Payload,
        /// Whether Bellwire's envelope is added. Without it the payload arrives unchanged, and no receipts are requested.
        envelope: bool,
    },
}

/// Notification, as browsers show it.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Notification {
    /// First line, 1 to 200 characters.
    pub title: String,
    /// Text below the title, at most 2,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// URL opened by a click: `https:`, or a path on the app's first origin. By default that origin's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// URL of a small picture next to the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// URL of a large picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// URL of a monochrome picture for a status bar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub badge: Option<String>,
    /// Tag, at most 200 characters. A notification replaces an earlier one with the same tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Buttons, at most four.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<NotificationAction>,
    /// Data that the page gets with a click. The member `bellwire` is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub data: Option<serde_json::Map<String, serde_json::Value>>,
    /// Whether `data` may be omitted if the push service refuses the notification as too large.
    #[serde(default, skip_serializing_if = "is_false")]
    pub data_optional: bool,
    /// Whether the notification stays until the person reacts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub require_interaction: bool,
    /// Whether the person is alerted again when the notification replaces another with the same `tag`. Without `tag` it has no
    /// effect.
    #[serde(default, skip_serializing_if = "is_false")]
    pub renotify: bool,
    /// Time of the notification's subject, in milliseconds since 1970. By default the time of display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<u64>,
    /// Vibration pattern: milliseconds of vibration and pause alternately, up to 100 numbers, each at most 10,000. Without
    /// effect if `silent`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vibrate: Vec<u32>,
    /// Whether sound and vibration are off.
    #[serde(default, skip_serializing_if = "is_false")]
    pub silent: bool,
    /// Direction of the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<Direction>,
    /// Language of the text, a BCP 47 tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lang: Option<String>,
    /// Number on the installed app's icon; 0 removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_badge: Option<u32>,
}

/// A button of a notification.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NotificationAction {
    /// Name that is reported with a click, unique within the notification.
    pub action: String,
    /// Text of the button.
    pub title: String,
    /// URL of a small picture next to the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// URL opened by a click. By default that of the notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Direction of a notification's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Chosen by the browser.
    Auto,
    /// Text from left to right.
    Ltr,
    /// Text from right to left.
    Rtl,
}

impl Content {
    /// Builds content from the members of a request: exactly one of `content` and `payload`, `compact` only with `content`,
    /// `envelope: false` only with `payload`. The error lists all faults, including those of [`validate`](Self::validate).
    pub fn from_request(
        content: Option<Notification>, compact: Option<Notification>, payload: Option<Payload>, envelope: Option<bool>,
    ) -> Result<Self, Vec<Problem>> {
        let refuse = |pointer: &str, detail: &str| Err(vec![problem(pointer, detail)]);
        let made = match (content, payload) {
            (Some(_), Some(_)) => return refuse("/payload", "cannot be combined with `content`"),
            (None, None) => return refuse("/content", "is missing: give `content`, `payload` or `template`"),
            (Some(_), None) if envelope == Some(false) => {
                return refuse("/envelope", "may be false only with `payload`");
            }
            (None, Some(_)) if compact.is_some() => return refuse("/compact", "is allowed only with `content`"),
            (None, Some(payload)) if envelope == Some(false) && payload.as_bytes().is_empty() => {
                let detail = "is empty, and `envelope` is false: browsers hand your service worker a push without data; \
                              give at least one octet, or leave `envelope` out";
                return refuse("/payload", detail);
            }
            (Some(content), None) => Self::Notification { content: Box::new(content), compact: compact.map(Box::new) },
            (None, Some(payload)) => Self::Raw { payload, envelope: envelope.unwrap_or(true) },
        };
        let problems = made.validate();
        if problems.is_empty() { Ok(made) } else { Err(problems) }
    }

    /// Returns all violated limits, with pointers into the message. Empty: valid. The total size is not checked here:
    /// [`Template::new`](bellwire_webpush::payload::Template::new) measures what is sent.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        match self {
            Self::Notification { content, compact } => {
                content.check("/content", &mut problems);
                if let Some(compact) = compact {
                    compact.check("/compact", &mut problems);
                }
            }
            Self::Raw { .. } => {}
        }
        problems
    }
}

impl Notification {
    fn check(&self, at: &str, problems: &mut Vec<Problem>) {
        use TextField::{
            ActionIcon, ActionName, ActionTitle, ActionUrl, Badge, Body, Icon, Image, Lang, Tag, Title, Url,
        };
        let check = |place: TextField, problems: &mut Vec<Problem>| {
            let detail = place.get(self).and_then(|text| place.fault(text));
            problems.extend(detail.map(|detail| problem(&format!("{at}/{}", place.name()), detail)));
        };
        for place in [Title, Body, Tag, Url, Icon, Image, Badge, Lang] {
            check(place, problems);
        }
        if !self.check_form(at, problems) {
            return;
        }
        for i in 0..self.actions.len() {
            check(ActionName(i), problems);
            check(ActionTitle(i), problems);
            problems.extend(self.repeated_action(i, at));
            check(ActionIcon(i), problems);
            check(ActionUrl(i), problems);
        }
    }

    /// Checks the structure, without the texts. Returns `false` if there are so many buttons that they are not checked.
    pub fn check_form(&self, at: &str, problems: &mut Vec<Problem>) -> bool {
        let mut refuse = |member: &str, detail: String| problems.push(problem(&format!("{at}/{member}"), detail));
        if let Some(data) = &self.data {
            if data.contains_key(ENVELOPE_MEMBER) {
                refuse("data/bellwire", "is used by Bellwire itself".into());
            }
            if data.values().any(|value| deeper(value, DATA_DEPTH_MAX - 1)) {
                refuse("data", format!("may be nested at most {DATA_DEPTH_MAX} deep"));
            }
        }
        if self.timestamp.is_some_and(|at| at > TIMESTAMP_MAX) {
            refuse("timestamp", format!("may be at most {TIMESTAMP_MAX} milliseconds after 1970"));
        }
        if self.vibrate.len() > VIBRATE_MAX || self.vibrate.iter().any(|part| *part > VIBRATE_PART_MAX) {
            refuse("vibrate", format!("may hold at most {VIBRATE_MAX} numbers, each at most {VIBRATE_PART_MAX}"));
        }
        if self.actions.len() > ACTIONS_MAX {
            refuse("actions", format!("may hold at most {ACTIONS_MAX} actions"));
        }
        self.actions.len() <= ACTIONS_MAX
    }

    /// Returns a fault if an earlier button has the same name.
    pub fn repeated_action(&self, i: usize, at: &str) -> Option<Problem> {
        let is_repeated = self.actions[..i].iter().any(|earlier| earlier.action == self.actions[i].action);
        is_repeated.then(|| problem(&format!("{at}/actions/{i}/action"), "is the name of an earlier action too"))
    }
}

/// Returns the `Topic` header of a collapse key (RFC 8030 section 5.4): 192 bits of SHA-256 over (app, key), exactly 32
/// characters of base64url. It is hashed because Apple decodes the header and refuses some legal lengths, and to hide the
/// sender's names from push services.
pub fn topic_header(app: AppId, collapse_key: &str) -> String {
    let mut context = Sha256::new();
    context.update(app.0.as_bytes());
    context.update(collapse_key.as_bytes());
    base64url::encode(&context.finalize()[..24])
}

fn problem(pointer: &str, detail: impl Into<String>) -> Problem {
    Problem { pointer: pointer.into(), detail: detail.into() }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn longer(text: &str, max_chars: usize) -> bool {
    text.len() > max_chars && text.chars().nth(max_chars).is_some()
}

/// Whether a JSON value has more than this many levels of nesting.
pub fn deeper(value: &serde_json::Value, levels: usize) -> bool {
    use serde_json::Value;
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|item| deeper(item, levels - 1)),
        Value::Object(members) => levels == 0 || members.values().any(|member| deeper(member, levels - 1)),
        _ => false,
    }
}

/// Whether a text has the form of a BCP 47 language tag. Whether the language exists is not checked.
pub fn is_language_tag(lang: &str) -> bool {
    (2..=LANG_MAX).contains(&lang.len())
        && lang.split('-').all(|part| (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// Returns the fault of a link or picture URL. It must work on an https page: https itself (http only on the developer's own
/// machine), or a path on the site.
pub fn unfit_url(url: &str) -> Option<String> {
    if url.len() > URL_MAX {
        return Some(format!("may have at most {URL_MAX} octets"));
    }
    let fits = if url.starts_with('/') {
        // `//host` and `/\host` are not paths to a browser, and it drops tabs and line ends before it looks.
        !url.starts_with("//") && !url.contains('\\') && !url.chars().any(char::is_control)
    } else {
        url::Url::parse(url).is_ok_and(|parsed| match parsed.scheme() {
            "https" => true,
            "http" => is_this_machine(&parsed),
            _ => false,
        })
    };
    (!fits).then(|| "must be an https: URL (http: only on localhost) or a path that begins with one `/`".into())
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Notification { .. } => "Content::Notification(…)",
            Self::Raw { .. } => "Content::Raw(…)",
        })
    }
}

impl fmt::Debug for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notification(…)")
    }
}

impl fmt::Debug for NotificationAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Action(…)")
    }
}
