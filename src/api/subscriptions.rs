//! `/v1/apps/{app}/subscriptions`: registered by browsers or servers, looked after by whoever holds their token.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::auth::{Client, MayChangeSubscribers, MayRead, Server, read_token, write_token};
use super::consent::{ConsentView, NewConsent};
use super::cors::allowed_origin;
use super::details::{Attributes, Said};
use super::extract::{At, Json, Query, nullable};
use super::identity_keys::check_user;
use super::paging::{Cut, Page, Paging};
use super::policies;
use super::problem::{Faults, FieldError, Problem};
use super::push_address::{Hosts, PushSubscription, check_address};
use super::refused::{self, RefusedView};
use super::segments::Chosen;
use super::users;
use super::{ApiState, Work};
use crate::model::id::{SubscriptionId, VapidKeyId};
use crate::model::lane::Gateway;
use crate::model::permission::Refused;
use crate::model::subscription::SubscriptionState;
use crate::store::audience::reach;
use crate::store::audience::registration::{self, Registered, Registration};
use crate::store::audience::subscriptions::{self, Changed, Filter, Listed, Merge, Right, SubscriptionRow};
use crate::store::keys::apps::App;
use crate::store::keys::vapid_keys;
use crate::store::keyset::Towards;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<ApiState> {
    let routes = OpenApiRouter::new().routes(routes!(list, register)).routes(routes!(show, change, unsubscribe));
    routes.routes(routes!(users::erase_subscription))
}

/// A subscription. Its endpoint and keys are secrets and never shown.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubscriptionView {
    /// Its id.
    #[schema(value_type = String)]
    id: SubscriptionId,
    /// Whether it is sent to, or how it ended.
    state: SubscriptionState,
    /// The push service behind its endpoint.
    gateway: Gateway,
    /// The VAPID key that it was made with.
    #[schema(value_type = String)]
    vapid_key_id: VapidKeyId,
    /// The user it belongs to; null: nobody in particular.
    user_id: Option<String>,
    /// Words to select it by.
    tags: Vec<String>,
    /// Values to select it by and to fill templates with.
    #[schema(value_type = Object)]
    attributes: Value,
    /// Topics that it is in.
    topics: Vec<String>,
    /// A language tag.
    locale: Option<String>,
    /// An IANA time zone.
    timezone: Option<String>,
    /// Messages accepted before this are not for it.
    since: DateTime<Utc>,
    /// The browser's `expirationTime`.
    expires_at: Option<DateTime<Utc>>,
    /// When its browser was last heard of, to the day.
    last_seen: DateTime<Utc>,
    /// When it was first registered.
    created_at: DateTime<Utc>,
    /// When it stopped being active.
    ended_at: Option<DateTime<Utc>>,
    /// When and where its person agreed to be sent something; null: not known.
    consent: Option<ConsentView>,
    /// What this request said and a browser may not say in this app: it was left out, and the rest holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<RefusedView>,
    /// What to know about the policy that this request set all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FieldError>,
    /// The browser's own right to change or delete it; only for whoever registers it, and for browsers that change it.
    /// Every change of `user_id` or keys, whoever makes it, ends the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl SubscriptionView {
    /// Shows a row.
    pub(crate) fn new(row: SubscriptionRow, topics: Vec<String>) -> Self {
        let consent = row.consent();
        Self {
            id: row.id,
            state: row.state,
            gateway: row.gateway,
            vapid_key_id: row.vapid_key,
            user_id: row.user_id,
            tags: row.tags,
            attributes: row.attributes,
            topics,
            locale: row.locale,
            timezone: row.timezone,
            since: row.since,
            expires_at: row.expires_at,
            last_seen: row.last_seen,
            created_at: row.created_at,
            ended_at: row.ended_at,
            consent: ConsentView::of(consent),
            refused: Vec::new(),
            warnings: Vec::new(),
            token: None,
        }
    }
}

