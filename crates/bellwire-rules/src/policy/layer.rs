//! Policy of one level: parsed and checked JSON. Several layers are combined to one [`Policy`](super::Policy).

use std::time::Duration;

use serde_json::Value;

use super::fields::{Fields, PolicyError};
use super::tiers::FAILURES_IN_A_ROW_MAX;
use super::{Guide, Phased, Retry, Scripted, TierSettings, guide, phased, qstash};
use bellwire_core::named;

named! {
    /// Level of a policy.
    pub enum PolicyLevel {
        /// Policy of one message.
        Message = "message",
        /// Policy of one subscription.
        Subscription = "subscription",
        /// Policy of a topic, for messages to it.
        Topic = "topic",
        /// Policy of a tier of an app.
        Tier = "tier",
    }
}

/// Context of a policy's check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Level of the policy.
    pub place: PolicyLevel,
    /// The app's maximum `retries` in QStash's form, which is also its default. Values above 1,000 count as 1,000.
    pub max_retries: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self { place: PolicyLevel::Message, max_retries: 5 }
    }
}

/// Members that one level sets. The next level decides about absent members.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer {
    /// Timetable of the retries.
    pub retry: Option<Retry>,
    /// Rate limit of one subscription.
    pub throttle: Option<Throttle>,
    /// Content type of raw payloads.
    pub request: Option<Request>,
    /// Whether a topic ignores the policies of its subscriptions.
    pub disable_subscription_overrides: bool,
    pub(super) settings: SettingsLayer,
}

/// Rate limit of deliveries to one subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    /// Maximum deliveries per second to one subscription, at least 1. Others wait.
    pub max_receives_per_second: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Media type of raw payloads for the service worker, and of webhook requests.
    pub header_content_type: Box<str>,
}

/// Server settings that a tier overrides.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SettingsLayer {
    circuit_failure_threshold: Option<f64>,
    circuit_attempts_min: Option<u32>,
    circuit_failures_in_a_row: Option<u32>,
    circuit_open: Option<Duration>,
    circuit_open_max: Option<Duration>,
    retry_token_ttl: Option<Duration>,
}

impl SettingsLayer {
    pub(super) fn over(self, base: TierSettings) -> TierSettings {
        TierSettings {
            circuit_failure_threshold: self.circuit_failure_threshold.unwrap_or(base.circuit_failure_threshold),
            circuit_attempts_min: self.circuit_attempts_min.unwrap_or(base.circuit_attempts_min),
            circuit_failures_in_a_row: self.circuit_failures_in_a_row.unwrap_or(base.circuit_failures_in_a_row),
            circuit_open: self.circuit_open.unwrap_or(base.circuit_open),
            circuit_open_max: self.circuit_open_max.unwrap_or(base.circuit_open_max),
            retry_token_ttl: self.retry_token_ttl.unwrap_or(base.retry_token_ttl),
            published_retries: base.published_retries,
        }
    }

    /// Fills absent settings from `base`.
    fn filled_from(self, base: TierSettings) -> Self {
        let all = self.over(base);
        Self {
            circuit_failure_threshold: Some(all.circuit_failure_threshold),
            circuit_attempts_min: Some(all.circuit_attempts_min),
            circuit_failures_in_a_row: Some(all.circuit_failures_in_a_row),
            circuit_open: Some(all.circuit_open),
            circuit_open_max: Some(all.circuit_open_max),
            retry_token_ttl: Some(all.retry_token_ttl),
        }
    }
}

/// An accepted policy, with warnings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parsed {
    /// Layer of the policy.
    pub layer: Layer,
    /// Warnings for the caller: deprecated members, and values that only an older version allowed.
    pub warnings: Vec<PolicyError>,
}

/// Warns of a policy with a throttle or a content type and nothing else.
pub const SILENT_OF_RETRIES: &str = "contains no retry settings: those of the next level apply, by default the tier's";

/// Policies of all levels for one delivery.
#[derive(Debug, Clone, Copy, Default)]
pub struct Places<'a> {
    /// Layer of the message.
    pub message: Option<&'a Layer>,
    /// Layer of the subscription.
    pub subscription: Option<&'a Layer>,
    /// Layer of the topic, if the message was sent to it.
    pub topic: Option<&'a Layer>,
    /// Layer of the app for this tier.
    pub tier: Option<&'a Layer>,
    /// Server settings, which a tier overrides.
    pub server: TierSettings,
}

