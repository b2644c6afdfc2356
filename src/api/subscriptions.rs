//! `/v1/apps/{app}/subscriptions`: browsers or servers register subscriptions, and the holder of a subscription's token manages
//! it.

pub(in crate::api) mod consent;
pub(in crate::api) mod diagnoses;
pub(crate) mod input;
pub(in crate::api) mod list;
pub(crate) mod partial_warnings;
pub(in crate::api) mod push_address;
pub(in crate::api) mod response;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::http::auth::{MayChangeSubscribers, MayRead, RegistrationCaller, read_token};
use super::http::cors::allowed_origin;
use super::http::draft::Draft;
use super::http::extract::{PathId, nullable};
use super::http::problem::{Faults, FieldError, Problem, ProblemCode};
use super::http::routes::routes;
use super::policies;
use super::users;
use super::{ApiState, Work};
use crate::api::identity::keys::check_user;
use crate::api::subscriptions::consent::NewConsent;
use crate::api::subscriptions::input::{Muted, SubscriptionInput, user_id, zone_warning};
use crate::api::subscriptions::partial_warnings::PartialWarning;
use crate::api::subscriptions::push_address::{CheckedHosts, PushSubscription, check_address};
use crate::api::subscriptions::response::{SubscriptionResponse, ended, shown, unknown, with_token};
use bellwire_core::id::{SubscriptionId, VapidKeyId};
use bellwire_core::permission::RefusedField;
use bellwire_rules::policy::{DeliveryPolicy, PolicyLevel};
use bellwire_store::audience::registration::{self, Registered, Registration};
use bellwire_store::audience::subscriptions::{self, Changed, Merge, Right};
use bellwire_store::keys::vapid_keys;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    let routes = OpenApiRouter::new().routes(routes!(list::list, register)).routes(routes!(show, change, unsubscribe));
    routes.routes(routes!(users::erase_subscription))
}

/// A subscription to register or refresh.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSubscription {
    /// Value of `PushSubscription.toJSON()`.
    subscription: PushSubscription,
    /// User id, chosen by the site. Null: no user. Absent: unchanged. From a browser, a user requires a `user_token`.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    user_id: Option<Option<Value>>,
    /// Proof by the site's backend that the browser belongs to `user_id`: a JWT, or the HMAC-SHA-256 of the user id.
    user_token: Option<String>,
    /// All tags, at most 50 of at most 64 characters. From a browser only if the app allows it.
    #[schema(value_type = Option<Vec<String>>)]
    tags: Option<Value>,
    /// All attributes: strings, numbers and booleans, at most 2,048 bytes of JSON. From a browser only if the app allows it.
    #[schema(value_type = Option<Object>)]
    attributes: Option<Value>,
    /// All topics, at most 50. A browser can join and leave only existing open topics; its other topics stay.
    #[schema(value_type = Option<Vec<String>>)]
    topics: Option<Value>,
    /// A language tag (BCP 47). Also read: POSIX names such as `de_AT.UTF-8`, and the first language of a list.
    #[schema(value_type = Option<String>)]
    locale: Option<Value>,
    /// IANA time zone. Offsets such as `+03:00` are also accepted, and stored as `Etc/GMT-3`.
    #[schema(value_type = Option<String>)]
    timezone: Option<Value>,
    /// Only transactional messages reach the subscription, as the person wishes. Null: all do. Absent: unchanged.
    #[serde(default, deserialize_with = "nullable")]
    muted: Option<Option<Muted>>,
    /// Time and source of the person's consent. If absent, a browser that is new or had unsubscribed consents by registering.
    /// Otherwise the consent does not change.
    #[schema(value_type = Option<NewConsent>)]
    consent: Option<Value>,
    /// VAPID key that the browser subscribed with. By default the active key.
    vapid_key_id: Option<VapidKeyId>,
    /// Subscription that this one replaces. The new subscription inherits its tags, attributes and topics, even if it was gone,
    /// and its waiting and future deliveries. A message to both is delivered once, to the new one. From a browser, user and
    /// user-specific deliveries are inherited only if `user_id` is the same user. With another user, tags, attributes and
    /// server-only topics are not inherited either. No push to the old endpoint starts later than a second after the response.
    replaces: Option<ReplacedSubscription>,
    /// Delivery policy of the subscription. Requires an API key with the scope `policies` in addition.
    #[schema(value_type = Option<DeliveryPolicy>)]
    policy: Option<Value>,
}

