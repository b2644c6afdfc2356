//! `/v1/apps/{app}/templates/preview` and `…/check`: renders a template for one recipient or for all. Nothing is sent.

use std::sync::Arc;
use std::time::Duration;

use axum::Json as Answer;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::http::auth::{MaySend, Server};
use crate::api::http::extract::{Json, USER_ID_RULE, is_plain_text};
use crate::api::http::problem::{Faults, FieldError, Problem};
use crate::api::http::routes::routes;
use crate::api::messages::compose::{Recipients, check_segment, check_to};
use crate::api::subscriptions::response::current;
use crate::api::templates::templated::{ResolvedTemplate, TemplateRef, Templates};
use bellwire_core::id::SubscriptionId;
use bellwire_core::message::{Content, Notification};
use bellwire_core::scope::Scope;
use bellwire_rules::classify::DeadReason;
use bellwire_store::audience::people::{self, Behind, Member};
use bellwire_store::keys::apps::App;
use bellwire_store::queue::sending::Audience;
use bellwire_template::{Compiled, DATA_MAX, Filled, TemplateFault, TemplateFaultKind, TemplatePerson};
use bellwire_webpush::payload;
use utoipa_axum::router::OpenApiRouter;

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(preview)).routes(routes!(check))
}

/// Recipients read per statement.
const PAGE: i64 = 500;
/// Recipients rendered before the task yields: some milliseconds with any template.
const TRIED_AT_ONCE: usize = 20;
/// Maximum time of a check. One recipient takes a few milliseconds at most, because the template language limits steps and
/// bytes.
const CHECK_WITHIN: Duration = Duration::from_secs(10);
const FAILURES_MAX: usize = 20;

/// Template to preview, and its recipient: at most one of `subscription`, `user` and `recipient`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplatePreviewRequest {
    /// Name of a stored template, or an inline one.
    template: TemplateRef,
    /// Variables of the template.
    #[schema(value_type = Option<Object>)]
    data: Option<Map<String, Value>>,
    /// Subscription to render for. Requires the scope `read` in addition.
    subscription: Option<SubscriptionId>,
    /// User to render for: their first active subscription. Requires the scope `read` in addition.
    user: Option<String>,
    /// Invented recipient with these values.
    recipient: Option<TestRecipient>,
}

/// Invented recipient.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TestRecipient {
    /// User id of the recipient.
    user_id: Option<String>,
    /// Attributes of the recipient.
    #[serde(default)]
    #[schema(value_type = Object)]
    attributes: Map<String, Value>,
    /// Tags of the recipient.
    #[serde(default)]
    tags: Vec<String>,
    /// BCP 47 language tag of the recipient.
    locale: Option<String>,
    /// IANA time zone of the recipient.
    timezone: Option<String>,
}

/// Rendered template.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TemplatePreview {
    /// Language that the recipient would get. Null: the default language of the template.
    locale: Option<String>,
    /// Results in all languages for this recipient, the default language first.
    variants: Vec<VariantPreview>,
}

/// Rendered template in one language.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VariantPreview {
    /// Language tag. Null: the default language of the template.
    locale: Option<String>,
    /// Rendered notification. Null: rendering failed.
    content: Option<Box<Notification>>,
    /// Notification for push services that refuse it as too large.
    #[serde(skip_serializing_if = "Option::is_none")]
    compact: Option<Box<Notification>>,
    /// Bytes of the notification as sent, without Bellwire's envelope: at most 3,833.
    octets: Option<usize>,
    /// Faults for this recipient.
    faults: Vec<FieldError>,
}

/// Renders a template in each of its languages. Nothing is sent. With `user` or `subscription` the result shows data of the
/// app, so these also require the scope `read`.
#[utoipa::path(post, path = "/v1/apps/{app}/templates/preview", tag = "Templates",
    responses((status = 200, body = TemplatePreview)))]
