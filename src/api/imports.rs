//! `/v1/apps/{app}/imports`: bulk import of subscriptions. A file is imported as it arrives, within the memory of a few
//! thousand lines. The result is stored with its faults.

mod columns;
mod encoding;
mod entry;
mod run;
mod sample;
mod split;
mod values;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::http::auth::{MayChangeSubscribers, MayRead, Server};
use super::http::extract::{PathId, Query, Recheck};
use super::http::paging::{Page, Paging};
use super::http::problem::{Problem, ProblemCode};
use super::http::routes::routes;
use bellwire_core::id::ImportId;
use bellwire_store::audience::imports::{self, ImportPosition, ImportRow, LineFault};
use bellwire_store::keys::audit::AuditAction;
use columns::Columns;
use encoding::Transcoder;
use entry::RecordReader;
use run::{ImportSource, Incoming};
use sample::ImportSampleRow;
use split::ImportFormat;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(show, resume))
}

/// Import of a file of subscriptions, with its progress.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Import)]
pub(crate) struct ImportView {
    /// Id of the import.
    id: ImportId,
    /// Format of the file: `ndjson`, `csv` or `json`.
    format: String,
    /// Whether nothing is stored.
    dry_run: bool,
    /// Processed lines of the file, or elements of an array. An interrupted import resumes after these.
    lines: i64,
    /// New subscriptions. This count and the next ones may be ahead of `lines` until the end of the file.
    added: i64,
    /// Existing subscriptions that were updated from the file.
    known: i64,
    /// Skipped lines: subscriptions that the file marks as unsubscribed or that have ended here, and export lines of other
    /// types. Subscriptions that a Bellwire export marks as unsubscribed are stored as such.
    left_out: i64,
    /// Whether subscriptions that their push service reported as gone become active again.
    restore_pruned: bool,
    /// Part of `known`: subscriptions that became active again.
    restored: i64,
    /// Part of `left_out`: subscriptions that their push service reported as gone. `restore_pruned` reactivates them.
    pruned: i64,
    /// Lines with faults, which were not imported.
    refused: i64,
    /// Lines imported without an optional value that cannot be parsed.
    warned: i64,
    /// Unknown columns, at most 20.
    ignored: Vec<String>,
    /// First 1,000 faults. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    faults: Option<Vec<LineFault>>,
    /// First 1,000 optional values that were omitted. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<LineFault>>,
    /// First ten rows of a dry run with their columns. Only in its response.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    sample: Vec<ImportSampleRow>,
    /// Time of its start.
    created_at: DateTime<Utc>,
    /// Time of its last progress.
    changed_at: DateTime<Utc>,
    /// Time at which the end of the file was reached. Null: the import is running or interrupted, and can be resumed.
    finished_at: Option<DateTime<Utc>>,
}

impl From<ImportRow> for ImportView {
    fn from(row: ImportRow) -> Self {
        Self {
            id: row.id,
            format: row.format,
            dry_run: row.dry_run,
            lines: row.lines,
            added: row.added,
            known: row.known,
            left_out: row.left_out,
            restore_pruned: row.restore_pruned,
            restored: row.restored,
            pruned: row.pruned,
            refused: row.refused,
            warned: row.warned,
            ignored: row.ignored,
            faults: None,
            warnings: None,
            sample: Vec::new(),
            created_at: row.created_at,
            changed_at: row.changed_at,
            finished_at: row.finished_at,
        }
    }
}

/// Options for reading a file.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ImportQuery {
    /// Format. By default that of `Content-Type`.
    #[param(inline)]
    format: Option<ImportFormat>,
    /// Whether to check the file and report, without storing anything.
    #[serde(default)]
    dry_run: bool,
    /// Whether to reactivate subscriptions in the file that their push service reported as gone. Unsubscribed subscriptions
    /// stay unsubscribed.
    #[serde(default)]
    restore_pruned: bool,
    /// Mapping of the file's column names to fields, at most 100: `abo:endpoint,kunde:user_id`.
    map: Option<String>,
    /// Encoding of a file without byte-order mark, such as `windows-1252`. By default UTF-8.
    charset: Option<String>,
}