/// Subscription to replace.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplacedSubscription {
    /// Id of the subscription.
    id: SubscriptionId,
    /// Token of the subscription. Required from browsers, not from servers.
    token: Option<String>,
}

/// Changes of a subscription (RFC 7396): absent members stay, null removes a value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubscriptionChange {
    /// User id. A browser needs a `user_token` for any value except null.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    user_id: Option<Option<Value>>,
    /// Proof by the site's backend that the browser belongs to `user_id`.
    user_token: Option<String>,
    /// All tags. From a browser only if the app allows it.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Vec<String>>)]
    tags: Option<Option<Value>>,
    /// Attributes to set, or with null to remove. From a browser only if the app allows it.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Object>)]
    attributes: Option<Option<Value>>,
    /// All topics. A browser can join and leave only existing open topics; its other topics stay.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Vec<String>>)]
    topics: Option<Option<Value>>,
    /// BCP 47 language tag, in the forms accepted at registration.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    locale: Option<Option<Value>>,
    /// IANA time zone, in the forms accepted at registration.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    timezone: Option<Option<Value>>,
    /// Only transactional messages reach the subscription, as the person wishes. Null: all do.
    #[serde(default, deserialize_with = "nullable")]
    muted: Option<Option<Muted>>,
}

/// Registers a subscription, or refreshes a known one. A browser calls from one of the app's origins and needs no secret. A known
/// endpoint is refreshed only with the same keys, its token, or a server's key. 201: it is new. 200: it was known. Values that
/// browsers may not set in this app are left out, and listed in `refused`.
///
/// The same keys are not enough for a subscription with a user, because a former user of the browser may have them. It requires
/// its token or that user's `user_token`, else 409 `belongs_to_user`. With `"user_id": null`, or another user and their
/// `user_token`, it begins anew, without its former values. Stored keys have a rank: unproven; vouched for by a `user_token`, an
/// API key, an import or the subscription's token; confirmed by a receipt. Other keys of the same or a higher rank make a new
/// subscription with a new id (201). Those of a lower rank, and those for a person who unsubscribed, are refused with 409
/// `endpoint_taken`. The same ranks protect `expirationTime`.
#[utoipa::path(post, path = "/v1/apps/{app}/subscriptions", tag = "Subscriptions", request_body = NewSubscription, security(()),
    responses((status = 201, body = SubscriptionResponse), (status = 200, body = SubscriptionResponse)))]
pub(crate) async fn register(
    client: RegistrationCaller<MayChangeSubscribers>, State(state): State<ApiState>, headers: HeaderMap,
    Draft(body, mut faults, _): Draft<NewSubscription>,
) -> Result<Response, Problem> {
    if !client.server && allowed_origin(&headers, &client.app.origins).is_none() {
        return Err(Problem::forbidden(
            "Browsers must register from one of the app's origins. Servers must send an API key.",
        ));
    }
    let mut details = Faults::default();
    let user_id = user_id(body.user_id, &mut details);
    // The token of a user id that is left out proves nothing.
    let token = body.user_token.as_deref().filter(|_| details.is_empty());
    let user = user_id.as_ref().and_then(Option::as_deref);
    if says_user(&faults) {
        check_user(&state, &client.app, client.server, user, token).await.map_err(|refused| faults.with(refused))?;
    }
    let topics_named = texts_of(body.topics.as_ref());
    let said = SubscriptionInput {
        by: client.speaker(),
        user_id,
        tags: body.tags,
        attributes: body.attributes,
        topics: body.topics,
        locale: body.locale,
        timezone: body.timezone,
        muted: body.muted,
    };
    let wanted = said.check(Merge::Replace, state.clock.now(), &mut details);
    let consent = body.consent.and_then(|it| NewConsent::read(it, client.server, state.clock.now(), &mut details));
    let replaced_token = check_replaces(body.replaces.as_ref(), client.server, &mut faults);
    let vapid_key = match body.vapid_key_id {
        Some(id) => vapid_keys::find(&state.pool, client.app.id, id).await?.map(|key| key.id),
        None => Some(vapid_keys::active(&state.pool, client.app.id).await?.id),
    };
    faults.require(vapid_key.is_some(), "/vapid_key_id", "names a VAPID key that does not exist in this app");
    let (policy, mut warnings) =
        policies::of_new(PolicyLevel::Subscription, body.policy, &client.app, client.caller.as_ref(), &mut faults)?;
    warnings.extend(zone_warning(wanted.timezone.as_ref()));
    let noted = (&mut faults, &mut details);
    let address = check_address(&body.subscription, &client.app, &state, &mut CheckedHosts::default(), noted).await;
    faults.finish()?;
    let (address, vapid_key) = address.zip(vapid_key).expect("missing members were refused");
    let replaces = body.replaces.map(|replaced| {
        (replaced.id, if client.server { Right::Server } else { Right::Browser(replaced_token.as_ref()) })
    });
    let request = Registration {
        id: state.clock.uuid(),
        app: client.app.id,
        endpoint: &address.endpoint,
        keys: &address.keys,
        gateway: address.gateway,
        vapid_key,
        vapid_key_stated: body.vapid_key_id.is_some(),
        wanted: &wanted,
        expires_at: address.expires_at,
        right: client.right(),
        replaces,
        policy: policy.as_ref().map(|(policy, by)| (policy, *by)),
        created_at: None,
        consent: consent.as_ref(),
        unsubscribed_at: None,
    };
    let registered = registration::register(&state.pool, &state.vault, &request, state.clock.now()).await?;
    let refused = |refused| {
        [partial_warnings::tell(&client.app, &topics_named, refused), partial_warnings::unreadable(details)].concat()
    };
    answer_registered(&state, registered, warnings, refused)
}

