//! `/v1/apps/{app}/segments`: stored expressions with their reach. [`crate::api::messages::compose`] applies segments to
//! messages.

use std::str::FromStr;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::ApiState;
use super::http::auth::{MayRead, MaySteerMessages, Server};
use super::http::draft::Draft;
use super::http::extract::{Json, PathId, PathParam, Query, is_plain_text};
use super::http::paging::{Page, Paging};
use super::http::problem::{FieldError, Problem, ProblemCode};
use super::http::routes::routes;
use bellwire_segment::{AudienceFilter, Expression};
use bellwire_store::WriteOutcome;
use bellwire_store::audience::reach::{self, AudienceReach};
use bellwire_store::audience::segment_filter;
use bellwire_store::audience::segments::{self, SEGMENTS_MAX, SegmentRow, Set};
use bellwire_store::keys::apps::App;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::keyset::key_of;
use utoipa_axum::router::OpenApiRouter;

const DESCRIPTION_MAX: usize = 500;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(preview)).routes(routes!(show, set, delete))
}

/// Name of a segment: 1 to 64 lower-case letters, digits and hyphens. It cannot be taken for an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentName(pub String);

const NAME_RULE: &str =
    "must be 1 to 64 small letters, digits or hyphens, and must not begin with a hyphen or be `preview`";

impl FromStr for SegmentName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=64).contains(&text.len())
            && !text.starts_with('-')
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && text != "preview"; // a route of its own
        if fits { Ok(Self(text.to_owned())) } else { Err(NAME_RULE) }
    }
}

impl PathParam for SegmentName {
    const NAME: &'static str = "segment";
}

/// Definition of a segment.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentRequest {
    /// Expression that selects its members, such as `plan = "pro" and last_seen < 30d`.
    expression: String,
    /// Purpose, at most 500 characters.
    description: Option<String>,
}

/// Segment to preview.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentPreviewRequest {
    /// Name of a segment, or an expression.
    segment: String,
    /// Whether to count instead of estimating. If counting takes longer than 20 seconds, the response is an estimate.
    #[serde(default)]
    exact: bool,
}

/// Preview of a segment.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SegmentPreview {
    /// The evaluated expression, with referenced segments expanded.
    expression: String,
    /// Number of members now.
    reach: AudienceReach,
    /// Warnings: topics and messages in the expression that the app does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FieldError>,
}

/// Segment of a request, by name or by expression.
#[derive(Debug)]
pub(crate) struct SegmentChoice {
    pub expression: Expression,
    /// Warnings for the author of the segment.
    pub warnings: Vec<String>,
}