/// Options for resuming a file.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ResumeQuery {
    /// Line of the file at which the body begins, at most `lines` + 1. By default 1: the whole file, of which processed lines
    /// are skipped. A part of a CSV file must begin with the header line.
    #[param(minimum = 1)]
    from: Option<i64>,
    /// Same value as in the first request.
    map: Option<String>,
    /// Same value as in the first request.
    charset: Option<String>,
}

/// Lists an app's imports, the newest first; the last 100 are kept.
#[utoipa::path(get, path = "/v1/apps/{app}/imports", tag = "Subscriptions",
    responses((status = 200, body = Page<ImportView>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = imports::list(&state.pool, server.app.id, cut.ask()).await?;
    Ok(cut.page(rows, |row| row.id, ImportView::from).answer(&uri))
}

/// Returns the progress and faults of an import.
#[utoipa::path(get, path = "/v1/apps/{app}/imports/{import}", tag = "Subscriptions",
    responses((status = 200, body = ImportView)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(id): PathId<ImportId>,
) -> Result<axum::Json<ImportView>, Problem> {
    let row = imports::find(&state.pool, server.app.id, id).await?.ok_or_else(|| Problem::not_found("import"))?;
    view(&state, row).await
}

async fn view(state: &ApiState, row: ImportRow) -> Result<axum::Json<ImportView>, Problem> {
    let faults = Some(imports::faults(&state.pool, row.id, false).await?);
    let warnings = Some(imports::faults(&state.pool, row.id, true).await?);
    Ok(axum::Json(ImportView { faults, warnings, ..row.into() }))
}

/// Imports a file of subscriptions of any length, and responds after its end. Each line is registered as by `POST
/// …/subscriptions` with an API key, about a thousand in a transaction. The exception: unsubscribed and gone subscriptions stay
/// so (with `restore_pruned`, only unsubscribed ones). A line with a fault is reported and skipped. An optional value that
/// cannot be parsed is omitted and listed in `warnings`. A file of an unknown form is refused as a whole, on line 1. Importing
/// a file twice changes nothing.
///
/// After an interruption, `GET …/imports` shows the progress, and `POST …/imports/{import}` resumes there.
#[utoipa::path(post, path = "/v1/apps/{app}/imports", tag = "Subscriptions",
    request_body(content((serde_json::Value = "application/x-ndjson"), (String = "text/csv"), (Vec<serde_json::Value> = "application/json"))),
    responses((status = 201, body = ImportView)))]
pub(crate) async fn create(
    server: Server<MayChangeSubscribers>, State(state): State<ApiState>, Query(query): Query<ImportQuery>,
    request: Request,
) -> Result<(StatusCode, axum::Json<ImportView>), Problem> {
    let format = query.format.or_else(|| said_format(&request)).ok_or_else(|| {
        let detail =
            "Say by `format` or `Content-Type` what this is: application/x-ndjson, text/csv or application/json.";
        Problem::new(ProblemCode::UnsupportedMediaType, detail)
    })?;
    let reader = RecordReader::new(Columns::read(query.map.as_deref())?);
    let transcoder = Transcoder::new(query.charset.as_deref().or(said_charset(&request)))?;
    let _place = state.place_to_transfer(server.app.id).await?;
    let (id, now) = (ImportId(state.clock.uuid()), state.clock.now());
    let mut tx = state.begin().await?;
    imports::create(&mut tx, server.app.id, id, format.name(), (query.dry_run, query.restore_pruned), now).await?;
    let entry = server
        .did(AuditAction::ImportBegun, id)
        .with(json!({"dry_run": query.dry_run, "restore_pruned": query.restore_pruned}));
    entry.record(&mut tx, 1, now).await?;
    tx.commit().await?;
    let ImportQuery { dry_run, restore_pruned, .. } = query;
    let reached = ImportPosition::default();
    let incoming = Incoming { id, dry_run, restore_pruned, lines: 0, reached, from: 1, recheck: None };
    let done = take_in(&server, &state, (format, reader, transcoder), incoming, request).await?;
    Ok((StatusCode::CREATED, done))
}