/// A subscription to register or refresh.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSubscription {
    /// What `PushSubscription.toJSON()` gives.
    subscription: PushSubscription,
    /// The site's name for the person; null: nobody's. Left out, it stays as it is. From a browser, anybody but null takes a
    /// `user_token`.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    user_id: Option<Option<String>>,
    /// The word of the site's backend that it is `user_id`: a JWT, or the HMAC-SHA-256 of the user id.
    user_token: Option<String>,
    /// All tags, at most 50 of at most 64 characters. From a browser only if the app lets it.
    tags: Option<Vec<String>>,
    /// All attributes: strings, numbers and booleans, at most 2,048 octets of JSON. From a browser only if the app lets it.
    #[schema(value_type = Option<Object>)]
    attributes: Option<Attributes>,
    /// All topics, at most 50. From a browser: those that there are and that anyone may join; the others stay as they are.
    topics: Option<Vec<String>>,
    /// A language tag.
    locale: Option<String>,
    /// An IANA time zone.
    timezone: Option<String>,
    /// When and where its person agreed to be sent something. Left out: a browser that is new, or had unsubscribed, has agreed by
    /// registering; of any other it stays as it is.
    consent: Option<NewConsent>,
    /// The VAPID key that the subscription was made with; by default the active one.
    #[schema(value_type = Option<String>)]
    vapid_key_id: Option<VapidKeyId>,
    /// The subscription that this one takes the place of, with its tags, attributes and topics, also if it was gone, and
    /// everything that waits for it, or has still to reach it. A message that was for both reaches this one alone, once. From a browser, its user does not come along, nor what was addressed to them, unless
    /// `user_id` says so again; if that says another one, tags, attributes and the topics that only servers fill stay
    /// behind, too. No push to the old endpoint starts later than a second after the answer.
    replaces: Option<Replaced>,
    /// Its delivery policy. It takes an API key that has the scope `policies`, too.
    #[schema(value_type = Option<Object>)]
    policy: Option<Value>,
}

/// A subscription to be replaced.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replaced {
    /// Its id.
    #[schema(value_type = String)]
    id: SubscriptionId,
    /// Its token. Servers need none.
    token: Option<String>,
}

/// What to change of a subscription (RFC 7396): absent members stay, null removes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubscriptionChange {
    /// The user it belongs to. From a browser, anything but null takes a `user_token`.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    user_id: Option<Option<String>>,
    /// The word of the site's backend that it is `user_id`.
    user_token: Option<String>,
    /// All tags. From a browser only if the app lets it.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Vec<String>>)]
    tags: Option<Option<Vec<String>>>,
    /// Attributes to set, or with null to remove. From a browser only if the app lets it.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Object>)]
    attributes: Option<Option<Attributes>>,
    /// All topics. From a browser: those that there are and that anyone may join; the others stay as they are.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Vec<String>>)]
    topics: Option<Option<Vec<String>>>,
    /// A language tag.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    locale: Option<Option<String>>,
    /// An IANA time zone.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    timezone: Option<Option<String>>,
}

/// What a list of subscriptions is narrowed to.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SubscriptionQuery {
    /// Rows per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    iterator: Option<String>,
    /// Only those of this user.
    user_id: Option<String>,
    /// The topic they are in.
    topic: Option<String>,
    /// A tag they carry.
    tag: Option<String>,
    /// Their state.
    #[param(inline)]
    state: Option<SubscriptionState>,
    /// Their push service.
    #[param(inline)]
    gateway: Option<Gateway>,
    /// Only those active ones who belong to this segment, a name or an expression. It stands alone. A page may end early:
    /// `done` says whether there may be more.
    segment: Option<String>,
}

/// Registers a subscription, or refreshes a known one. A browser calls from one of the app's origins and needs no
/// secret; a known endpoint is refreshed only with the same keys, its token, or a server's key. 201: it is new. 200:
/// it was known. What browsers may not say in this app is left out, and told in `refused`.
///
/// The same keys are not enough for a subscription that belongs to a user: whoever has them may have used the browser
/// before. It takes its token or that user's `user_token`, else 409 `belongs_to_user`; with `"user_id": null`, or another
/// user and their `user_token`, it begins anew, without anything that it was. Other keys take the place of those stored as
/// long as no receipt has shown that those are the browser's, and it begins anew, too; after that it is 409 `endpoint_taken`.
#[utoipa::path(post, path = "/v1/apps/{app}/subscriptions", tag = "Subscriptions",
    params(("app" = String, Path, description = "Id or slug")), request_body = NewSubscription,
    security((), ("browser_token" = []), ("api_key" = ["subscribers"])),
    responses((status = 201, body = SubscriptionView), (status = 200, body = SubscriptionView)))]
