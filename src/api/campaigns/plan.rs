//! Plan of a campaign as its author writes it, and its validation. The code for messages validates its messages.

mod schedule;
mod trigger;

use std::collections::{BTreeMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::campaigns::link_parameters::check_parameters;
use crate::api::http::draft::draft;
use crate::api::http::extract::is_plain_text;
use crate::api::http::problem::{Faults, Problem};
use crate::api::messages::compose::MessageRequest;
use crate::api::messages::retry_headers::RetryHeaders;
use crate::api::templates::templated::Templates;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::CampaignId;
use bellwire_core::request_time;
use bellwire_core::user_event::{EVENT_NAME_RULE, is_event_name};
use bellwire_rules::campaign::follow::{Follow, FollowCondition};
use bellwire_rules::campaign::plan::{
    CampaignAudience, CampaignVariant, Otherwise, Pace, Plan, PlannedMessage, Test, VARIANTS_MAX, WHOLE,
};
use bellwire_rules::campaign::schedule::When;
use bellwire_rules::campaign::trigger::{Cause, Trigger};
use bellwire_store::keys::apps::App;
use bellwire_store::measurement;
use bellwire_store::queue::sending::Audience as SentTo;
use bellwire_vault::CONTENT;
use schedule::{Hour, ScheduleBody};

/// Maximum time between now and a campaign's schedule or expiry.
const AHEAD_MAX: TimeDelta = TimeDelta::days(366);
pub(super) const SLUG_RULE: &str =
    "must be 1 to 64 lower-case letters, digits or `-`, and begin with a letter or digit";
const NAME_RULE: &str = "must be 1 to 200 characters without control characters";
const SHARE_RULE: &str = "must be a share of the audience from 0 to 0.5";
/// Maximum duration of pacing, a test or a follow-up, in seconds: four weeks.
const SPAN_MAX_S: i64 = 2_419_200;
/// Members of a message that a campaign replaces by its own, with the name of the replacement.
const NOT_FOR_CAMPAIGNS: [(&str, &str); 4] = [
    ("send_at", "is not for campaigns: use `schedule`"),
    ("timezone", "is not for campaigns: use `schedule`"),
    ("key", "is not for campaigns: they go by their slug"),
    ("idempotency_key", "is not for campaigns: send the header `Idempotency-Key`"),
];

/// A campaign as its author writes it.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CampaignPlan {
    /// Name in URLs, unique in its app: 1 to 64 lower-case letters, digits or `-`.
    #[schema(min_length = 1, max_length = 64)]
    pub slug: String,
    /// Display name, 1 to 200 characters. By default the slug.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub name: Option<String>,
    /// Message to send, in the form of `POST …/messages`, to a topic or to all subscribers.
    #[schema(value_type = MessageRequest)]
    message: Value,
    /// Variants of the content for shares of the audience, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10)]
    variants: Vec<VariantBody>,
    /// Schedule. By default the campaign is sent when it is started.
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<ScheduleBody>,
    /// Time after which nothing is sent.
    #[serde(default, deserialize_with = "request_time::optional", skip_serializing_if = "Option::is_none")]
    expires_at: Option<DateTime<Utc>>,
    /// Send rate of each message. By default unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pace: Option<PaceBody>,
    /// A/B test: send the variants to a share of the audience first. The rest gets the variant with the best results.
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<TestBody>,
    /// Share of the audience that gets nothing, as a control group: 0 to 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 0.5)]
    holdout: Option<f64>,
    /// Campaign that this one follows up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows: Option<FollowBody>,
    /// Parameters of links, by name, in addition to the app's link tags and in place of equal ones. At most 20.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    link_parameters: BTreeMap<String, String>,
}

/// Variant of a campaign's content.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CampaignVariant)]
pub(crate) struct VariantBody {
    /// Name of the variant, 1 to 64 characters.
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    /// Weight of its share, relative to the other variants: 1 to 1,000. By default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    weight: Option<u16>,
    /// Time of day for this variant, if it differs from `schedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    hour: Option<Hour>,
    /// Members of the message that differ in this variant, such as `content`.
    #[schema(value_type = Object)]
    message: Map<String, Value>,
}

