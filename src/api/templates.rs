//! `/v1/apps/{app}/templates`: stored templates. [`crate::api::templates::trials`] renders them without sending.

pub(crate) mod templated;
pub(crate) mod trials;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::ApiState;
use super::http::auth::{MayRead, MaySteerMessages, Server};
use super::http::draft::Draft;
use super::http::extract::{PathId, Query, TemplateName};
use super::http::paging::{Page, Paging};
use super::http::problem::{FieldError, Problem, ProblemCode};
use super::http::routes::routes;
use crate::api::templates::templated::open;
use bellwire_core::locale::language_tag;
use bellwire_core::template::Template;
use bellwire_store::WriteOutcome;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::queue::templates::{self, ListedTemplate, Put, TEMPLATES_MAX};
use bellwire_template::Compiled;
use bellwire_vault::TEMPLATE;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show, put, delete))
}

/// Stored template.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TemplateResponse {
    /// Name of the template.
    name: String,
    /// Content of the template. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<Template>,
    /// Time of the creation.
    created_at: DateTime<Utc>,
    /// Time of the last change.
    changed_at: DateTime<Utc>,
    /// Languages that can match no recipient. Only in the response to setting the template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    warnings: Vec<FieldError>,
}

impl From<ListedTemplate> for TemplateResponse {
    fn from(row: ListedTemplate) -> Self {
        let (template, warnings) = (None, Vec::new());
        Self { name: row.name, template, created_at: row.created_at, changed_at: row.changed_at, warnings }
    }
}

/// Lists an app's templates without their content, the newest first.
#[utoipa::path(get, path = "/v1/apps/{app}/templates", tag = "Templates",
    responses((status = 200, body = Page<TemplateResponse>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = templates::list(&state.pool, server.app.id, cut.ask()).await?;
    Ok(cut.page(rows, |row| row.id, TemplateResponse::from).answer(&uri))
}

/// Returns a template.
#[utoipa::path(get, path = "/v1/apps/{app}/templates/{template}", tag = "Templates",
    responses((status = 200, body = TemplateResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(name): PathId<TemplateName>,
) -> Result<axum::Json<TemplateResponse>, Problem> {
    let row = templates::find(&state.pool, server.app.id, &name.0).await?;
    let row = row.ok_or_else(|| Problem::not_found("template"))?;
    let template = Some(open(&state, &row)?);
    let (created_at, changed_at, warnings) = (row.created_at, row.changed_at, Vec::new());
    Ok(axum::Json(TemplateResponse { name: row.name, template, created_at, changed_at, warnings }))
}

/// Creates or replaces a template. Messages sent before are unchanged: each has its own copy.
#[utoipa::path(put, path = "/v1/apps/{app}/templates/{template}", tag = "Templates", request_body = Template,
    responses((status = 201, body = TemplateResponse), (status = 200, body = TemplateResponse, description = "It was there before")))]
pub(crate) async fn put(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(TemplateName(name)): PathId<TemplateName>,
    Draft(template, mut faults, _): Draft<Template>,
) -> Result<Response, Problem> {
    for fault in Compiled::check(&template) {
        faults.refuse(fault.pointer, fault.detail);
    }
    faults.finish()?;
    let plain = zeroize::Zeroizing::new(serde_json::to_vec(&template).map_err(|_| Problem::internal())?);
    let (app, now) = (server.app.id, state.clock.now());
    let mut tx = state.begin().await?;
    let id = templates::lock(&mut tx, app, &name, state.clock.uuid()).await?;
    let sealed = state.vault.seal(TEMPLATE, id, &plain);
    let (status, row) = match templates::put(&mut tx, app, id, &name, &sealed, now).await? {
        Put::Made(row) => (StatusCode::CREATED, row),
        Put::Replaced(row) => (StatusCode::OK, row),
        Put::TooMany => {
            let detail = format!("An app may have at most {TEMPLATES_MAX} templates.");
            return Err(Problem::new(ProblemCode::TooManyTemplates, detail));
        }
        Put::Taken => {
            let detail = "Another request has just made a template of this name. Try again.";
            return Err(Problem::new(ProblemCode::TemplateExists, detail));
        }
    };
    server.did(AuditAction::TemplateSet, &name).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    let unmatched = template.locales.keys().filter(|locale| language_tag(locale).is_none());
    let rule = "can match no recipient: a language has 2 or 3 letters, such as `de`";
    let warnings = unmatched.map(|locale| FieldError::member(format!("/locales/{locale}"), rule)).collect();
    Ok((status, axum::Json(TemplateResponse { template: Some(template), warnings, ..row.into() })).into_response())
}

/// Deletes a template. Messages sent before are unchanged: each has its own copy.
#[utoipa::path(delete, path = "/v1/apps/{app}/templates/{template}", tag = "Templates", responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(TemplateName(name)): PathId<TemplateName>,
) -> Result<StatusCode, Problem> {
    let mut tx = state.begin().await?;
    if templates::remove(&mut tx, server.app.id, &name).await? == WriteOutcome::Unknown {
        return Err(Problem::not_found("template"));
    }
    server.did(AuditAction::TemplateRemoved, &name).record(&mut tx, 1, state.clock.now()).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