pub(crate) async fn register(
    client: Client<MayChangeSubscribers>,
    State(state): State<ApiState>,
    headers: HeaderMap,
    Json(body, _): Json<NewSubscription>,
) -> Result<Response, Problem> {
    if !client.server && allowed_origin(&headers, &client.app.origins).is_none() {
        return Err(Problem::forbidden("Browsers register from one of the app's origins. Servers show an API key."));
    }
    let user = body.user_id.as_ref().and_then(Option::as_deref);
    check_user(&state, &client.app, client.server, user, body.user_token.as_deref()).await?;
    let mut faults = Faults::default();
    let topics_named = body.topics.clone().unwrap_or_default();
    let said = Said {
        by: client.speaker(),
        user_id: body.user_id,
        tags: body.tags,
        attributes: body.attributes,
        topics: body.topics,
        locale: body.locale.map(Some),
        timezone: body.timezone.map(Some),
    };
    let wanted = said.check(Merge::Replace, &mut faults);
    let consent = body.consent.map(|consent| consent.check(client.server, state.clock.now(), &mut faults));
    let replaced_token = check_replaces(body.replaces.as_ref(), client.server, &mut faults);
    let vapid_key = match body.vapid_key_id {
        Some(id) => vapid_keys::find(&state.pool, client.app.id, id).await?.map(|key| key.id),
        None => Some(vapid_keys::active(&state.pool, client.app.id).await?.id),
    };
    faults.require(vapid_key.is_some(), "/vapid_key_id", "is no key of this app");
    let (policy, warnings) =
        policies::of_new_subscription(body.policy, &client.app, client.caller.as_ref(), &mut faults)?;
    let address = check_address(&body.subscription, &client.app, &state, &mut Hosts::default(), &mut faults).await;
    faults.finish()?;
    let (address, vapid_key) = address.zip(vapid_key).expect("whatever is missing was refused");
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
    answer_registered(&state, registered, warnings, |refused| refused::tell(&client.app, &topics_named, refused))
}

/// The token of the subscription that is replaced, if one was shown: a browser has to.
fn check_replaces(replaces: Option<&Replaced>, by_server: bool, faults: &mut Faults) -> Option<[u8; 32]> {
    let replaces = replaces?;
    let token = replaces.token.as_deref().map(read_token);
    faults.require(by_server || token.is_some(), "/replaces/token", "is missing");
    faults.require(!matches!(token, Some(None)), "/replaces/token", "is not a token of ours");
    token.flatten()
}

fn answer_registered(
    state: &ApiState,
    registered: Registered,
    warnings: Vec<FieldError>,
    tell: impl FnOnce(Vec<Refused>) -> Vec<RefusedView>,
) -> Result<Response, Problem> {
    let (status, row, topics, refused) = match registered {
        Registered::New(row, topics, refused) => (StatusCode::CREATED, row, topics, refused),
        Registered::Known(row, topics, refused) => (StatusCode::OK, row, topics, refused),
        Registered::Taken => {
            let detail = "This endpoint is registered. Refreshing it takes the same keys, its token, or an API key.";
            return Err(Problem::conflict("endpoint_taken", detail));
        }
        Registered::BelongsToUser => {
            let detail = "This subscription belongs to a user. Refreshing it takes its token, that user's `user_token`, or an \
                          API key. With `\"user_id\": null` it begins anew, as nobody's.";
            return Err(Problem::conflict("belongs_to_user", detail));
        }
        Registered::OtherKey => {
            let detail = "This endpoint is registered under another VAPID key.";
            return Err(Problem::conflict("vapid_key_differs", detail));
        }
        Registered::ReplacesUnknown => {
            return Err(Problem::invalid_member("/replaces", "is no subscription that you may replace"));
        }
        Registered::TooManyTopics => return Err(Problem::too_many_topics()),
        Registered::TooLarge => return Err(attributes_too_large()),
    };
    let view = SubscriptionView { refused: tell(refused), warnings, ..with_token(state, *row, topics) };
    Ok((status, axum::Json(view)).into_response())
}