/// Whether `user_id` and `user_token` are those of the request. Members with a schema fault were replaced by examples, which
/// prove nothing.
fn says_user(faults: &Faults) -> bool {
    faults.is_well_formed("/user_id") && faults.is_well_formed("/user_token")
}

/// Returns the strings of an array, or a single string.
fn texts_of(value: Option<&Value>) -> Vec<String> {
    let items =
        value.map(|value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)).unwrap_or_default();
    items.iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
}

/// Returns the token of the subscription to replace. A browser must give one.
fn check_replaces(replaces: Option<&ReplacedSubscription>, by_server: bool, faults: &mut Faults) -> Option<[u8; 32]> {
    let replaces = replaces?;
    let token = replaces.token.as_deref().map(read_token);
    faults.require(by_server || token.is_some(), "/replaces/token", "is missing");
    faults.require(!matches!(token, Some(None)), "/replaces/token", "is not a token that this server issued");
    token.flatten()
}

fn answer_registered(
    state: &ApiState, registered: Registered, warnings: Vec<FieldError>,
    tell: impl FnOnce(Vec<RefusedField>) -> Vec<PartialWarning>,
) -> Result<Response, Problem> {
    let (status, row, topics, refused) = match registered {
        Registered::New(row, topics, refused) => (StatusCode::CREATED, row, topics, refused),
        Registered::Known(row, topics, refused) => (StatusCode::OK, row, topics, refused),
        Registered::Taken => {
            let detail = "This endpoint is registered with other keys of a higher rank, or its person unsubscribed. Register it \
                          with the same keys, or let the browser subscribe anew, which gives another endpoint.";
            return Err(Problem::new(ProblemCode::EndpointTaken, detail));
        }
        Registered::BelongsToUser => {
            let detail = "This subscription belongs to a user. Refreshing it takes its token, that user's `user_token`, or an \
                          API key. With `\"user_id\": null` it is registered again without a user.";
            return Err(Problem::new(ProblemCode::BelongsToUser, detail));
        }
        Registered::OtherKey => {
            let detail = "This endpoint is registered under another VAPID key.";
            return Err(Problem::new(ProblemCode::VapidKeyDiffers, detail));
        }
        Registered::ReplacesUnknown => {
            return Err(Problem::invalid_member("/replaces", "is not a subscription that you may replace"));
        }
        Registered::TooManyTopics => return Err(Problem::too_many_topics()),
        Registered::TooLarge => return Err(attributes_too_large()),
    };
    let view = with_token(state, *row, topics).with_warnings(tell(refused), warnings);
    Ok((status, axum::Json(view)).into_response())
}

fn attributes_too_large() -> Problem {
    let max = subscriptions::ATTRIBUTES_MAX;
    Problem::invalid_member("/attributes", format!("would be more than {max} octets of JSON together"))
}

/// Returns a subscription. The id of a replaced subscription stays valid as an alias until retention deletes it. `replaced_by`
/// is the successor, to which sends, changes, topics, policies and deletion by this id apply.
#[utoipa::path(get, path = "/v1/apps/{app}/subscriptions/{subscription}", tag = "Subscriptions",
    responses((status = 200, body = SubscriptionResponse)))]
