//! `/v1/apps/{app}/policies/preview` and `…/presets`: retry timetables of delivery policies. Nothing is sent.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use crate::api::ApiState;
use crate::api::http::auth::{MayRead, Server};
use crate::api::http::extract::{Json, Query, TOPIC_NAME_RULE, TopicName};
use crate::api::http::paging::Page;
use crate::api::http::problem::{Faults, FieldError, Problem};
use crate::api::http::routes::routes;
use crate::api::policies::{PolicyFault as _, check, restore, terms_of, written};
use crate::api::subscriptions::response::current;
use bellwire_core::delivery::Tier;
use bellwire_core::id::SubscriptionId;
use bellwire_core::openapi::TierSchema;
use bellwire_rules::policy::chart::{Curve, timetable_svg};
use bellwire_rules::policy::preview::{self, Timetable};
use bellwire_rules::policy::{
    self, DeliveryPolicy, Guide, Layer, Phased, Places, Policy, PolicyLevel, Preset, Retry, TierDefaults,
};
use bellwire_store::keys::apps::App;
use bellwire_store::queue::policies;
use utoipa_axum::router::OpenApiRouter;

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(presets)).routes(routes!(preview))
}

/// Hypothetical delivery whose retry timetable is requested.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyPreviewRequest {
    /// Policy to try, instead of the stored one at `level`.
    #[schema(value_type = Option<DeliveryPolicy>)]
    policy: Option<Value>,
    /// Level of `policy`. By default `message`.
    level: Option<PolicyLevel>,
    /// Tier of the message. By default `promotional`.
    #[schema(value_type = Option<TierSchema>)]
    tier: Option<Tier>,
    /// Topic of the message.
    topic: Option<String>,
    /// Recipient of the message.
    subscription: Option<SubscriptionId>,
}

/// Format of the response.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PreviewQuery {
    /// `json`, or `text` for a plain-text table.
    #[serde(default)]
    #[param(inline)]
    format: PreviewFormat,
}

/// Format of the response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum PreviewFormat {
    #[default]
    Json,
    Text,
    Svg,
}

/// Combined policy and its retry timetable.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PolicyPreviewResponse {
    /// Tier of the message.
    tier: Tier,
    /// Time to live in seconds of the tier, which limits the timetables. A message may have another one.
    ttl_s: u32,
    /// Combined policy, including defaults. Its members may come from several levels and forms.
    #[schema(value_type = DeliveryPolicy)]
    policy: Value,
    /// Level that set each member.
    set_by: PolicySources,
    /// Times of the retries after failures.
    timetable: Timetable,
    /// Times of the retries after throttling responses (429, and 406 from WNS). Null: the same as `timetable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    when_throttled: Option<Timetable>,
    /// Warnings about the policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FieldError>,
}

/// Level that set each member: `message`, `subscription`, `topic`, `tier`, or `default` if none did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PolicySources {
    /// Level that set the retries.
    retry: &'static str,
    /// Level that set the rate limit of one subscription.
    throttle: &'static str,
    /// Level that set the content type of raw payloads.
    request: &'static str,
}

/// A predefined policy that other policies refer to by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PolicyPreset {
    /// Name of the preset.
    name: &'static str,
    /// Policy that consists of this reference.
    #[schema(value_type = DeliveryPolicy)]
    policy: Value,
    /// Timetable of its retries.
    timetable: Timetable,
}

/// Policy of each level, with its warnings.
#[derive(Default)]
pub(in crate::api) struct PolicyLayers {
    message: Option<Layer>,
    subscription: Option<Layer>,
    topic: Option<Layer>,
    tier: Option<Layer>,
    /// Policy that the tried one replaces. `None`: no policy is tried.
    untried: Option<(PolicyLevel, Option<Layer>)>,
    pub(in crate::api) warnings: Vec<FieldError>,
}

impl PolicyLayers {
    /// Returns the policies of all levels, for their combination.
    pub(in crate::api) fn places(&self, server: policy::TierSettings) -> Places<'_> {
        let [message, subscription, topic, tier] =
            [&self.message, &self.subscription, &self.topic, &self.tier].map(Option::as_ref);
        Places { message, subscription, topic, tier, server }
    }

    /// Returns these levels without the tried policy. `None`: no policy is tried.
    pub(in crate::api) fn untried(mut self) -> Option<Self> {
        let (place, layer) = self.untried.take()?;
        *self.at(place) = layer;
        Some(self)
    }

    fn at(&mut self, place: PolicyLevel) -> &mut Option<Layer> {
        match place {
            PolicyLevel::Message => &mut self.message,
            PolicyLevel::Subscription => &mut self.subscription,
            PolicyLevel::Topic => &mut self.topic,
            PolicyLevel::Tier => &mut self.tier,
        }
    }

    fn stored(&mut self, app: &App, place: PolicyLevel, policy: Option<&Value>) {
        let (layer, warnings) = restore(app, place, policy);
        *self.at(place) = layer;
        self.warnings.extend(warnings);
    }
}

impl PolicyPreviewRequest {
    pub(in crate::api) fn tier(&self) -> Tier {
        self.tier.unwrap_or(Tier::Promotional)
    }