/// Shows a row to its browser, or to whoever registered it.
fn with_token(state: &ApiState, row: SubscriptionRow, topics: Vec<String>) -> SubscriptionView {
    let token = write_token(&subscriptions::token(&state.vault, row.id, row.token_version));
    SubscriptionView { token: Some(token), ..SubscriptionView::new(row, topics) }
}

fn attributes_too_large() -> Problem {
    let max = subscriptions::ATTRIBUTES_MAX;
    Problem::invalid_member("/attributes", format!("would be more than {max} octets of JSON together"))
}

/// 404: not there, or not for whoever asks.
pub(super) fn unknown() -> Problem {
    Problem::not_found("subscription")
}

/// 409: it has ended.
pub(super) fn ended() -> Problem {
    Problem::conflict("subscription_ended", "The subscription has ended. Registering it again brings it back.")
}

/// Shows a subscription.
#[utoipa::path(get, path = "/v1/apps/{app}/subscriptions/{subscription}", tag = "Subscriptions",
    params(("app" = String, Path, description = "Id or slug"), ("subscription" = String, Path)),
    security(("browser_token" = []), ("api_key" = ["read"])), responses((status = 200, body = SubscriptionView)))]
pub(crate) async fn show(
    client: Client<MayRead>,
    State(state): State<ApiState>,
    At(id): At<SubscriptionId>,
) -> Result<axum::Json<SubscriptionView>, Problem> {
    client.must_show_something()?;
    let found = subscriptions::find(&state.pool, client.app.id, id).await?;
    let (row, topics) = found.filter(|(row, _)| client.right().covers(&state.vault, row)).ok_or_else(unknown)?;
    Ok(axum::Json(SubscriptionView::new(row, topics)))
}

/// Changes a subscription. Browsers find in the answer the token that holds from now on: a change of `user_id` ends the
/// one before, also if a server makes it. What browsers may not say in this app is left
/// out, and told in `refused`.
#[utoipa::path(patch, path = "/v1/apps/{app}/subscriptions/{subscription}", tag = "Subscriptions",
    params(("app" = String, Path, description = "Id or slug"), ("subscription" = String, Path)),
    request_body = SubscriptionChange, security(("browser_token" = []), ("api_key" = ["subscribers"])),
    responses((status = 200, body = SubscriptionView)))]
pub(crate) async fn change(
    client: Client<MayChangeSubscribers>,
    State(state): State<ApiState>,
    At(id): At<SubscriptionId>,
    Json(body, _): Json<SubscriptionChange>,
) -> Result<axum::Json<SubscriptionView>, Problem> {
    client.must_show_something()?;
    let user = body.user_id.as_ref().and_then(Option::as_deref);
    check_user(&state, &client.app, client.server, user, body.user_token.as_deref()).await?;
    let mut faults = Faults::default();
    let no_attributes = body.attributes == Some(None);
    let topics_named = body.topics.clone().flatten().unwrap_or_default();
    let said = Said {
        by: client.speaker(),
        user_id: body.user_id,
        tags: body.tags.map(Option::unwrap_or_default),
        attributes: body.attributes.map(Option::unwrap_or_default),
        topics: body.topics.map(Option::unwrap_or_default),
        locale: body.locale,
        timezone: body.timezone,
    };
    let wanted = said.check(if no_attributes { Merge::Replace } else { Merge::Patch }, &mut faults);
    faults.finish()?;
    let (app, now) = (client.app.id, state.clock.now());
    match subscriptions::change(&state.pool, &state.vault, app, id, client.right(), &wanted, now).await? {
        Changed::Done(row, topics, refused) => {
            let row = *row;
            let view = if client.server { SubscriptionView::new(row, topics) } else { with_token(&state, row, topics) };
            Ok(axum::Json(SubscriptionView { refused: refused::tell(&client.app, &topics_named, refused), ..view }))
        }
        Changed::Unknown => Err(unknown()),
        Changed::Ended => Err(ended()),
        Changed::TooManyTopics => Err(Problem::too_many_topics()),
        Changed::TooLarge => Err(attributes_too_large()),
    }
}

