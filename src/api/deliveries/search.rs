//! `/v1/apps/{app}/deliveries`: search for deliveries by recipient or by message.

use axum::extract::State;
use axum::http::{Uri, header};
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{AttemptResponse, DeliveryStatus, standing};
use crate::api::ApiState;
use crate::api::http::auth::{MayRead, Server};
use crate::api::http::extract::{Query, UserId};
use crate::api::http::paging::{self, Page, Paging};
use crate::api::http::problem::Problem;
use crate::api::messages::content::titles;
use crate::api::messages::response::missing;
use bellwire_core::clock::{first_uuid_of, time_of};
use bellwire_core::delivery::{Ending, Tier};
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_core::lane::Gateway;
use bellwire_core::request_time;
use bellwire_store::keyset::Towards;
use bellwire_store::outcomes::search::{self, DeliveryCursor, FoundRow, PAIRS_MAX, SearchQuery, Whose};
use bellwire_store::queue::messages;

/// Filter of deliveries. It needs `user_id`, `subscription` or `message`; `message` can be combined with one of the others.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeliveryQuery {
    /// Rows per page, 1 to 250; 50 by default. A page may be shorter, or empty, without being the last.
    limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    iterator: Option<String>,
    /// User whose current subscriptions are searched: the newest 20, ended ones included.
    user_id: Option<String>,
    /// Subscription of the deliveries.
    subscription: Option<SubscriptionId>,
    /// Message of the deliveries.
    message: Option<MessageId>,
    /// State of the deliveries.
    #[param(inline)]
    state: Option<DeliveryStatus>,
    /// Tier of the messages.
    #[param(inline)]
    tier: Option<Tier>,
    /// Lane of the subscriptions.
    #[param(value_type = Option<i32>)]
    lane: Option<LaneId>,
    /// Earliest time of the message's creation, to the millisecond. Not together with `message`.
    #[serde(default, deserialize_with = "request_time::optional")]
    since: Option<DateTime<Utc>>,
    /// Time before which the message was created. Not together with `message`.
    #[serde(default, deserialize_with = "request_time::optional")]
    until: Option<DateTime<Utc>>,
}

/// A delivery in search results.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FoundDelivery {
    /// Message that the delivery belongs to.
    pub(in crate::api) message: MessageId,
    /// Title of the message, as in the list of messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// Time of the message's acceptance, or its scheduled time.
    accepted_at: DateTime<Utc>,
    /// Tier of the message.
    tier: Tier,
    /// Recipient of the delivery.
    pub(in crate::api) subscription: SubscriptionId,
    /// Current user of the subscription.
    user_id: Option<String>,
    /// Lane of the subscription. Null: the subscription was deleted.
    #[schema(value_type = Option<i32>)]
    lane: Option<LaneId>,
    /// Push service. Null: the subscription was deleted.
    gateway: Option<Gateway>,
    /// State of the delivery.
    state: DeliveryStatus,
    /// Time at which the next attempt is due. Null: ended, or the message is paused.
    due_at: Option<DateTime<Utc>>,
    /// Last attempt. Null: no attempt yet.
    last_attempt: Option<AttemptResponse>,
}

fn ending_of(row: &FoundRow) -> Option<Ending> {
    row.ending.map(|code| Ending::from_code(code).unwrap_or(Ending::Dead))
}

/// Returns the state of a delivery in search results.
pub(in crate::api) fn state_of(row: &FoundRow) -> DeliveryStatus {
    standing(row.held, row.retries, ending_of(row))
}

impl From<FoundRow> for FoundDelivery {
    fn from(row: FoundRow) -> Self {
        let (state, ending) = (state_of(&row), ending_of(&row));
        let last_attempt = row.attempt.zip(row.at).zip(ending).map(|((attempt, at), ending)| AttemptResponse {
            attempt,
            at,
            ending,
            status: row.status,
            took_ms: row.took_ms,
            reason: row.reason,
        });
        Self {
            message: row.message,
            title: None,
            accepted_at: row.accepted_at,
            tier: Tier::from_code(row.tier).expect("checked by the table"),
            subscription: row.subscription,
            user_id: row.user_id,
            lane: row.lane,
            gateway: row.gateway,
            state,
            due_at: row.due_at,
            last_attempt,
        }
    }
}

/// A page of search results.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FoundDeliveries {
    /// Deliveries, those of the newest messages first.
    #[serde(flatten)]
    page: Page<FoundDelivery>,
    /// Time that the search reached: matching deliveries older than the last row were searched for back to this time. Null on
    /// the last page.
    looked_back_to: Option<DateTime<Utc>>,
}

impl DeliveryQuery {
    /// Refuses filters that cannot be combined.
    fn check(&self) -> Result<(), Problem> {
        if self.user_id.is_none() && self.subscription.is_none() && self.message.is_none() {
            return Err(Problem::invalid_parameter("user_id", "is required, or `subscription`, or `message`"));
        }
        if self.user_id.is_some() && self.subscription.is_some() {
            return Err(Problem::invalid_parameter("subscription", "cannot be combined with `user_id`"));
        }
        if let Some(user) = &self.user_id {
            user.parse::<UserId>().map_err(|rule| Problem::invalid_parameter("user_id", rule))?;
        }
        let of_time = [("since", self.since), ("until", self.until)].into_iter().find(|(_, time)| time.is_some());
        match of_time.filter(|_| self.message.is_some()) {
            Some((name, _)) => Err(Problem::invalid_parameter(name, "cannot be combined with `message`")),
            None => Ok(()),
        }
    }