impl SegmentChoice {
    /// Parses the segment of a request. The inner error describes its fault.
    pub(super) async fn read(state: &ApiState, app: &App, given: &str) -> Result<Result<Self, String>, Problem> {
        let text = match given.parse::<SegmentName>() {
            Ok(SegmentName(name)) => match segments::find(&state.pool, app.id, &name).await? {
                Some(segment) => segment.expression,
                None => return Ok(Err("is neither the name of a segment of this app nor an expression".to_owned())),
            },
            Err(_) => given.to_owned(),
        };
        match Expression::parse(&text) {
            Ok(expression) => Ok(Ok(Self { warnings: warnings(state, app, &expression).await?, expression })),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    pub(super) fn filter(&self) -> AudienceFilter {
        self.expression.clone().into()
    }
}

async fn warnings(state: &ApiState, app: &App, expression: &Expression) -> Result<Vec<String>, Problem> {
    let filter = AudienceFilter::from(expression.clone());
    let mut conn = state.pool.acquire().await?;
    let (topics, messages) = segment_filter::unknown_names(&mut conn, app.id, &filter).await?;
    let topics = topics.into_iter().map(|name| format!("refers to the topic {name:?}, which does not exist"));
    let messages =
        messages.into_iter().map(|name| format!("refers to the message {name:?}, which does not exist or was deleted"));
    Ok(topics.chain(messages).collect())
}

/// Lists segments, the newest first.
#[utoipa::path(get, path = "/v1/apps/{app}/segments", tag = "Segments",
    responses((status = 200, body = Page<SegmentRow>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = segments::list(&state.pool, server.app.id, None, cut.ask()).await?;
    Ok(cut.page(rows, |row| key_of(row.id), |row| row).answer(&uri))
}

/// Returns a segment. `GET …/subscriptions?segment=…` lists its members.
#[utoipa::path(get, path = "/v1/apps/{app}/segments/{segment}", tag = "Segments",
    responses((status = 200, body = SegmentRow)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(name): PathId<SegmentName>,
) -> Result<axum::Json<SegmentRow>, Problem> {
    find(&state, &server.app, &name).await.map(axum::Json)
}

async fn find(state: &ApiState, app: &App, name: &SegmentName) -> Result<SegmentRow, Problem> {
    let found = segments::find(&state.pool, app.id, &name.0).await?;
    found.ok_or_else(|| Problem::not_found("segment"))
}

/// Creates or replaces a segment. Messages keep the expression of the time when they were sent.
#[utoipa::path(put, path = "/v1/apps/{app}/segments/{segment}", tag = "Segments", request_body = SegmentRequest,
    responses((status = 200, body = SegmentRow), (status = 201, body = SegmentRow, description = "It is new")))]
pub(crate) async fn set(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(name): PathId<SegmentName>,
    Draft(body, mut faults, _): Draft<SegmentRequest>,
) -> Result<(StatusCode, axum::Json<SegmentRow>), Problem> {
    let expression = Expression::parse(&body.expression);
    let expression = expression.map_err(|error| faults.refuse("/expression", error.to_string())).ok();
    let description = body.description.as_deref().filter(|text| !text.is_empty());
    if description.is_some_and(|text| !is_plain_text(text, DESCRIPTION_MAX)) {
        faults.refuse("/description", format!("may have at most {DESCRIPTION_MAX} characters, no control characters"));
    }
    faults.finish()?;
    let text = expression.expect("what does not parse was refused").to_string();
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    let set = segments::set(&mut tx, server.app.id, &name.0, description, &text, now).await?;
    let status = match set {
        Set::Made => StatusCode::CREATED,
        Set::Changed => StatusCode::OK,
        Set::TooMany => {
            let detail = format!("An app may have at most {SEGMENTS_MAX} segments.");
            return Err(Problem::new(ProblemCode::TooManySegments, detail));
        }
    };
    let detail = json!({"expression": text});
    server.did(AuditAction::SegmentSet, &name.0).with(detail).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    Ok((status, axum::Json(find(&state, &server.app, &name).await?)))
}

/// Deletes a segment. Messages keep the expression of the time when they were sent.
#[utoipa::path(delete, path = "/v1/apps/{app}/segments/{segment}", tag = "Segments", responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(name): PathId<SegmentName>,
) -> Result<StatusCode, Problem> {
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    if segments::remove(&mut tx, server.app.id, &name.0).await? == WriteOutcome::Unknown {
        return Err(Problem::not_found("segment"));
    }
    server.did(AuditAction::SegmentRemoved, &name.0).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the number of members of a segment or expression. It is estimated from a sample within a second for an app of any
/// size, or counted. If too many searches run, the response is 503 (`searches_busy`).
#[utoipa::path(post, path = "/v1/apps/{app}/segments/preview", tag = "Segments",
    responses((status = 200, body = SegmentPreview)))]
pub(crate) async fn preview(
    server: Server<MayRead>, State(state): State<ApiState>, Json(body, _): Json<SegmentPreviewRequest>,
) -> Result<axum::Json<SegmentPreview>, Problem> {
    let chosen = SegmentChoice::read(&state, &server.app, &body.segment).await?;
    let chosen = chosen.map_err(|what| Problem::invalid_member("/segment", what))?;
    let _place = state.place_to_search(server.app.id).await?;
    let now = state.clock.now();
    let reach = reach::of_everyone(&state.pool, server.app.id, &chosen.filter(), body.exact, now).await?;
    let warnings = chosen.warnings.into_iter().map(|what| FieldError::member("/segment", what)).collect();
    Ok(axum::Json(SegmentPreview { expression: chosen.expression.to_string(), reach, warnings }))
}