impl<'a> Places<'a> {
    /// Returns the layers in order of precedence: the first one that sets a member wins.
    pub(super) fn in_order(&self) -> impl DoubleEndedIterator<Item = (PolicyLevel, &'a Layer)> + use<'a> {
        let overrides = !self.topic.is_some_and(|topic| topic.disable_subscription_overrides);
        let places = [
            (PolicyLevel::Message, self.message),
            (PolicyLevel::Subscription, self.subscription.filter(|_| overrides)),
            (PolicyLevel::Topic, self.topic),
            (PolicyLevel::Tier, self.tier),
        ];
        places.into_iter().filter_map(|(place, layer)| Some((place, layer?)))
    }

    /// Returns the level that set each member.
    pub fn set_by(&self) -> SetBy {
        let first = |sets: fn(&Layer) -> bool| self.in_order().find(|(_, layer)| sets(layer)).map(|(place, _)| place);
        SetBy {
            retry: first(|layer| layer.retry.is_some()),
            throttle: first(|layer| layer.throttle.is_some()),
            request: first(|layer| layer.request.is_some()),
        }
    }
}

/// Level that set each member of a combined policy. `None`: the built-in default of the tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetBy {
    /// Level that set the retries.
    pub retry: Option<PolicyLevel>,
    /// Level that set the throttle.
    pub throttle: Option<PolicyLevel>,
    /// Level that set the media type.
    pub request: Option<PolicyLevel>,
}

const SETTINGS: [&str; 6] = [
    "circuitFailureThreshold",
    "circuitMinAttempts",
    "circuitConsecutiveFailures",
    "circuitOpenMs",
    "circuitOpenMaxMs",
    "retryTokenTtlSec",
];
const GUIDE_SETTINGS: [&str; 3] = ["circuitFailureThreshold", "circuitOpenMs", "retryTokenTtlSec"];
const DISABLE: &str = "disableSubscriptionOverrides";

/// Forms of policies with their members. A policy has one form.
const FORMS: [(&str, &[&str]); 3] =
    [("SNS", &phased::MEMBERS), ("QStash", &qstash::MEMBERS), ("guide", &guide::MEMBERS)];

impl Layer {
    /// Parses and checks the JSON of one level: one of the forms SNS, QStash and guide, or empty. Returns all faults at once.
    pub fn parse(value: &Value, terms: &Terms) -> Result<Parsed, Vec<PolicyError>> {
        Self::read(value, terms, false)
    }

    /// Parses stored JSON, which was checked before. If the app's maximum `retries` has been lowered since, the stored value is
    /// reduced. Request headers may have added QStash's members to another form's `throttlePolicy` and `requestPolicy`.
    pub fn restore(value: &Value, terms: &Terms) -> Result<Parsed, Vec<PolicyError>> {
        Self::read(value, terms, true)
    }

    fn read(value: &Value, terms: &Terms, stored: bool) -> Result<Parsed, Vec<PolicyError>> {
        let mut allowed = FORMS.map(|(_, members)| members).concat();
        match terms.place {
            PolicyLevel::Tier => allowed.extend(SETTINGS),
            PolicyLevel::Topic => allowed.push(DISABLE),
            PolicyLevel::Message | PolicyLevel::Subscription => {}
        }
        let (mut errors, mut warnings, mut layer) = (Vec::new(), Vec::new(), Layer::default());
        let elsewhere = |name: &str| match name {
            _ if SETTINGS.contains(&name) => {
                Some("belongs to the policy of a tier: the lane's breaker serves all messages")
            }
            DISABLE => Some("belongs to the policy of a topic"),
            _ => None,
        };
        if let Some(mut fields) = Fields::at_top(value, &allowed, elsewhere, &mut errors) {
            // The preset `guide` has the guide's form, the others have that of SNS.
            let publishes = fields.raw("preset").is_some_and(|named| named == Guide::PRESET);
            let is_of = |form: &str, name: &str| match name {
                "preset" => (form == "guide") == publishes,
                _ => true,
            };
            let forms = FORMS.iter().filter(|(form, members)| {
                let is_guides_preset = publishes && *form == "guide";
                is_guides_preset || members.iter().any(|name| fields.has(name) && is_of(form, name))
            });
            let forms: Vec<_> = forms.map(|(form, _)| *form).collect();
            if forms.contains(&"SNS") {
                layer.retry =
                    (!publishes).then(|| Phased::read(&mut fields, &mut warnings)).flatten().map(Retry::Phased);
                layer.throttle = throttle(&mut fields);
                layer.request = request(&mut fields, terms.place);
            }
            match forms[..] {
                [] | ["SNS"] => {}
                ["guide"] => layer.retry = Guide::read(&mut fields).map(Retry::Guide),
                ["QStash"] => layer.retry = Scripted::read(&mut fields, terms.max_retries, stored).map(Retry::Scripted),
                ["SNS", "QStash"] if stored && layer.retry.is_none() => {
                    layer.retry = Scripted::read(&mut fields, terms.max_retries, stored).map(Retry::Scripted);
                }
                ref several => {
                    fields.refuse("", format!("mixes the forms {}; keep to one of them", several.join(" and ")));
                }
            }
            layer.settings = settings(&mut fields);
            // A breaker alone has the guide's form if it uses the guide's names.
            let is_guides =
                forms == ["guide"] || forms.is_empty() && GUIDE_SETTINGS.iter().any(|name| fields.has(name));
            if is_guides && terms.place == PolicyLevel::Tier {
                layer.settings = layer.settings.filled_from(TierSettings::GUIDE);
            }
            let speaks = layer.throttle.is_some() || layer.request.is_some();
            if speaks && layer.retry.is_none() {
                warnings.push(PolicyError { pointer: String::new(), detail: SILENT_OF_RETRIES.into() });
            }
            layer.disable_subscription_overrides = disables(&mut fields);
        }
        if errors.is_empty() { Ok(Parsed { layer, warnings }) } else { Err(errors) }
    }
}

