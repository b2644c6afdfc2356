//! `/v1/apps/{app}/campaigns`: plans from which the server creates messages.

mod breakdowns;
pub(crate) mod calendar;
mod dry_run;
pub(crate) mod entries;
mod export;
pub(super) mod link_parameters;
mod plan;
mod results;
mod runs;
mod story;
mod transitions;
mod trigger_trial;
mod view;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::http::auth::{MayRead, MaySend, MaySteerMessages, Server};
use super::http::draft::Draft;
use super::http::extract::{Json, PathId, PathParam, Query};
use super::http::idempotency::{Instead, Making, Once, first_response, idempotency_key};
use super::http::paging::{Page, Paging};
use super::http::problem::{Faults, Problem, ProblemCode};
use super::http::routes::routes;
use crate::api::messages::accept::accept_under;
use crate::api::messages::accepted::Accepted;
use crate::api::messages::compose::Composed;
use crate::api::messages::retry_headers::RetryHeaders;
use crate::api::templates::templated::Templates;
use bellwire_core::id::CampaignId;
use bellwire_rules::campaign::plan::Plan;
use bellwire_rules::campaign::schedule::When;
use bellwire_rules::campaign::state::CampaignState;
use bellwire_rules::campaign::trigger::Trigger;
use bellwire_store::campaigns::progress::CampaignLocaleReports;
use bellwire_store::campaigns::{self, CampaignRow, Changed, CreateCampaignResult, NewCampaign};
use bellwire_store::keys::apps::App;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::operations::retrying::retrying;
use bellwire_store::triggers;
use bellwire_vault::PLAN;
use breakdowns::CampaignGatewayReports;
pub(super) use export::plan_for_export;
use plan::{CampaignPlan, Followed, SLUG_RULE, StoredPlan, is_slug};
pub(super) use story::part_of;
use utoipa_axum::router::OpenApiRouter;
use view::{CampaignResponse, CampaignVariantResponse};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, replace, delete))
        .routes(routes!(show_plan))
        .routes(routes!(runs::list_runs))
        .routes(routes!(runs::show_run))
        .routes(routes!(results::list))
        .routes(routes!(show_locales))
        .routes(routes!(show_gateways))
        .routes(routes!(show_variants))
        .routes(routes!(dry_run::dry_run))
        .routes(routes!(transitions::start))
        .routes(routes!(transitions::pause))
        .routes(routes!(transitions::resume))
        .routes(routes!(transitions::cancel))
        .routes(routes!(transitions::withdraw))
        .routes(routes!(entries::list))
        .routes(routes!(clone))
        .routes(routes!(test))
}

const TEST: &str = "POST /v1/apps/{app}/campaigns/{campaign}/test";

/// Reference to a campaign in a request: id or slug.
#[derive(Debug, Clone)]
pub(crate) enum CampaignRef {
    Id(CampaignId),
    /// Slug of the campaign. A slug has no underscore, so it cannot be taken for an id.
    Slug(String),
}

impl CampaignRef {
    pub(crate) fn of(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Slug(text.to_owned()), Self::Id)
    }
}

impl std::str::FromStr for CampaignRef {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::of(text))
    }
}

impl PathParam for CampaignRef {
    const NAME: &'static str = "campaign";
}

/// Filter of campaigns, and size of a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Campaigns in this state only.
    #[param(inline)]
    state: Option<CampaignState>,
    /// Rows per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    iterator: Option<String>,
}

/// Lists campaigns, the newest first.
#[utoipa::path(get, path = "/v1/apps/{app}/campaigns", tag = "Campaigns",
    responses((status = 200, body = Page<CampaignResponse>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(query): Query<ListQuery>,
) -> Result<Response, Problem> {
    let cut = Paging { limit: query.limit, iterator: query.iterator }.cut()?;
    let rows = campaigns::list(&state.pool, server.app.id, query.state, cut.ask()).await?;
    let mut standings = view::standings(&state.pool, &rows).await?;
    let show = |row: CampaignRow| CampaignResponse::new(&server.app, &row).standing(standings.remove(&row.id));
    Ok(cut.page(rows, |row| row.id, show).answer(&uri))
}

/// Creates a campaign as a draft. The plan and its messages are checked as if they were sent now.
#[utoipa::path(post, path = "/v1/apps/{app}/campaigns", tag = "Campaigns", request_body = CampaignPlan,
    responses((status = 201, body = CampaignResponse)))]