    /// Returns the position before the first row of the list.
    fn top(&self) -> DeliveryCursor {
        let until = self.until.map(|until| DeliveryCursor { message: first_uuid_of(until), subscription: Uuid::nil() });
        until.unwrap_or(DeliveryCursor::TOP)
    }

    /// Returns the direction of paging and the start position.
    fn from(&self) -> Result<(Towards, DeliveryCursor), Problem> {
        let Some(text) = &self.iterator else { return Ok((Towards::Older, self.top())) };
        place(text).ok_or_else(|| {
            Problem::invalid_parameter("iterator", "must be a value that an earlier page of this list returned")
        })
    }

    async fn whose(&self, state: &ApiState, app: AppId) -> Result<Whose, Problem> {
        let subscriptions = match (&self.user_id, self.subscription) {
            (Some(user), _) => Some(search::devices(state.reads.pool(), app, user).await?),
            (None, subscription) => subscription.map(|id| vec![id]),
        };
        if let Some(message) = self.message {
            messages::terms(&state.pool, app, message).await?.ok_or_else(|| missing(state, message))?;
        }
        Ok(match (self.message, subscriptions) {
            (Some(message), Some(subscriptions)) => Whose::Both(message, subscriptions),
            (Some(message), None) => Whose::Message(message),
            (None, subscriptions) => Whose::Subscriptions(subscriptions.unwrap_or_default()),
        })
    }

    fn wanted(&self, (towards, beyond): (Towards, DeliveryCursor), limit: u16) -> SearchQuery {
        let narrowed = self.state.is_some() || self.tier.is_some() || self.lane.is_some();
        SearchQuery {
            towards,
            beyond,
            below: self.top(),
            since: self.since.unwrap_or(DateTime::UNIX_EPOCH),
            tier: self.tier,
            lane: self.lane,
            waiting: self.state.is_some_and(DeliveryStatus::waits),
            // One more than the page, to see whether it is the last.
            recipients: if narrowed { PAIRS_MAX } else { usize::from(limit) + 1 },
        }
    }
}

fn place(iterator: &str) -> Option<(Towards, DeliveryCursor)> {
    let (towards, key) = paging::read(iterator, 32)?;
    let (message, subscription) = key.split_at_checked(16)?;
    let place =
        DeliveryCursor { message: Uuid::from_slice(message).ok()?, subscription: Uuid::from_slice(subscription).ok()? };
    Some((towards, place))
}

fn key(place: DeliveryCursor) -> Vec<u8> {
    [*place.message.as_bytes(), *place.subscription.as_bytes()].concat()
}

/// Returns the position just before `place`, so that a page in the opposite direction includes `place` itself.
fn just_before(place: DeliveryCursor, towards: Towards) -> DeliveryCursor {
    let subscription = paging::stepped_back(place.subscription, towards);
    DeliveryCursor { subscription, ..place }
}

/// Finds deliveries to a user or a subscription across messages, or of one message, filtered by state, tier, lane and time.
/// Recipients still behind a fan-out cursor are not found.
///
/// One request reads at most 2,000 deliveries, or that many messages that may have reached the recipient. `looked_back_to` is
/// the time that the search reached, and the next page continues there. If too many searches run, or too many of one app, the
/// response is 503 (`searches_busy`).
#[utoipa::path(get, path = "/v1/apps/{app}/deliveries", tag = "Messages",
    responses((status = 200, body = FoundDeliveries)))]
pub(crate) async fn find(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(query): Query<DeliveryQuery>,
) -> Result<Response, Problem> {
    let limit = Paging { limit: query.limit, iterator: None }.cut()?.limit;
    query.check()?;
    let (towards, beyond) = query.from()?;
    let (app, now) = (server.app.id, state.clock.now());
    let _place = state.place_to_search(app).await?;
    let whose = query.whose(&state, app).await?;
    let found = search::search(state.reads.pool(), app, &whose, &query.wanted((towards, beyond), limit), now).await?;
    let fits = |found: &FoundDelivery| query.state.is_none_or(|state| found.state == state);
    let mut data: Vec<FoundDelivery> = found.rows.into_iter().map(FoundDelivery::from).filter(fits).collect();
    let place_of = |row: &FoundDelivery| DeliveryCursor { message: row.message.0, subscription: row.subscription.0 };
    let mut further = found.next;
    if data.len() > usize::from(limit) {
        data.truncate(usize::from(limit));
        further = data.last().map(place_of);
    }
    let nearest = data.first().map_or_else(|| just_before(beyond, towards), place_of);
    let oldest = if towards == Towards::Older { further } else { Some(nearest) };
    let (iterator, prev_iterator) = paging::sides(towards, key(nearest), further.map(key), query.iterator.is_some());
    if towards == Towards::Newer {
        data.reverse();
    }
    let messages: Vec<MessageId> = data.iter().map(|row| row.message).collect();
    let titles = titles(state.reads.pool(), &state, &server, &messages).await?;
    data.iter_mut().for_each(|row| row.title = titles.get(&row.message).cloned());
    let link = paging::links(&uri, iterator.as_deref(), prev_iterator.as_deref());
    let page = Page { data, done: iterator.is_none(), iterator, prev_iterator, limit };
    let looked_back_to = oldest.and_then(|oldest| time_of(oldest.message));
    let mut response = axum::Json(FoundDeliveries { page, looked_back_to }).into_response();
    response.headers_mut().extend(link.map(|link| (header::LINK, link)));
    Ok(response)
}

#[cfg(test)]
#[path = "../../../tests/unit/api/deliveries_search.rs"]
mod tests;