/// Send rate of a campaign's message: exactly one of these members.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CampaignPace)]
pub(crate) struct PaceBody {
    /// Recipients per minute, 1 to 1,000,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    per_minute: Option<u32>,
    /// Seconds over which deliveries are spread evenly, 60 to 2,419,200. The audience is counted when sending starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 60, maximum = 2_419_200)]
    spread_over: Option<u32>,
}

/// A/B test of variants.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CampaignTest)]
pub(crate) struct TestBody {
    /// Share of the audience: above 0, up to 0.5.
    #[schema(minimum = 0, maximum = 0.5)]
    share: f64,
    /// Seconds for which clicks or conversions are counted before the winner is chosen: 60 to 2,419,200.
    #[schema(minimum = 60, maximum = 2_419_200)]
    after: i64,
    /// Required probability that the winner is better than every other variant: 0.8 to 0.999. By default 0.95.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.8, maximum = 0.999)]
    confidence: Option<f64>,
    /// Kind of conversion by which the winner is chosen, such as `order`, if the app measures conversions. By default by clicks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64)]
    by: Option<String>,
    /// Content for the rest of the audience if no variant wins: the `first` variant, or nothing (`stop`). By default `first`.
    #[serde(skip_serializing_if = "Option::is_none")]
    otherwise: Option<Otherwise>,
}

/// Follow-up of another campaign.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CampaignFollow)]
pub(crate) struct FollowBody {
    /// Id or slug of the campaign to follow up.
    #[schema(max_length = 64)]
    pub campaign: String,
    /// Event that a recipient of that campaign lacks to get this one.
    did_not: FollowCondition,
    /// Seconds after the start of the other campaign's last run, or after the message to the person if events trigger it: 60 to
    /// 2,419,200. The events that end the other's wait end this one, too.
    #[schema(minimum = 60, maximum = 2_419_200)]
    after: i64,
}

/// Parts of a campaign's plan that are stored encrypted.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct StoredPlan {
    pub given: CampaignPlan,
    pub checked: Plan,
}

/// Campaign that another one follows up.
pub(super) struct Followed {
    pub id: CampaignId,
    /// Trigger of that campaign. `None`: a schedule determines its runs.
    pub trigger: Option<Trigger>,
}