pub(crate) async fn preview(
    Server { app, caller, .. }: Server<MaySend>, State(state): State<ApiState>,
    Json(body, _): Json<TemplatePreviewRequest>,
) -> Result<Answer<TemplatePreview>, Problem> {
    let TemplatePreviewRequest { template, data, subscription, user, recipient } = body;
    if subscription.is_some() || user.is_some() {
        caller.require(Scope::Read)?;
    }
    let (of, compiled) = compile(&state, &app, template, data).await?;
    let person = whom(&state, &app, subscription, user, recipient).await?;
    let show = |variant| {
        let faults = compiled.faults(variant, &person).iter().map(|fault| of.complaint(fault, "")).collect();
        let locale = compiled.locale(variant).map(str::to_owned);
        match compiled.fill(variant, &person) {
            Ok(Filled { content: Content::Notification { content, compact }, .. }) => {
                let octets = Some(payload::PayloadTemplate::content_octets(&content));
                VariantPreview { locale, content: Some(content), compact, octets, faults }
            }
            _ => VariantPreview { locale, content: None, compact: None, octets: None, faults },
        }
    };
    let chosen = compiled.variant_for(person.locale.as_deref());
    let locale = compiled.locale(chosen).map(str::to_owned);
    let mut variants = Vec::with_capacity(compiled.variants());
    for variant in 0..compiled.variants() {
        variants.push(show(variant));
        tokio::task::yield_now().await; // each takes a few ms at most, but there may be 51
    }
    Ok(Answer(TemplatePreview { locale, variants }))
}

async fn compile(
    state: &ApiState, app: &App, template: TemplateRef, data: Option<Map<String, Value>>,
) -> Result<(ResolvedTemplate, Compiled), Problem> {
    let of = Templates::default().resolve(state, app.id, Some(template)).await?;
    let of = of.expect("one was given");
    match of.compile(app, data) {
        Ok((_, compiled)) => Ok((of, compiled)),
        Err(errors) => Err(Problem::invalid(errors)),
    }
}

/// Returns the recipient of a preview. Without one in the request, the recipient has no data.
async fn whom(
    state: &ApiState, app: &App, subscription: Option<SubscriptionId>, user: Option<String>,
    recipient: Option<TestRecipient>,
) -> Result<Arc<TemplatePerson>, Problem> {
    let audience = match (subscription, user, recipient) {
        (None, None, recipient) => return recipient_of(recipient.unwrap_or_default()).map(Arc::new),
        (Some(id), None, None) => Audience::Subscriptions(vec![current(state, app, id).await?]),
        (None, Some(user), None) if is_plain_text(&user, 255) => Audience::Users(vec![user]),
        (None, Some(_), None) => return Err(Problem::invalid_member("/user", USER_ID_RULE)),
        _ => {
            let detail = "may hold at most one of `subscription`, `user`, `recipient`";
            return Err(Problem::invalid_member("", detail));
        }
    };
    let pointer = if matches!(audience, Audience::Users(_)) { "/user" } else { "/subscription" };
    let found = people::page(&state.pool, app.id, &audience, Behind::NONE, 1, state.clock.now()).await?.pop();
    let member = found.ok_or_else(|| Problem::invalid_member(pointer, "has no active subscription in this app"))?;
    Ok(member.person)
}

fn recipient_of(body: TestRecipient) -> Result<TemplatePerson, Problem> {
    let TestRecipient { user_id, attributes, tags, locale, timezone } = body;
    let octets = serde_json::to_vec(&(&attributes, &tags)).map_or(usize::MAX, |json| json.len());
    if octets > DATA_MAX {
        return Err(Problem::invalid_member("/recipient", format!("may have at most {DATA_MAX} octets as JSON")));
    }
    Ok(TemplatePerson { user_id, attributes, tags, locale, timezone })
}

/// Template to render for all recipients of a message.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateCheckRequest {
    /// Name of a stored template, or an inline one.
    template: TemplateRef,
    /// Variables of the template.
    #[schema(value_type = Option<Object>)]
    data: Option<Map<String, Value>>,
    /// Recipients of the message.
    to: Recipients,
}