pub(crate) async fn create(
    server: Server<MaySteerMessages>, State(state): State<ApiState>,
    Making(body, faults, pending): Making<CampaignPlan>,
) -> Result<Response, Instead> {
    let checked = check(&state, &server.app, &body, faults).await?;
    let once = pending.begin(&state).await?;
    make(&server, &state, once, StoredPlan { given: body, checked }).await
}

/// Checks a plan against its app: topics, segments and other objects that it refers to.
async fn check(state: &ApiState, app: &App, body: &CampaignPlan, faults: Faults) -> Result<Plan, Problem> {
    let followed = match &body.follows {
        Some(follow) => match find_any(state, app, &CampaignRef::of(&follow.campaign)).await? {
            Some(row) => Some(Followed { id: row.id, trigger: trigger(&open(state, &row)?.checked).cloned() }),
            None => None,
        },
        None => None,
    };
    body.check(state, app, followed.as_ref(), faults).await
}

/// Returns the trigger of a plan, if events determine when it sends.
fn trigger(plan: &Plan) -> Option<&Trigger> {
    if let When::Trigger(trigger) = &plan.when { Some(trigger) } else { None }
}

async fn make(
    server: &Server<MaySteerMessages>, state: &ApiState, mut once: Once, stored: StoredPlan,
) -> Result<Response, Instead> {
    let (app, now) = (&server.app, state.clock.now());
    let id = CampaignId(state.clock.uuid());
    let sealed = seal(state, id, &stored)?;
    let new = new_campaign(&stored, &sealed);
    match campaigns::create(once.conn(), app.id, id, &new, now).await? {
        CreateCampaignResult::Done => {}
        CreateCampaignResult::SlugTaken => return Err(slug_taken(new.slug).into()),
        CreateCampaignResult::TooMany => {
            let detail = format!("An app may have at most {} campaigns.", campaigns::CAMPAIGNS_MAX);
            return Err(Problem::new(ProblemCode::TooManyCampaigns, detail).into());
        }
    }
    triggers::set(once.conn(), app.id, id, trigger(&stored.checked)).await?;
    server.did(AuditAction::CampaignCreated, id).with(json!({"slug": new.slug})).record(once.conn(), 1, now).await?;
    let row = CampaignRow {
        id,
        slug: stored.given.slug.clone(),
        name: stored.given.name().to_owned(),
        tier: new.tier.code(),
        state: CampaignState::Draft,
        plan: Vec::new(),
        next_at: None,
        runs: 0,
        created_at: now,
        changed_at: now,
        started_at: None,
    };
    once.finish(state, StatusCode::CREATED, &CampaignResponse::new(app, &row)).await
}

fn seal(state: &ApiState, id: CampaignId, stored: &StoredPlan) -> Result<Vec<u8>, Problem> {
    let plain = zeroize::Zeroizing::new(serde_json::to_vec(stored).map_err(|_| Problem::internal())?);
    Ok(state.vault.seal(PLAN, id.0, &plain))
}

fn open(state: &ApiState, row: &CampaignRow) -> Result<StoredPlan, Problem> {
    export::open(state, row.id, &row.plan)
}

/// Decrypts the plan of a campaign.
pub(super) fn checked_plan(state: &ApiState, id: CampaignId, sealed: &[u8]) -> Result<Plan, Problem> {
    Ok(export::open(state, id, sealed)?.checked)
}

/// Returns the checked plan of a campaign.
pub(super) async fn plan_of(state: &ApiState, app: &App, id: CampaignId) -> Result<Plan, Problem> {
    let row = find(state, app, &CampaignRef::Id(id)).await?;
    Ok(open(state, &row)?.checked)
}

fn new_campaign<'a>(stored: &'a StoredPlan, sealed: &'a [u8]) -> NewCampaign<'a> {
    let tier = stored.checked.variants[0].body.tier;
    NewCampaign { slug: &stored.given.slug, name: stored.given.name(), tier, plan: sealed }
}

fn slug_taken(slug: &str) -> Problem {
    Problem::new(ProblemCode::CampaignExists, format!("The app already has a campaign with the slug {slug:?}."))
}

/// Returns a campaign with its progress.
#[utoipa::path(get, path = "/v1/apps/{app}/campaigns/{campaign}", tag = "Campaigns",
    responses((status = 200, body = CampaignResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
) -> Result<axum::Json<CampaignResponse>, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    view(&state, &server.app, &row).await
}