impl CampaignPlan {
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.slug)
    }

    /// Checks all members that need no database. `followed` is the campaign to follow up.
    pub(super) async fn check(
        &self, state: &ApiState, app: &App, followed: Option<&Followed>, mut faults: Faults,
    ) -> Result<Plan, Problem> {
        faults.require(is_slug(&self.slug), "/slug", SLUG_RULE);
        faults.require(is_plain_text(self.name(), 200), "/name", NAME_RULE);
        let now = state.clock.now();
        let holdout = share(self.holdout.unwrap_or(0.0));
        faults.require(holdout.is_some(), "/holdout", SHARE_RULE);
        let expires_at = self.expires_at;
        let in_time = expires_at.is_none_or(|end| end > now && end <= now + AHEAD_MAX);
        faults.require(in_time, "/expires_at", "must be in the future, at most one year ahead");
        let when = self.when(now, followed, &mut faults);
        let pace = self.pace.and_then(|pace| pace.check(&mut faults));
        let test = self.test.as_ref().and_then(|test| self.check_test(test, &mut faults));
        let follows = self.follows.as_ref().and_then(|follow| follow.check(followed, &mut faults));
        // Each entry of a follow-up knows its message.
        let follows = follows.filter(|_| !matches!(when, Some(When::Trigger(_))));
        if let Some(When::Trigger(_)) = &when {
            faults.require(self.test.is_none(), "/test", "is not for campaigns that events trigger: use `variants`");
            let is_rate = pace.is_none_or(|pace| matches!(pace, Pace::PerMinute(_)));
            faults.require(is_rate, "/pace/spread_over", "is not for campaigns that events trigger: use `per_minute`");
        }
        let decided_by = self.test.as_ref().and_then(|test| test.by.clone());
        if let Some(name) = &decided_by {
            faults.require(is_event_name(name), "/test/by", EVENT_NAME_RULE);
            let recurs = matches!(when, Some(When::Cron(_)));
            faults.require(!recurs, "/test/by", "is not for recurring campaigns, whose runs are measured together");
            let measures = measurement::rule(&state.pool, app.id).await?.is_some_and(|rule| rule.window_s.is_some());
            faults.require(
                measures,
                "/test/by",
                "needs an app that measures conversions: set `window` in its measurement",
            );
        }
        check_parameters("/link_parameters", &self.link_parameters, &mut faults);
        self.check_variants(&mut faults);
        self.check_hours(&mut faults);
        let variants = self.bodies(state, app, &mut faults).await?;
        faults.finish()?;
        Ok(Plan {
            variants,
            when: when.unwrap_or(When::Now),
            pace,
            test,
            holdout: holdout.unwrap_or(0),
            expires_at,
            follows,
            decided_by,
            link_parameters: self.link_parameters.clone(),
        })
    }

    fn when(&self, now: Timestamp, followed: Option<&Followed>, faults: &mut Faults) -> Option<When> {
        match (&self.schedule, &self.follows) {
            (Some(_), Some(_)) => {
                faults.refuse("/schedule", "must not be set for a follow-up: `follows` determines its time");
                None
            }
            (Some(schedule), None) => schedule.check(now, faults),
            (None, Some(follow)) => {
                Some(match followed.and_then(|followed| Some((followed, followed.trigger.as_ref()?))) {
                    Some((followed, trigger)) => When::Trigger(Box::new(Trigger {
                        on: Cause::Sent(followed.id),
                        filter: None,
                        after_s: follow.after,
                        // A person who has bought needs no second reminder either.
                        unless: trigger.unless.clone(),
                        at_most: None,
                        did_not: Some(follow.did_not),
                    })),
                    None => When::After(follow.after),
                })
            }
            (None, None) => Some(When::Now),
        }
    }

    fn check_test(&self, test: &TestBody, faults: &mut Faults) -> Option<Test> {
        let enough = self.variants.len() >= 2;
        faults.require(enough, "/test", "needs at least two `variants`");
        let by_recipient = self.schedule.as_ref().is_some_and(|schedule| schedule.is_by_recipient());
        faults.require(
            !by_recipient,
            "/test",
            "cannot be combined with a schedule in the recipients' timezones, because their times differ",
        );
        let share = share(test.share).filter(|share| *share > 0);
        faults.require(share.is_some(), "/test/share", "must be a share of the audience: above 0, at most 0.5");
        faults.require(is_span(test.after), "/test/after", "must be 60 to 2419200 seconds");
        let confidence = test.confidence.unwrap_or(0.95);
        let likely = (0.8..=0.999).contains(&confidence);
        faults.require(likely, "/test/confidence", "must be a probability from 0.8 to 0.999");
        let otherwise = test.otherwise.unwrap_or(Otherwise::First);
        Some(Test { share: share?, after_s: test.after, confidence, otherwise })
    }

    fn check_variants(&self, faults: &mut Faults) {
        faults.require(self.variants.len() <= VARIANTS_MAX, "/variants", "must be at most 10");
        let mut names = HashSet::new();
        for (i, variant) in self.variants.iter().enumerate().take(VARIANTS_MAX) {
            let (name, weight) = (format!("/variants/{i}/name"), format!("/variants/{i}/weight"));
            faults.require(is_plain_text(&variant.name, 64), &name, "must be 1 to 64 characters");
            faults.require(names.insert(&variant.name), &name, "is the name of another variant");
            let is_free = !matches!(variant.name.as_str(), "control" | "after_test");
            faults.require(is_free, &name, "is the name of a group in results");
            faults.require((1..=1_000).contains(&variant.weight.unwrap_or(1)), &weight, "must be 1 to 1000");
            if variant.message.contains_key("to") {
                let detail = "must not be set: variants share one audience";
                faults.refuse(format!("/variants/{i}/message/to"), detail);
            }
        }
    }

    /// Refuses `hour` together with `recipient` time zones or a test: each recipient's own hour is local already, and a test
    /// compares messages sent at the same time.
    fn check_hours(&self, faults: &mut Faults) {
        let by_recipient = self.schedule.as_ref().is_some_and(ScheduleBody::is_by_recipient);
        let own = self.schedule.as_ref().and_then(|schedule| schedule.hour);
        let variants = self.variants.iter().enumerate().take(VARIANTS_MAX);
        let given = variants.map(|(i, variant)| (format!("/variants/{i}/hour"), variant.hour));
        for (pointer, hour) in given.chain([("/schedule/hour".to_owned(), own)]) {
            let is_own = hour == Some(Hour::Best);
            faults.require(
                !(is_own && by_recipient),
                &pointer,
                "`best` cannot be combined with the timezone `recipient`",
            );
            faults.require(
                !(is_own && self.test.is_some()),
                &pointer,
                "`best` cannot be combined with `test`, because the send times differ",
            );
        }
    }

    /// Whether a variant is sent at each recipient's own hour. `None` means a campaign without variants.
    fn is_at_own_hour(&self, variant: Option<&VariantBody>) -> bool {
        let of_campaign = self.schedule.as_ref().and_then(|schedule| schedule.hour);
        variant.and_then(|variant| variant.hour).or(of_campaign) == Some(Hour::Best)
    }

    /// Returns the messages of the plan, each checked as if sent now. Messages with faults are omitted and reported in
    /// `faults`.
    async fn bodies(&self, state: &ApiState, app: &App, faults: &mut Faults) -> Result<Vec<CampaignVariant>, Problem> {
        let Value::Object(message) = &self.message else {
            faults.refuse("/message", "must be an object");
            return Ok(Vec::new());
        };
        let sole = self.variants.is_empty().then_some((None, "/message".to_owned()));
        let named = self.variants.iter().enumerate().map(|(i, it)| (Some(it), format!("/variants/{i}/message")));
        let mut variants = Vec::with_capacity(self.variants.len().max(1));
        for (variant, place) in sole.into_iter().chain(named) {
            let whole = variant.map_or_else(|| message.clone(), |variant| variant.over(message.clone()));
            let body = match check_message(whole, state, app).await {
                Ok(body) => body,
                Err(refused) => {
                    faults.absorb(refused.under(&place))?;
                    continue;
                }
            };
            let name = variant.map_or_else(String::new, |variant| variant.name.clone());
            let weight = variant.and_then(|variant| variant.weight).unwrap_or(1);
            variants.push(CampaignVariant { name, weight, at_own_hour: self.is_at_own_hour(variant), body });
        }
        Ok(variants)
    }

    /// Returns the message of a variant (by name, or the first one) to other recipients, for a test send.
    pub(super) fn message_to(&self, to: Value, variant: Option<&str>) -> Option<MessageRequest> {
        let mut message = self.message.as_object()?.clone();
        let chosen = match variant {
            Some(name) => Some(self.variants.iter().find(|variant| variant.name == name)?),
            None => self.variants.first(),
        };
        if let Some(chosen) = chosen {
            message = chosen.over(message);
        }
        message.insert("to".into(), to);
        serde_json::from_value(Value::Object(message)).ok()
    }
}