/// Result of rendering a template for an audience.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct TemplateCheck {
    /// Number of recipients checked.
    checked: usize,
    /// Number of recipients with a rendering error.
    unrenderable: usize,
    /// Number of recipients whose result is too long and cannot be truncated.
    too_long: usize,
    /// Whether all recipients were checked. A check ends after ten seconds.
    done: bool,
    /// The first 20 failures.
    failures: Vec<TrialFailure>,
}

/// Failure of a template for one recipient.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrialFailure {
    /// Subscription of the recipient.
    subscription: SubscriptionId,
    /// Reason that the delivery would fail with: `unrenderable` or `too_long`.
    reason: DeadReason,
    /// Fault, and its pointer in the template.
    #[serde(flatten)]
    fault: FieldError,
}

/// Renders a template for all recipients that a message would have, for up to ten seconds. Nothing is sent. If too many
/// searches run, the response is 503 (`searches_busy`).
#[utoipa::path(post, path = "/v1/apps/{app}/templates/check", tag = "Templates",
    responses((status = 200, body = TemplateCheck)))]
pub(crate) async fn check(
    Server { app, .. }: Server<MaySend>, State(state): State<ApiState>, Json(body, _): Json<TemplateCheckRequest>,
) -> Result<Answer<TemplateCheck>, Problem> {
    let TemplateCheckRequest { template, data, to } = body;
    let mut faults = Faults::default();
    let segment = to.segment(&state, &app).await?;
    let segment = check_segment(&to, segment, &mut faults);
    let audience = check_to(to, &app, &mut faults);
    faults.finish()?;
    let filter = segment.map(|segment| segment.filter());
    let audience = audience.expect("missing members were refused");
    let (of, compiled) = compile(&state, &app, template, data).await?;
    // No place among simulations: there are so few that a request waiting for one would be refused before a check is over.
    let _place = state.place_to_search(app.id).await?;
    let mut told = TemplateCheck::default();
    let (mut behind, until, now) = (Behind::NONE, Instant::now() + CHECK_WITHIN, state.clock.now());
    while !told.done {
        let page = async {
            let members = people::page(&state.pool, app.id, &audience, behind, PAGE, now).await?;
            let (is_last, last) = (members.len() < PAGE as usize, members.last().map(|member| member.behind));
            let members = match &filter {
                Some(filter) => people::taken_by(&state.pool, app.id, filter, members, now).await?,
                None => members,
            };
            Ok::<_, sqlx::Error>((members, is_last, last))
        };
        let Ok(page) = timeout_at(until, page).await else { break };
        let (members, is_last, last) = page?;
        if !told.try_on(&of, &compiled, members, || Instant::now() >= until).await {
            break;
        }
        behind = last.unwrap_or(behind);
        told.done = is_last;
    }
    Ok(Answer(told))
}

impl TemplateCheck {
    /// Renders a template for recipients one by one until the time is up. Returns whether all were checked.
    async fn try_on(
        &mut self, of: &ResolvedTemplate, compiled: &Compiled, members: Vec<Member>, is_over: impl Fn() -> bool,
    ) -> bool {
        for member in members {
            if is_over() {
                return false;
            }
            if self.checked % TRIED_AT_ONCE == TRIED_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let variant = compiled.variant_for(member.person.locale.as_deref());
            self.note(of, member.id, compiled.fill(variant, &member.person).err());
        }
        true
    }

    fn note(&mut self, of: &ResolvedTemplate, subscription: SubscriptionId, fault: Option<TemplateFault>) {
        self.checked += 1;
        let Some(fault) = fault else { return };
        let reason = match fault.kind {
            TemplateFaultKind::Unfit => {
                self.unrenderable += 1;
                DeadReason::Unrenderable
            }
            TemplateFaultKind::TooLong => {
                self.too_long += 1;
                DeadReason::TooLong
            }
        };
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(TrialFailure { subscription, reason, fault: of.complaint(&fault, "") });
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/templates/trials.rs"]
mod tests;