/// Unsubscribes: whatever waits for it is cancelled, and no push to it starts later than a second after the answer. What
/// is in flight by then ends as its push service answers.
#[utoipa::path(delete, path = "/v1/apps/{app}/subscriptions/{subscription}", tag = "Subscriptions",
    params(("app" = String, Path, description = "Id or slug"), ("subscription" = String, Path)),
    security(("browser_token" = []), ("api_key" = ["subscribers"])), responses((status = 204)))]
pub(crate) async fn unsubscribe(
    client: Client<MayChangeSubscribers>,
    State(state): State<ApiState>,
    At(id): At<SubscriptionId>,
) -> Result<StatusCode, Problem> {
    client.must_show_something()?;
    let (app, now) = (client.app.id, state.clock.now());
    let stop = subscriptions::unsubscribe(&state.pool, &state.vault, app, id, client.right(), now).await?;
    (state.engine.tell)(Work::Stop(stop.ok_or_else(unknown)?));
    Ok(StatusCode::NO_CONTENT)
}

/// Lists subscriptions, the newest first.
///
/// For one page of a list that is narrowed by topic, tag, state or push service, 20,000 subscriptions are looked at, at most: it
/// may hold fewer than were asked for, or none, and yet lead on by its `iterator`. Such lists, and those of a segment's members, are
/// searches, of which a few are made at a time: 503 (`searches_busy`).
#[utoipa::path(get, path = "/v1/apps/{app}/subscriptions", tag = "Subscriptions",
    params(("app" = String, Path, description = "Id or slug"), SubscriptionQuery),
    security(("api_key" = ["read"])), responses((status = 200, body = Page<SubscriptionView>)))]
pub(crate) async fn list(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    uri: Uri,
    Query(query): Query<SubscriptionQuery>,
) -> Result<Response, Problem> {
    let cut = Paging { limit: query.limit, iterator: query.iterator }.cut()?;
    let texts = [("user_id", &query.user_id), ("topic", &query.topic), ("tag", &query.tag)];
    if let Some((name, _)) = texts.into_iter().find(|(_, text)| text.as_ref().is_some_and(|text| text.contains('\0'))) {
        return Err(Problem::invalid_parameter(name, "must not hold NUL"));
    }
    if let Some(segment) = &query.segment {
        let others = [query.user_id.is_some(), query.topic.is_some(), query.tag.is_some(), query.state.is_some()];
        if others.contains(&true) || query.gateway.is_some() {
            return Err(Problem::invalid_parameter("segment", "cannot stand beside what else narrows the list"));
        }
        return Ok(members(&state, &server.app, segment, cut).await?.answer(&uri));
    }
    let filter = Filter {
        user_id: query.user_id,
        topic: query.topic,
        tag: query.tag,
        state: query.state,
        gateway: query.gateway,
    };
    let _place = match filter.takes_all() {
        true => None,
        false => Some(state.place_to_search(server.app.id).await?),
    };
    let Listed { rows, looked_to } = subscriptions::list(state.reads.pool(), server.app.id, &filter, cut.ask()).await?;
    let show = |(row, topics)| SubscriptionView::new(row, topics);
    Ok(cut.page_of_search(rows, looked_to.map(Into::into), |(row, _)| row.id, show).answer(&uri))
}

/// The newest of those who belong to a segment.
async fn members(state: &ApiState, app: &App, segment: &str, cut: Cut) -> Result<Page<SubscriptionView>, Problem> {
    let chosen = Chosen::read(state, app, segment).await?;
    let filter = chosen.map_err(|what| Problem::invalid_parameter("segment", what))?.filter();
    let _place = state.place_to_search(app.id).await?;
    let (ids, looked_to) = reach::members(state.reads.pool(), app.id, &filter, cut.ask(), state.clock.now()).await?;
    let mut rows = subscriptions::of_ids(state.reads.pool(), app.id, &ids).await?;
    // In the order in which they were found.
    if cut.towards == Towards::Newer {
        rows.reverse();
    }
    let show = |(row, topics)| SubscriptionView::new(row, topics);
    Ok(cut.page_of_search(rows, looked_to, |(row, _)| row.id, show))
}