impl VariantBody {
    /// Returns the message with this variant's members in place of its own. If the variant has another form of content, it
    /// replaces the form of the message.
    fn over(&self, mut message: Map<String, Value>) -> Map<String, Value> {
        if ["content", "payload", "template"].iter().any(|member| self.message.contains_key(*member)) {
            for member in ["content", "compact", "payload", "envelope", "template"] {
                message.remove(member);
            }
        }
        message.extend(self.message.clone());
        message
    }
}

/// Checks one message of a campaign. Its content is decrypted again, because it is encrypted with the whole plan.
async fn check_message(message: Map<String, Value>, state: &ApiState, app: &App) -> Result<PlannedMessage, Problem> {
    let octets = serde_json::to_vec(&message).map_err(|_| Problem::internal())?;
    let (mut body, mut faults) = draft::<MessageRequest>(&octets.into())?;
    for (member, detail) in NOT_FOR_CAMPAIGNS {
        faults.require(!message.contains_key(member), &format!("/{member}"), detail);
    }
    body.to.check_topic(state, app, &mut faults).await?;
    let segment = body.to.segment(state, app).await?;
    let mut templates = Templates::default();
    let template =
        templates.resolve(state, app.id, body.template.take()).await.map_err(|refused| faults.with(refused))?;
    let mut composed = body.compose(state, app, &RetryHeaders::default(), segment, template, faults)?;
    composed.try_out(&mut templates, state, app.id).await?;
    let composed = composed.addressed;
    let message = composed.message;
    let audience = match composed.audience {
        SentTo::Topic { name, may_be_missing } => CampaignAudience::Topic { name, may_be_missing },
        SentTo::All => CampaignAudience::All,
        SentTo::Subscriptions(_) | SentTo::Users(_) | SentTo::BrowsersOf(..) => {
            let detail = "must be a topic, a segment or all; use messages for single users and subscriptions";
            return Err(Problem::invalid_member("/to", detail));
        }
    };
    let content = zeroize::Zeroizing::new(state.vault.open(CONTENT, message.id, &message.content)?);
    Ok(PlannedMessage {
        tier: message.tier,
        to: message.audience,
        audience,
        filter: message.filter,
        content: serde_json::from_slice(&content).map_err(|_| Problem::internal())?,
        ttl_s: message.ttl_s,
        urgency: message.urgency,
        topic_header: message.topic_header,
        policy: message.policy,
        enveloped: message.enveloped,
        clear_on_click: message.clear_on_click,
    })
}