async fn view(state: &ApiState, app: &App, row: &CampaignRow) -> Result<axum::Json<CampaignResponse>, Problem> {
    let plan = open(state, row)?.checked;
    let progress = view::progress(&state.pool, row, &plan, state.clock.now()).await?;
    Ok(axum::Json(CampaignResponse::new(app, row).with(progress)))
}

async fn find_any(state: &ApiState, app: &App, named: &CampaignRef) -> Result<Option<CampaignRow>, Problem> {
    let (id, slug) = match named {
        CampaignRef::Id(id) => (Some(*id), None),
        CampaignRef::Slug(slug) => (None, Some(slug.as_str())),
    };
    Ok(campaigns::find(&state.pool, app.id, id, slug).await?)
}

async fn find(state: &ApiState, app: &App, named: &CampaignRef) -> Result<CampaignRow, Problem> {
    find_any(state, app, named).await?.ok_or_else(|| Problem::not_found("campaign"))
}

/// Returns the plan of a campaign as it was written.
#[utoipa::path(get, path = "/v1/apps/{app}/campaigns/{campaign}/plan", tag = "Campaigns",
    responses((status = 200, body = CampaignPlan)))]
pub(crate) async fn show_plan(
    server: Server<MaySend>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
) -> Result<axum::Json<CampaignPlan>, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    Ok(axum::Json(open(&state, &row)?.given))
}

/// Reports the results of a campaign by browser language. The server reads every delivery: that takes seconds for a million. If
/// too many searches run, the response is 503 (`searches_busy`).
#[utoipa::path(get, path = "/v1/apps/{app}/campaigns/{campaign}/locales", tag = "Campaigns",
    responses((status = 200, body = Page<CampaignLocaleReports>)))]
pub(crate) async fn show_locales(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
) -> Result<axum::Json<Page<CampaignLocaleReports>>, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    let _place = state.place_to_search(server.app.id).await?;
    Ok(axum::Json(breakdowns::locales(&state.pool, server.app.id, row.id).await?))
}

/// Reports the receipts of a campaign by push service. The server reads every receipt: that takes seconds for a million. If too
/// many searches run, the response is 503 (`searches_busy`).
#[utoipa::path(get, path = "/v1/apps/{app}/campaigns/{campaign}/gateways", tag = "Campaigns",
    responses((status = 200, body = Page<CampaignGatewayReports>)))]
pub(crate) async fn show_gateways(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
) -> Result<axum::Json<Page<CampaignGatewayReports>>, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    let _place = state.place_to_search(server.app.id).await?;
    Ok(axum::Json(breakdowns::gateways(&state.pool, server.app.id, row.id).await?))
}

/// Returns the results of a campaign by variant, summed over all runs.
#[utoipa::path(get, path = "/v1/apps/{app}/campaigns/{campaign}/variants", tag = "Campaigns",
    responses((status = 200, body = Page<CampaignVariantResponse>)))]
pub(crate) async fn show_variants(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
) -> Result<axum::Json<Page<CampaignVariantResponse>>, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    let progress = view::progress(&state.pool, &row, &open(&state, &row)?.checked, state.clock.now()).await?;
    Ok(axum::Json(Page::complete(progress.variants)))
}

/// Replaces the plan of a draft. 409 if the campaign was started: clone it instead.
#[utoipa::path(put, path = "/v1/apps/{app}/campaigns/{campaign}", tag = "Campaigns", request_body = CampaignPlan,
    responses((status = 200, body = CampaignResponse)))]
pub(crate) async fn replace(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
    Draft(body, faults, _): Draft<CampaignPlan>,
) -> Result<axum::Json<CampaignResponse>, Problem> {
    let (app, now) = (&server.app, state.clock.now());
    let row = find(&state, app, &campaign).await?;
    let checked = check(&state, app, &body, faults).await?;
    let stored = StoredPlan { given: body, checked };
    let sealed = seal(&state, row.id, &stored)?;
    let new = new_campaign(&stored, &sealed);
    let mut tx = state.begin().await?;
    match campaigns::change(&mut tx, row.id, &new, now).await? {
        Changed::Done => {}
        Changed::NoDraft => return Err(no_draft()),
        Changed::SlugTaken => return Err(slug_taken(new.slug)),
    }
    triggers::set(&mut tx, app.id, row.id, trigger(&stored.checked)).await?;
    server.did(AuditAction::CampaignChanged, row.id).with(json!({"slug": new.slug})).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    let row = find(&state, app, &CampaignRef::Id(row.id)).await?;
    view(&state, app, &row).await
}