pub(crate) async fn show(
    client: RegistrationCaller<MayRead>, State(state): State<ApiState>, PathId(id): PathId<SubscriptionId>,
) -> Result<axum::Json<SubscriptionResponse>, Problem> {
    client.must_show_something()?;
    let found = subscriptions::find(&state.pool, client.app.id, id).await?;
    let found = found.filter(|(row, _)| client.right().covers(&state.vault, row)).ok_or_else(unknown)?;
    shown(&state, &client.app, vec![found]).await?.pop().map(axum::Json).ok_or_else(unknown)
}

/// Changes a subscription. The response to a browser has its new token: a change of `user_id`, also by a server, invalidates
/// the previous one. Values that browsers may not set in this app are omitted and listed in `refused`. So are malformed values
/// of a browser; a server gets 422. By the id of a replaced subscription, a server changes its successor, and a browser gets
/// 409.
#[utoipa::path(patch, path = "/v1/apps/{app}/subscriptions/{subscription}", tag = "Subscriptions", request_body = SubscriptionChange,
    responses((status = 200, body = SubscriptionResponse)))]
pub(crate) async fn change(
    client: RegistrationCaller<MayChangeSubscribers>, State(state): State<ApiState>,
    PathId(id): PathId<SubscriptionId>, Draft(body, mut faults, _): Draft<SubscriptionChange>,
) -> Result<axum::Json<SubscriptionResponse>, Problem> {
    client.must_show_something()?;
    // The person of a subscription is no detail: one who cannot be read must not be confused with the person before.
    let mut of_user = Faults::default();
    let user_id = user_id(body.user_id, &mut of_user);
    let token = body.user_token.as_deref().filter(|_| of_user.is_empty());
    for FieldError { pointer, detail, .. } in of_user.into_errors() {
        faults.refuse(pointer.unwrap_or_default(), detail);
    }
    let user = user_id.as_ref().and_then(Option::as_deref);
    if says_user(&faults) {
        check_user(&state, &client.app, client.server, user, token).await.map_err(|refused| faults.with(refused))?;
    }
    let no_attributes = body.attributes == Some(None);
    let topics_named = texts_of(body.topics.as_ref().and_then(Option::as_ref));
    let said = SubscriptionInput {
        by: client.speaker(),
        user_id,
        tags: body.tags.map(Option::unwrap_or_default),
        attributes: body.attributes.map(Option::unwrap_or_default),
        topics: body.topics.map(Option::unwrap_or_default),
        locale: body.locale.map(Option::unwrap_or_default),
        timezone: body.timezone.map(Option::unwrap_or_default),
        muted: body.muted,
    };
    let mut details = Faults::default();
    let merge = if no_attributes { Merge::Replace } else { Merge::Patch };
    let wanted = said.check(merge, state.clock.now(), if client.server { &mut faults } else { &mut details });
    faults.finish()?;
    let (app, now) = (client.app.id, state.clock.now());
    match subscriptions::change(&state.pool, &state.vault, app, id, client.right(), &wanted, now).await? {
        Changed::Done(row, topics, refused) => {
            let row = *row;
            let view = if client.server {
                SubscriptionResponse::new(row, topics, now)
            } else {
                with_token(&state, row, topics)
            };
            let refused =
                [partial_warnings::tell(&client.app, &topics_named, refused), partial_warnings::unreadable(details)]
                    .concat();
            Ok(axum::Json(view.with_warnings(refused, zone_warning(wanted.timezone.as_ref()).into_iter().collect())))
        }
        Changed::Unknown => Err(unknown()),
        Changed::Ended => Err(ended()),
        Changed::TooManyTopics => Err(Problem::too_many_topics()),
        Changed::TooLarge => Err(attributes_too_large()),
    }
}

/// Unsubscribes: waiting deliveries are cancelled, and no push starts later than a second after the response. Pushes in flight
/// complete. The id of a replaced subscription ends its successor, for a browser only if both have the same user.
#[utoipa::path(delete, path = "/v1/apps/{app}/subscriptions/{subscription}", tag = "Subscriptions",
    responses((status = 204)))]
pub(crate) async fn unsubscribe(
    client: RegistrationCaller<MayChangeSubscribers>, State(state): State<ApiState>, PathId(id): PathId<SubscriptionId>,
) -> Result<StatusCode, Problem> {
    client.must_show_something()?;
    let (app, now) = (client.app.id, state.clock.now());
    let stop = subscriptions::unsubscribe(&state.pool, &state.vault, app, id, client.right(), now).await?;
    (state.engine.tell)(Work::Stop(stop.ok_or_else(unknown)?));
    Ok(StatusCode::NO_CONTENT)
}