impl PaceBody {
    fn check(self, faults: &mut Faults) -> Option<Pace> {
        match (self.per_minute, self.spread_over) {
            (Some(rate), None) => {
                let fits = (1..=1_000_000).contains(&rate);
                faults.require(fits, "/pace/per_minute", "must be 1 to 1000000");
                fits.then_some(Pace::PerMinute(rate))
            }
            (None, Some(seconds)) => {
                let fits = is_span(seconds.into());
                faults.require(fits, "/pace/spread_over", "must be 60 to 2419200 seconds");
                fits.then_some(Pace::SpreadOver(seconds))
            }
            (None, None) | (Some(_), Some(_)) => {
                faults.refuse("/pace", "must have exactly one of `per_minute`, `spread_over`");
                None
            }
        }
    }
}

impl FollowBody {
    fn check(&self, followed: Option<&Followed>, faults: &mut Faults) -> Option<Follow> {
        faults.require(followed.is_some(), "/follows/campaign", "names a campaign that does not exist in this app");
        faults.require(is_span(self.after), "/follows/after", "must be 60 to 2419200 seconds");
        Some(Follow { campaign: followed?.id.to_string(), did_not: self.did_not })
    }
}

fn is_span(seconds: i64) -> bool {
    (60..=SPAN_MAX_S).contains(&seconds)
}

/// Converts a share to ten-thousandths. `None`: not above 0, or more than half.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 5,000")]
fn share(of_one: f64) -> Option<u16> {
    (0.0..=0.5).contains(&of_one).then(|| (of_one * f64::from(WHOLE)).round() as u16)
}

pub(super) fn is_slug(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=64).contains(&text.len())
        && text.bytes().next().is_some_and(is_plain)
        && text.bytes().all(|b| is_plain(b) || b == b'-')
}