    /// Reads the stored policy of each level, and replaces one by the tried policy.
    pub(in crate::api) async fn gather(self, state: &ApiState, app: &App) -> Result<PolicyLayers, Problem> {
        let tier = self.tier();
        let (mut faults, mut said) = (Faults::default(), PolicyLayers::default());
        let place = self.level.unwrap_or(PolicyLevel::Message);
        faults.require(self.level.is_none() || self.policy.is_some(), "/level", "is allowed only with `policy`");
        let tried =
            self.policy.as_ref().map(|policy| (place, check(policy, &terms_of(app, place), "/policy", &mut faults)));
        said.stored(app, PolicyLevel::Tier, policies::tier(&state.pool, app.id, tier).await?.as_ref());
        match self.topic.map(|name| name.parse()) {
            None => {}
            Some(Err(_)) => faults.refuse("/topic", TOPIC_NAME_RULE),
            Some(Ok(TopicName(name))) => match policies::topic(&state.pool, app.id, &name).await? {
                // A policy is tried for a topic that is yet to come about.
                None if tried.is_none() || place != PolicyLevel::Topic => {
                    faults.refuse("/topic", "names a topic that does not exist in this app")
                }
                own => said.stored(app, PolicyLevel::Topic, own.and_then(|own| own.policy).as_ref()),
            },
        }
        if let Some(id) = self.subscription {
            let id = current(state, app, id).await?;
            match policies::subscription(&state.pool, app.id, id).await? {
                None => faults.refuse("/subscription", "names a subscription that does not exist in this app"),
                Some(own) => said.stored(app, PolicyLevel::Subscription, own.policy.as_ref()),
            }
        }
        faults.finish()?;
        if let Some((place, Some(parsed))) = tried {
            said.untried = Some((place, said.at(place).replace(parsed.layer)));
            said.warnings.extend(parsed.warnings.into_iter().map(|warning| warning.under("/policy")));
        }
        Ok(said)
    }
}

/// Returns the combined policy of a hypothetical delivery, and the times of its retries. Nothing is sent.
#[utoipa::path(post, path = "/v1/apps/{app}/policies/preview", tag = "Policies",
    responses((status = 200, content((PolicyPreviewResponse = "application/json"), (String = "text/plain"), (String = "image/svg+xml")))))]
pub(crate) async fn preview(
    Server { app, .. }: Server<MayRead>, State(state): State<ApiState>, Query(query): Query<PreviewQuery>,
    Json(body, _): Json<PolicyPreviewRequest>,
) -> Result<Response, Problem> {
    let tier = body.tier();
    let said = body.gather(&state, &app).await?;
    let places = said.places(state.settings.policy);
    let policy = Policy::in_force(tier, &places);
    let ttl_s = TierDefaults::of(tier).ttl_s;
    let timetable = preview::preview(&policy, Some(ttl_s));
    let throttled = policy.retry.when_throttled().map(|retry| Policy { retry, ..policy.clone() });
    let throttled = throttled.map(|policy| preview::preview(&policy, Some(ttl_s)));
    match query.format {
        PreviewFormat::Json => {}
        PreviewFormat::Text => {
            let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
            return Ok((plain, timetable.to_string()).into_response());
        }
        PreviewFormat::Svg => return Ok(drawn(tier, &timetable, throttled.as_ref())),
    }
    let set_by = places.set_by();
    let name = |place: Option<PolicyLevel>| place.map_or("default", PolicyLevel::name);
    Ok(Answer(PolicyPreviewResponse {
        tier,
        ttl_s,
        policy: written(&policy),
        set_by: PolicySources {
            retry: name(set_by.retry),
            throttle: name(set_by.throttle),
            request: name(set_by.request),
        },
        when_throttled: throttled,
        timetable,
        warnings: said.warnings,
    })
    .into_response())
}

fn drawn(tier: Tier, timetable: &Timetable, when_throttled: Option<&Timetable>) -> Response {
    let curve = Curve { name: tier.name(), table: timetable };
    let throttled = when_throttled.map(|table| Curve { name: "after a throttling answer", table });
    let curves: Vec<_> = std::iter::once(curve).chain(throttled).collect();
    // A browser that shows it as a page applies our policy to it, which lets no style through.
    let styled = (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'");
    let svg = [(header::CONTENT_TYPE, "image/svg+xml"), styled];
    (svg, timetable_svg("Delay before each retry", &curves)).into_response()
}

/// Lists the predefined policies with their retry timetables.
#[utoipa::path(get, path = "/v1/apps/{app}/policies/presets", tag = "Policies",
    responses((status = 200, body = Page<PolicyPreset>)))]
pub(crate) async fn presets(_: Server<MayRead>) -> Answer<Page<PolicyPreset>> {
    let view = |(name, retry)| {
        let timetable = preview::preview(&Policy { retry, ..Policy::tier_default(Tier::Promotional) }, None);
        PolicyPreset { name, policy: json!({ "preset": name }), timetable }
    };
    let fixed = Preset::ALL.into_iter().map(|preset| (preset.name(), Retry::Phased(Phased::preset(preset))));
    let all = fixed.chain([(Guide::PRESET, Retry::Guide(Guide::DEFAULT))]);
    Answer(Page::complete(all.map(view).collect()))
}