/// Resumes an interrupted import, with the remaining lines or the whole file. Does nothing if the import is finished.
#[utoipa::path(post, path = "/v1/apps/{app}/imports/{import}", tag = "Subscriptions",
    request_body(content((serde_json::Value = "application/x-ndjson"), (String = "text/csv"), (Vec<serde_json::Value> = "application/json"))),
    responses((status = 200, body = ImportView)))]
pub(crate) async fn resume(
    server: Server<MayChangeSubscribers>, State(state): State<ApiState>, PathId(id): PathId<ImportId>,
    Query(query): Query<ResumeQuery>, request: Request,
) -> Result<axum::Json<ImportView>, Problem> {
    let row = imports::find(&state.pool, server.app.id, id).await?.ok_or_else(|| Problem::not_found("import"))?;
    let from = query.from.unwrap_or(1);
    if !(1..=row.lines.saturating_add(1)).contains(&from) {
        let detail = format!("must be 1 to {}, the line after those that are dealt with", row.lines + 1);
        return Err(Problem::invalid_parameter("from", detail));
    }
    if row.finished_at.is_some() {
        return view(&state, row).await;
    }
    let format = ImportFormat::from_name(&row.format).ok_or_else(Problem::internal)?;
    let reader = RecordReader::new(Columns::read(query.map.as_deref())?);
    let transcoder = Transcoder::new(query.charset.as_deref().or(said_charset(&request)))?;
    let _place = state.place_to_transfer(server.app.id).await?;
    let (dry_run, restore_pruned, lines, reached) = (row.dry_run, row.restore_pruned, row.lines, row.reached());
    let incoming = Incoming { id, dry_run, restore_pruned, lines, reached, from, recheck: None };
    take_in(&server, &state, (format, reader, transcoder), incoming, request).await
}

async fn take_in(
    server: &Server<MayChangeSubscribers>, state: &ApiState, how: (ImportFormat, RecordReader, Transcoder),
    incoming: Incoming, mut request: Request,
) -> Result<axum::Json<ImportView>, Problem> {
    let id = incoming.id;
    let incoming = Incoming { recheck: request.extensions_mut().remove::<Recheck>(), ..incoming };
    let body = request.into_body().into_data_stream();
    let done = async {
        let source = ImportSource::new(server, state, how, &incoming, body).await?;
        run::run(server, state, incoming, source).await
    };
    let sample = done.await.map_err(|problem| {
        let place = HeaderValue::try_from(format!("/v1/apps/{}/imports/{id}", server.app.slug));
        match place {
            Ok(place) => problem.with_header(header::LOCATION, place),
            Err(_) => problem,
        }
    })?;
    let row = imports::find(&state.pool, server.app.id, id).await?.ok_or_else(Problem::internal)?;
    let axum::Json(shown) = view(state, row).await?;
    Ok(axum::Json(ImportView { sample, ..shown }))
}

/// Returns the charset in `Content-Type`. `None` also for `utf-8`, which many clients add to any content.
fn said_charset(request: &Request) -> Option<&str> {
    let said = request.headers().get(header::CONTENT_TYPE)?.to_str().ok()?;
    let (_, charset) = said
        .split(';')
        .skip(1)
        .filter_map(|it| it.split_once('='))
        .find(|it| it.0.trim().eq_ignore_ascii_case("charset"))?;
    Some(charset.trim().trim_matches('"')).filter(|charset| !charset.eq_ignore_ascii_case("utf-8"))
}

/// Returns the format that `Content-Type` names.
fn said_format(request: &Request) -> Option<ImportFormat> {
    let said = request.headers().get(header::CONTENT_TYPE)?.to_str().ok()?;
    match said.split(';').next()?.trim().to_ascii_lowercase().as_str() {
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Some(ImportFormat::Ndjson),
        "text/csv" => Some(ImportFormat::Csv),
        "application/json" => Some(ImportFormat::Json),
        _ => None,
    }
}
