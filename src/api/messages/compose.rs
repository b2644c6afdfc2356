//! Checks a new message completely before anything is stored.

pub(in crate::api::messages) mod content;

use std::collections::HashSet;
use std::hash::Hash;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::ApiState;
use crate::api::http::extract::{PathParam, TOPIC_NAME_RULE, TopicName, USER_ID_RULE, is_plain_text};
use crate::api::http::problem::{Faults, FieldError, Problem};
use crate::api::messages::retry_headers::RetryHeaders;
use crate::api::messages::send_at;
use crate::api::messages::sunset::SunsetBody;
use crate::api::policies::{PolicyFault as _, check, kept, terms_of};
use crate::api::segments::SegmentChoice;
use crate::api::templates::templated::{ResolvedTemplate, TemplateRef, Templates, Trial};
use bellwire_core::clock::uuid_of;
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use bellwire_core::message::{ACTIONS_SHOWN, COLLAPSE_KEY_MAX, Content, Notification, Payload, topic_header};
use bellwire_core::openapi::TierSchema;
use bellwire_core::permission::BrowserRight;
use bellwire_core::template::MessageContent;
use bellwire_rules::policy::{DeliveryPolicy, Parsed, PolicyLevel, Request, SILENT_OF_RETRIES, TierDefaults};
use bellwire_segment::{AudienceFilter, Sunset};
use bellwire_store::audience::topics;
use bellwire_store::keys::apps::App;
use bellwire_store::queue::sending::{Addressed, Audience, NewMessage, Sent};
use bellwire_telemetry::otlp;
use bellwire_vault::CONTENT;
use content::{check_content, check_label, check_template};

const NAMED_MAX: usize = 1000;
/// Maximum users named in a warning.
const USERS_NAMED: usize = 5;
/// Maximum characters of a sender's `key` for a message.
const KEY_MAX: usize = 255;
const KEY_RULE: &str = "must be 1 to 255 characters without control characters";
/// Maximum time to live in seconds: four weeks, the maximum of FCM.
pub(in crate::api) const TTL_MAX_S: i64 = 2_419_200;

/// Recipients of a message: exactly one of `subscriptions`, `users`, `topic` and `all`. `segment` is used alone, or with `topic`
/// or `all`.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipients {
    /// Subscription ids, at most 1,000. The id of a replaced subscription stands for its successor, which gets the message
    /// once.
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriptions: Option<Vec<SubscriptionId>>,
    /// User ids, at most 1,000. All active subscriptions of the users are recipients.
    #[serde(skip_serializing_if = "Option::is_none")]
    users: Option<Vec<String>>,
    /// Topic whose subscribers are recipients.
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    /// Whether all subscribers of the app are recipients.
    #[serde(skip_serializing_if = "Option::is_none")]
    all: Option<bool>,
    /// Segment that narrows the recipients: its name, or an expression such as `plan = "pro" and last_seen < 30d`. Membership
    /// is evaluated during fan-out.
    #[serde(skip_serializing_if = "Option::is_none")]
    segment: Option<String>,
}

impl Recipients {
    /// Refuses a topic that does not exist, unless browsers may create it.
    pub(in crate::api) async fn check_topic(
        &self, state: &ApiState, app: &App, faults: &mut Faults,
    ) -> Result<(), Problem> {
        let named = self.topic.as_deref().filter(|name| name.parse::<TopicName>().is_ok());
        let Some(name) = named.filter(|_| !app.browsers_may.has(BrowserRight::CreateTopics)) else { return Ok(()) };
        let mut conn = state.pool.acquire().await?;
        let found = topics::find(&mut conn, app.id, name).await?;
        faults.require(found.is_some(), "/to/topic", &missing_topic(name));
        Ok(())
    }

    /// Returns ` to the users` and at most five of the users. Empty: the recipients are not users.
    fn first_users(&self) -> String {
        let users = self.users.as_deref().unwrap_or_default();
        let named = users.iter().take(USERS_NAMED).map(|user| format!("{user:?}")).collect::<Vec<_>>().join(", ");
        match users.len() {
            0 => String::new(),
            1 => format!(" to the user {named}"),
            2..=USERS_NAMED => format!(" to the users {named}"),
            n => format!(" to the users {named} and {} more", n - USERS_NAMED),
        }
    }