fn no_draft() -> Problem {
    Problem::new(
        ProblemCode::CampaignStarted,
        "This campaign was started, so its plan can no longer change. Clone the campaign instead.",
    )
}

/// Deletes a draft or a finished campaign. Its messages stay. 409 while the campaign runs: cancel it first.
#[utoipa::path(delete, path = "/v1/apps/{app}/campaigns/{campaign}", tag = "Campaigns", responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
) -> Result<StatusCode, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    // What it cascades to may be in the hands of retention, in another order.
    let deleted = retrying(|| async {
        let mut tx = state.begin().await?;
        if !campaigns::delete(&mut tx, row.id).await? {
            return Ok(false);
        }
        let entry = server.did(AuditAction::CampaignDeleted, row.id).with(json!({"slug": row.slug}));
        entry.record(&mut tx, 1, state.clock.now()).await?;
        tx.commit().await.map(|()| true)
    });
    match deleted.await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::new(ProblemCode::CampaignUnderWay, "This campaign is running. Cancel it first.")),
    }
}

/// Request to clone a campaign.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CampaignClone {
    /// Slug of the new draft: 1 to 64 lower-case letters, digits or `-`.
    #[schema(min_length = 1, max_length = 64)]
    slug: String,
}

/// Creates a draft with the plan of another campaign.
#[utoipa::path(post, path = "/v1/apps/{app}/campaigns/{campaign}/clone", tag = "Campaigns",
    request_body = CampaignClone, responses((status = 201, body = CampaignResponse)))]
pub(crate) async fn clone(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
    Making(body, mut faults, pending): Making<CampaignClone>,
) -> Result<Response, Instead> {
    faults.require(is_slug(&body.slug), "/slug", SLUG_RULE);
    faults.finish()?;
    let row = find(&state, &server.app, &campaign).await?;
    let StoredPlan { mut given, checked } = open(&state, &row)?;
    given.slug = body.slug;
    given.name = Some(row.name.clone());
    let once = pending.begin(&state).await?;
    make(&server, &state, once, StoredPlan { given, checked }).await
}

/// Recipients of a test send.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CampaignTestSend {
    /// User ids, at most 1,000.
    #[schema(min_items = 1, max_items = 1000)]
    users: Vec<String>,
    /// Name of the variant. By default the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    variant: Option<String>,
}

/// Sends a campaign's message to the given users at once. It is a separate message, which is not counted in the campaign's
/// results.
#[utoipa::path(post, path = "/v1/apps/{app}/campaigns/{campaign}/test", tag = "Campaigns",
    responses((status = 202, body = Accepted)))]
pub(crate) async fn test(
    server: Server<MaySend>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>, headers: HeaderMap,
    Json(body, octets): Json<CampaignTestSend>,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers)?;
    let row = find(&state, &server.app, &campaign).await?;
    let keyed = |key| server.keyed_request(&state.vault, TEST, key, &[row.id.0.as_bytes(), &octets]);
    let request = key.map(keyed);
    let given = open(&state, &row)?.given;
    match compose_test(&state, &server.app, &given, body).await {
        Ok(composed) => accept_under(&state, &server.app, request, composed.sent_by(server.caller.counted_as())).await,
        Err(refused) => first_response(&state, request.as_ref(), refused).await.map(IntoResponse::into_response),
    }
}

async fn compose_test(
    state: &ApiState, app: &App, given: &CampaignPlan, body: CampaignTestSend,
) -> Result<Composed, Problem> {
    let message = given.message_to(json!({"users": body.users}), body.variant.as_deref());
    let mut message = message
        .ok_or_else(|| Problem::invalid_member("/variant", "names a variant that does not exist in this campaign"))?;
    let template = Templates::default().resolve(state, app.id, message.template.take()).await?;
    message.compose(state, app, &RetryHeaders::default(), None, template, Faults::default()).map_err(to_users)
}

/// Renames faults at the message's `to` to the request's `users`.
fn to_users(mut problem: Problem) -> Problem {
    for pointer in problem.errors.iter_mut().filter_map(|error| error.pointer.as_mut()) {
        if let Some(rest) = pointer.strip_prefix("/to/users") {
            *pointer = format!("/users{rest}");
        }
    }
    problem
}