fn throttle(fields: &mut Fields<'_>) -> Option<Throttle> {
    const RATE: &str = "maxReceivesPerSecond";
    let written = fields.raw("throttlePolicy")?;
    fields.inside(written, "/throttlePolicy", &[RATE], |fields| {
        fields.raw(RATE)?;
        let given = fields.integer(RATE, 1);
        fields.within(RATE, given, 1, u32::MAX);
        Some(Throttle { max_receives_per_second: given.value })
    })
}

fn request(fields: &mut Fields<'_>, place: PolicyLevel) -> Option<Request> {
    const TYPE: &str = "headerContentType";
    let written = fields.raw("requestPolicy")?;
    fields.inside(written, "/requestPolicy", &[TYPE], |fields| {
        let Some(text) = fields.raw(TYPE)?.as_str().filter(|text| is_media_type(text)) else {
            fields.refuse(TYPE, "must be a media type, such as text/plain; charset=UTF-8");
            return None;
        };
        let essence = text.split(';').next().unwrap_or_default().trim_end();
        let plain = ["text/plain", "application/json"].iter().any(|plain| essence.eq_ignore_ascii_case(plain));
        if place == PolicyLevel::Topic && !plain {
            fields.refuse(TYPE, "must be text/plain or application/json at topic level");
        }
        Some(Request { header_content_type: text.into() })
    })
}

/// Whether a text is a media type with parameters (RFC 9110 section 8.3.1), at most 255 bytes, with quoted strings without
/// escapes.
fn is_media_type(text: &str) -> bool {
    const BLANK: [char; 2] = [' ', '\t'];
    let token = |word: &str| {
        let special = |b| b"!#$%&'*+-.^_`|~".contains(&b);
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || special(b))
    };
    let quotable = |word: &str| word.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'\\');
    let (essence, mut parameters) = text.split_at(text.find(';').unwrap_or(text.len()));
    while let Some(parameter) = parameters.strip_prefix(';') {
        let Some((name, word)) = parameter.trim_start_matches(BLANK).split_once('=') else { return false };
        let (fits, rest) = match word.strip_prefix('"').map(|word| word.split_once('"')) {
            Some(Some((word, rest))) => (quotable(word), rest),
            Some(None) => return false,
            None => {
                let (word, rest) = word.split_at(word.find([';', ' ', '\t']).unwrap_or(word.len()));
                (token(word), rest)
            }
        };
        if !token(name) || !fits {
            return false;
        }
        parameters = rest.trim_start_matches(BLANK);
    }
    let essence = essence.trim_end_matches(BLANK).split_once('/');
    text.len() <= 255 && parameters.is_empty() && essence.is_some_and(|(kind, kin)| token(kind) && token(kin))
}

fn disables(fields: &mut Fields<'_>) -> bool {
    match fields.raw(DISABLE) {
        None => false,
        Some(Value::Bool(disables)) => *disables,
        Some(_) => {
            fields.refuse(DISABLE, "must be true or false");
            false
        }
    }
}

/// Reads server settings. Absent ones are `None`.
fn settings(fields: &mut Fields<'_>) -> SettingsLayer {
    let [threshold, attempts, row, open, open_max, token] = SETTINGS;
    let mut layer = SettingsLayer::default();
    if fields.raw(threshold).is_some() {
        let share = fields.number(threshold, 1.0);
        if !(share > 0.0 && share <= 1.0) {
            fields.refuse(threshold, format!("must be above 0 and at most 1; it is {share}"));
        }
        layer.circuit_failure_threshold = Some(share);
    }
    let mut whole = |name, lowest, highest| {
        fields.raw(name)?;
        let given = fields.integer(name, lowest);
        fields.within(name, given, lowest, highest);
        Some(given.value)
    };
    layer.circuit_attempts_min = whole(attempts, 1, 1_000_000);
    layer.circuit_failures_in_a_row = whole(row, 1, FAILURES_IN_A_ROW_MAX);
    let ms = |ms: u32| Duration::from_millis(ms.into());
    layer.circuit_open = whole(open, 1_000, 600_000).map(ms);
    layer.circuit_open_max = whole(open_max, 1_000, 600_000).map(ms);
    if fields.raw(token).is_some() {
        let given = fields.integer(token, 1);
        fields.within(token, given, 1, 86_400);
        layer.retry_token_ttl = Some(Duration::from_secs(given.value.into()));
    }
    layer
}