    /// Returns the segment in these recipients. `None`: no segment.
    pub(in crate::api) async fn segment(
        &self, state: &ApiState, app: &App,
    ) -> Result<Option<Result<SegmentChoice, String>>, Problem> {
        match &self.segment {
            Some(given) => SegmentChoice::read(state, app, given).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Message to send to recipients.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageRequest {
    /// Recipients of the message.
    pub(in crate::api) to: Recipients,
    /// Tier, which determines default policy, weight, time to live and urgency. By default `promotional`.
    #[schema(value_type = Option<TierSchema>)]
    tier: Option<Tier>,
    /// Rule that excludes recipients who do not click notifications. For messages to a topic, a segment or all.
    sunset: Option<SunsetBody>,
    /// Notification to display. Exactly one of `content`, `payload` and `template`.
    content: Option<Notification>,
    /// Shorter notification for push services that refuse `content` as too large.
    compact: Option<Notification>,
    /// Data for the site's own push handler: a string, or `{"base64": "…"}`.
    payload: Option<Payload>,
    /// Template, by name or inline, which is rendered for each recipient. Instead of `content`.
    pub(in crate::api) template: Option<TemplateRef>,
    /// Variables of the template, in addition to the recipient's properties: any JSON object, at most 8,192 bytes.
    #[schema(value_type = Option<Object>)]
    data: Option<Map<String, Value>>,
    /// Whether Bellwire adds its envelope to `payload`. `false`: the payload is sent unchanged, up to 3,993 bytes, and no
    /// receipts are requested.
    envelope: Option<bool>,
    /// Time to live in seconds, 0 to 2,419,200. By default that of the tier.
    ttl: Option<i64>,
    /// Urgency for push services. By default the tier's.
    urgency: Option<Urgency>,
    /// Collapse key, 1 to 200 characters. A push service keeps only the latest message with this key for an offline browser.
    collapse_key: Option<String>,
    /// Whether a click in one browser removes the notification from the person's other browsers, within a few seconds. The person
    /// is the subscription's user.
    #[serde(default)]
    clear_on_click: bool,
    /// Delivery policy of the message.
    #[schema(value_type = Option<DeliveryPolicy>)]
    policy: Option<Value>,
    /// Scheduled time, at most 90 days ahead: RFC 3339 with an offset, or a local time together with `timezone`. The time to
    /// live begins then. A time up to five minutes in the past counts as now.
    #[schema(min_length = 16, max_length = 40, examples("2026-12-01T09:00:00Z", "2026-12-01T09:00:00"))]
    send_at: Option<String>,
    /// IANA time zone of a `send_at` without an offset, such as `Europe/Vienna`.
    timezone: Option<String>,
    /// Your own key for the message, 1 to 255 characters, with which it can be shown and cancelled. The key is free again when
    /// all deliveries have ended.
    key: Option<String>,
    /// Idempotency key of a message in a batch: 1 to 255 ASCII characters. Single requests use the header `Idempotency-Key`.
    #[schema(min_length = 1, max_length = 255)]
    pub(in crate::api) idempotency_key: Option<String>,
}

/// A sender's own key for a message, in the path of a route.
#[derive(Debug, Clone)]
pub(crate) struct MessageKey(pub String);

impl std::str::FromStr for MessageKey {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_plain_text(text, KEY_MAX) { Ok(Self(text.to_owned())) } else { Err(KEY_RULE) }
    }
}

impl PathParam for MessageKey {
    const NAME: &'static str = "key";
}

#[derive(Debug)]
pub(crate) struct Composed {
    pub addressed: Addressed,
    pub asked: SendContext,
    /// Template of the message, to be rendered for sample recipients before acceptance.
    pub trial: Option<Trial>,
}

impl Composed {
    /// Sets the sender: the id of an API key or teammate.
    pub(crate) fn sent_by(mut self, sender: Option<Uuid>) -> Self {
        self.addressed.message.sent_by = sender;
        self
    }

    /// Renders a template for a few recipients, see [`Templates::try_out`].
    pub(crate) async fn try_out(
        &mut self, templates: &mut Templates, state: &ApiState, app: AppId,
    ) -> Result<(), Problem> {
        match self.trial.take() {
            None => Ok(()),
            Some(trial) => templates.try_out(state, app, trial, &self.addressed, &mut self.asked.warnings).await,
        }
    }
}

/// Information for the sender of a message.
#[derive(Debug, Clone)]
pub(crate) struct SendContext {
    pub id: MessageId,
    /// Warnings for the sender.
    pub warnings: Vec<FieldError>,
    named: Vec<SubscriptionId>,
    /// Names of the first users among the recipients, after a space, for a warning.
    users: String,
    /// Whether a missing topic is allowed, because browsers may create it.
    topic_may_be_missing: bool,
    topic: Option<String>,
    pub is_for_later: bool,
}

impl MessageRequest {
    /// Checks everything that needs no database, and encrypts the content. `segment` and `template` are the resolved references
    /// of the request, `faults` its schema faults.
    pub(crate) fn compose(
        mut self, state: &ApiState, app: &App, retries: &RetryHeaders, segment: Option<Result<SegmentChoice, String>>,
        template: Option<ResolvedTemplate>, mut faults: Faults,
    ) -> Result<Composed, Problem> {
        let named = self.to.subscriptions.clone().unwrap_or_default();
        let users = self.to.first_users();
        let audience_json = serde_json::to_value(&self.to).map_err(|_| Problem::internal())?;
        let segment = check_segment(&self.to, segment, &mut faults);
        let audience = check_to(std::mem::take(&mut self.to), app, &mut faults);
        let tier = self.tier.unwrap_or(Tier::Promotional);
        let is_named = audience.as_ref().is_some_and(Audience::is_named);
        let sunset = self.sunset.as_ref().and_then(|rule| rule.check(tier, is_named, &mut faults));
        let defaults = TierDefaults::of(tier);
        let ttl_s = self.ttl.unwrap_or(defaults.ttl_s.into());
        faults.require((0..=TTL_MAX_S).contains(&ttl_s), "/ttl", "must be 0 to 2419200 seconds");
        self.check_names(&mut faults);
        let now = state.clock.now();
        let send_at = send_at::read(self.send_at.as_deref(), self.timezone.as_deref(), now, &mut faults);
        let policy = check_policy(self.policy.as_ref(), retries, app, &mut faults)?;
        let mut warnings: Vec<FieldError> =
            policy.warnings.into_iter().map(|warning| warning.under("/policy")).collect();
        let told = segment.iter().flat_map(|segment| &segment.warnings);
        warnings.extend(told.map(|what| FieldError::member("/to/segment", what)));
        let site = app.origins.first().map(String::as_str);
        self.complete(site, &mut warnings);
        let (said, trial) = match template {
            Some(template) => self.check_templated(template, app, &mut faults).unzip(),
            None => (self.check_literal(policy.layer.request.as_ref(), &mut faults).map(MessageContent::Literal), None),
        };
        faults.finish()?;
        let (audience, said) = audience.zip(said).expect("missing members were refused");
        let (accepted_at, is_for_later) = (send_at.unwrap_or(now), send_at.is_some());
        // History is partitioned by message id, so the id tells the server's time, not the host's.
        let id = MessageId(uuid_of(accepted_at));
        let plain = zeroize::Zeroizing::new(said.to_json().map_err(|_| Problem::internal())?);
        let message = NewMessage {
            id,
            app: app.id,
            tier,
            audience: audience_json,
            filter: filter(segment, sunset),
            content: state.vault.seal(CONTENT, id, &plain),
            ttl_s: i32::try_from(ttl_s).expect("checked against TTL_MAX_S"),
            urgency: self.urgency.unwrap_or(defaults.urgency),
            topic_header: self.collapse_key.map(|key| topic_header(app.id, &key)),
            policy: retries.over(self.policy).map(kept),
            enveloped: said.is_enveloped(),
            clear_on_click: self.clear_on_click,
            accepted_at,
            received_at: is_for_later.then_some(now),
            by_cursors: false,
            key: self.key,
            traceparent: otlp::current(),
            sent_by: None,
        };
        let topic_may_be_missing = matches!(audience, Audience::Topic { may_be_missing: true, .. });
        let topic = match &audience {
            Audience::Topic { name, .. } => Some(name.clone()),
            _ => None,
        };
        let asked = SendContext { id, warnings, named, users, topic_may_be_missing, topic, is_for_later };
        let trial = trial.filter(|trial: &Trial| trial.compiled.is_personal());
        Ok(Composed { addressed: Addressed { message, audience }, asked, trial })
    }

    /// Checks `key` and `idempotency_key`.
    fn check_names(&self, faults: &mut Faults) {
        let is_raw = self.envelope == Some(false);
        faults.require(!(self.clear_on_click && is_raw), "/clear_on_click", "needs receipts: leave `envelope` out");
        let detail = "is for batches: send the header `Idempotency-Key`";
        faults.require(self.idempotency_key.is_none(), "/idempotency_key", detail);
        if let Some(key) = &self.collapse_key {
            let detail = "must be 1 to 200 characters without control characters";
            faults.require(is_plain_text(key, COLLAPSE_KEY_MAX), "/collapse_key", detail);
        }
        if let Some(key) = &self.key {
            faults.require(is_plain_text(key, KEY_MAX), "/key", KEY_RULE);
        }
    }

    /// Completes relative URLs with the app's first origin, and warns of content that browsers do not display.
    fn complete(&mut self, site: Option<&str>, warnings: &mut Vec<FieldError>) {
        for (content, pointer) in [(&mut self.content, "/content"), (&mut self.compact, "/compact")] {
            let Some(content) = content else { continue };
            content.complete(site);
            if content.actions.len() > ACTIONS_SHOWN {
                let detail = format!("browsers show {ACTIONS_SHOWN}, if any; the rest may never be seen");
                warnings.push(FieldError::member(format!("{pointer}/actions"), detail));
            }
        }
    }

    /// Checks the content of a message with a template, and its trial rendering.
    fn check_templated(
        &mut self, template: ResolvedTemplate, app: &App, faults: &mut Faults,
    ) -> Option<(MessageContent, Trial)> {
        for (pointer, is_there) in [
            ("/content", self.content.is_some()),
            ("/compact", self.compact.is_some()),
            ("/payload", self.payload.is_some()),
            ("/envelope", self.envelope == Some(false)),
        ] {
            faults.require(!is_there, pointer, "cannot be combined with `template`");
        }
        check_template(template, app, self.data.take(), faults)
    }

    /// Checks the content of a message without a template.
    fn check_literal(&mut self, request: Option<&Request>, faults: &mut Faults) -> Option<Content> {
        faults.require(self.data.is_none(), "/data", "is allowed only with `template`");
        let content =
            check_content(self.content.take(), self.compact.take(), self.payload.take(), self.envelope, faults);
        if let Some((content, request)) = content.as_ref().zip(request) {
            check_label(content, request, faults);
        }
        content
    }
}

/// Returns the recipient filter of a message. `None`: no filter.
fn filter(segment: Option<SegmentChoice>, sunset: Option<Sunset>) -> Option<AudienceFilter> {
    let filter = segment.map(|segment| segment.filter());
    if sunset.is_none() {
        return filter;
    }
    Some(AudienceFilter { sunset, ..filter.unwrap_or_default() })
}

impl SendContext {
    /// Refuses unknown subscriptions by index, and a missing topic. Where browsers may create topics, a missing topic is only a
    /// warning: its first member may be registering now. Recipients without an active subscription are a warning, too.
    pub(crate) fn refuse_unknown(&mut self, sent: &Sent) -> Result<(), Problem> {
        let mut faults = Faults::default();
        match self.topic_may_be_missing {
            true if sent.lacks_topic => {
                let detail = match sent.expands {
                    true => {
                        "this topic did not exist, so it was created; members who join before `send_at` are reached"
                    }
                    false => "this topic does not exist, so this message reached no subscriber; check its spelling",
                };
                self.warnings.push(FieldError::member("/to/topic", detail));
            }
            _ => {
                let topic = self.topic.as_deref().unwrap_or_default();
                faults.require(!sent.lacks_topic, "/to/topic", &missing_topic(topic));
            }
        }
        for (i, id) in self.named.iter().enumerate() {
            if sent.unknown.contains(id) {
                faults.refuse(format!("/to/subscriptions/{i}"), "names a subscription that does not exist in this app");
            }
        }
        faults.finish()?;
        if sent.estimate == 0 && !self.is_for_later && !sent.lacks_topic {
            let detail = match sent.expands {
                true => "has no active subscription in a sample, so few or none are reached".to_owned(),
                false => format!("has no active subscription now, so nothing is sent{}", self.users),
            };
            self.warnings.push(FieldError::member("/to", detail));
        }
        Ok(())
    }
}

fn missing_topic(name: &str) -> String {
    format!("topic {name:?} does not exist in this app; create it, or check the spelling")
}

/// Checks the segment in `to`. A segment that cannot be parsed is refused, so that the message never reaches all subscribers.
pub(in crate::api) fn check_segment(
    to: &Recipients, read: Option<Result<SegmentChoice, String>>, faults: &mut Faults,
) -> Option<SegmentChoice> {
    const AT: &str = "/to/segment";
    match read {
        Some(Ok(chosen)) => Some(chosen),
        Some(Err(what)) => {
            faults.refuse(AT, what);
            None
        }
        None => {
            faults.require(to.segment.is_none(), AT, "is only for messages that are sent in separate requests");
            None
        }
    }
}

pub(in crate::api) fn check_to(to: Recipients, app: &App, faults: &mut Faults) -> Option<Audience> {
    let Recipients { subscriptions, users, topic, all, segment } = to;
    if segment.is_some() && (subscriptions.is_some() || users.is_some()) {
        faults.refuse("/to/segment", "is allowed only alone or with `topic` or `all`");
        return None;
    }
    let all = all.or((segment.is_some() && topic.is_none()).then_some(true));
    match (subscriptions, users, topic, all) {
        (Some(ids), None, None, None) => {
            in_number(ids.len(), "/to/subscriptions", faults).then(|| Audience::Subscriptions(each_once(ids)))
        }
        (None, Some(users), None, None) => {
            let mut fit = in_number(users.len(), "/to/users", faults);
            for (i, user) in users.iter().enumerate().take(NAMED_MAX) {
                if !is_plain_text(user, 255) {
                    faults.refuse(format!("/to/users/{i}"), USER_ID_RULE);
                    fit = false;
                }
            }
            fit.then(|| Audience::Users(each_once(users)))
        }
        (None, None, Some(topic), None) => {
            let topic = topic.parse::<TopicName>();
            faults.require(topic.is_ok(), "/to/topic", TOPIC_NAME_RULE);
            let may_be_missing = app.browsers_may.has(BrowserRight::CreateTopics);
            topic.ok().map(|TopicName(name)| Audience::Topic { name, may_be_missing })
        }
        (None, None, None, Some(all)) => {
            faults.require(all, "/to/all", "must be true");
            all.then_some(Audience::All)
        }
        _ => {
            faults.refuse("/to", "must have exactly one of `subscriptions`, `users`, `topic`, `all`, or a `segment`");
            None
        }
    }
}

fn in_number(n: usize, pointer: &str, faults: &mut Faults) -> bool {
    let fits = (1..=NAMED_MAX).contains(&n);
    faults.require(fits, pointer, "must hold 1 to 1000 items");
    fits
}

fn each_once<T: Clone + Eq + Hash>(mut items: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::with_capacity(items.len());
    items.retain(|item| seen.insert(item.clone()));
    items
}

/// Checks the message's own policy and the headers that override it. Returns the policy of the body, without retries if headers
/// set them.
fn check_policy(
    policy: Option<&Value>, retries: &RetryHeaders, app: &App, faults: &mut Faults,
) -> Result<Parsed, Problem> {
    let terms = terms_of(app, PolicyLevel::Message);
    let checked = retries.check(policy, &terms, faults)?;
    let parsed = policy.filter(|_| !checked).and_then(|policy| check(policy, &terms, "/policy", faults));
    let mut parsed = parsed.unwrap_or_default();
    parsed.warnings.retain(|warning| retries.is_empty() || warning.detail != SILENT_OF_RETRIES);
    Ok(parsed)
}
