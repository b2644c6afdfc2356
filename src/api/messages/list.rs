//! `GET /v1/apps/{app}/messages`: messages with their progress.

use std::collections::HashMap;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::api::ApiState;
use crate::api::http::auth::{MayRead, Server};
use crate::api::http::extract::{Query, TOPIC_NAME_RULE, TopicName};
use crate::api::http::paging::{Page, PageRequest, Paging};
use crate::api::http::problem::Problem;
use crate::api::messages::accepted::SendState;
use crate::api::messages::content::titles;
use crate::api::messages::response::{MessageProgress, MessageResponse};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, MessageId};
use bellwire_store::audience::topics;
use bellwire_store::keyset::Keyset;
use bellwire_store::queue::messages::{self, Ended, MessageRow};

/// Maximum number of messages read for one page of a filtered list.
const LOOKED_AT_MAX: usize = 5_000;
/// Messages read per statement for a filtered list.
const CHUNK: i64 = 500;

/// Filter of messages, and size of a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Messages in this state only.
    #[param(inline)]
    state: Option<SendState>,
    /// Messages of this tier only.
    #[param(inline)]
    tier: Option<Tier>,
    /// Messages to this topic only.
    topic: Option<String>,
    /// Rows per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    iterator: Option<String>,
}

impl ListQuery {
    fn takes_all(&self) -> bool {
        self.state.is_none() && self.tier.is_none()
    }

    fn takes(&self, row: &MessageRow, now: Timestamp) -> bool {
        self.state.is_none_or(|state| state == SendState::of(row, now))
            && self.tier.is_none_or(|tier| tier.code() == row.tier)
    }
}

/// Lists messages, the newest first. Scheduled messages, by their `send_at`, come before all others.
///
/// For one page of a list filtered by state or tier, at most 5,000 messages are read: the page may have fewer rows than
/// requested, or none, and still have an `iterator`. If too many such searches run, the response is 503 (`searches_busy`).
#[utoipa::path(get, path = "/v1/apps/{app}/messages", tag = "Messages",
    responses((status = 200, body = Page<MessageResponse>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(query): Query<ListQuery>,
) -> Result<Response, Problem> {
    let cut = Paging { limit: query.limit, iterator: query.iterator.clone() }.cut()?;
    let app = &server.app;
    let topic = match &query.topic {
        None => None,
        Some(name) => Some(find_topic(&state, app.id, name).await?),
    };
    let _place = match query.takes_all() {
        true => None,
        false => Some(state.place_to_search(app.id).await?),
    };
    let now = state.clock.now();
    let (rows, looked_to) = look(&state, app.id, topic, &query, cut).await?;
    let ids: Vec<MessageId> = rows.iter().map(|row| row.id).collect();
    let ended = messages::ended(state.reads.pool(), &ids).await?;
    let mut ended: HashMap<MessageId, Ended> = ended.into_iter().map(|it| (it.message, it)).collect();
    let mut titles = titles(state.reads.pool(), &state, &server, &ids).await?;
    let show = |row: MessageRow| {
        let (id, progress) = (row.id, MessageProgress::new(ended.remove(&row.id), row.enveloped));
        MessageResponse::new(app, row, now).listed(titles.remove(&id), progress)
    };
    Ok(cut.page_of_search(rows, looked_to, |row| row.id, show).answer(&uri))
}

async fn find_topic(state: &ApiState, app: AppId, name: &str) -> Result<i32, Problem> {
    let Ok(TopicName(name)) = name.parse() else { return Err(Problem::invalid_parameter("topic", TOPIC_NAME_RULE)) };
    let mut conn = state.reads.pool().acquire().await?;
    let found = topics::find(&mut conn, app, &name).await?;
    found.ok_or_else(|| Problem::invalid_parameter("topic", "names a topic that does not exist in this app"))
}

/// Returns the rows of a page and one more, if present. Also returns the last id that was read if the list continues.
async fn look(
    state: &ApiState, app: AppId, topic: Option<i32>, query: &ListQuery, cut: PageRequest,
) -> Result<(Vec<MessageRow>, Option<Uuid>), Problem> {
    let (page, now) = (cut.ask(), state.clock.now());
    let mut chunk = if query.takes_all() { page } else { Keyset { limit: CHUNK, ..page } };
    let (mut found, mut looked_at) = (Vec::new(), 0);
    loop {
        let rows = messages::list(state.reads.pool(), app, topic, chunk, now).await?;
        let is_end = (rows.len() as i64) < chunk.limit;
        looked_at += rows.len();
        chunk.beyond = rows.last().map_or(chunk.beyond, |row| row.id.0);
        found.extend(rows.into_iter().filter(|row| query.takes(row, now)));
        if found.len() as i64 >= page.limit || is_end {
            found.truncate(usize::from(cut.limit) + 1);
            return Ok((found, None));
        }
        if looked_at >= LOOKED_AT_MAX {
            return Ok((found, Some(chunk.beyond)));
        }
    }
}
