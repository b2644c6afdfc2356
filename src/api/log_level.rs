//! `/v1/log-level`: temporary log level of all processes, for operators.

use axum::extract::State;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::ApiState;
use super::http::auth::Operator;
use super::http::draft::Draft;
use super::http::problem::{Faults, Problem};
use super::http::routes::routes;
use bellwire_core::log_filter::LogFilter;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::operations::log_level::{self, LogLevelOverride};
use utoipa_axum::router::OpenApiRouter;

/// Allowed duration of a temporary level, in seconds.
const SECONDS: std::ops::RangeInclusive<i64> = 60..=86_400;
/// Default duration of a temporary level, in seconds.
const SECONDS_USUAL: i64 = 900;
const TARGET: &str = "log-level";

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show, set, delete))
}

/// Temporary log level, in addition to the level with which each process was started.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogLevelResponse {
    /// Levels of the modules. Null: only the level of the process start (`BELLWIRE_LOG`) applies.
    filter: Option<String>,
    /// Time at which the level was set.
    set_at: Option<DateTime<Utc>>,
    /// Time at which the level ends.
    until: Option<DateTime<Utc>>,
}

impl From<Option<LogLevelOverride>> for LogLevelResponse {
    fn from(wanted: Option<LogLevelOverride>) -> Self {
        match wanted {
            Some(LogLevelOverride { filter, set_at, until }) => {
                Self { filter: Some(filter), set_at: Some(set_at), until: Some(until) }
            }
            None => Self { filter: None, set_at: None, until: None },
        }
    }
}

/// Log level and its duration.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogLevelRequest {
    /// Level (`error`, `warn`, `info`, `debug`, `trace`) of all of Bellwire, or levels of modules separated by commas:
    /// `info,bellwire_dispatch=debug`. `sqlx=debug` logs statements without their values. Other libraries are refused.
    #[schema(example = "bellwire_dispatch=debug")]
    filter: String,
    /// Duration in seconds, 60 to 86,400. By default 900.
    seconds: Option<i64>,
}

impl LogLevelRequest {
    fn check(&self, now: DateTime<Utc>, mut faults: Faults) -> Result<LogLevelOverride, Problem> {
        let filter = LogFilter::parse(&self.filter);
        if let Err(wrong) = &filter {
            faults.refuse("/filter", wrong.to_string());
        }
        let seconds = self.seconds.unwrap_or(SECONDS_USUAL);
        let bounds = format!("must be {} to {}", SECONDS.start(), SECONDS.end());
        faults.require(SECONDS.contains(&seconds), "/seconds", &bounds);
        faults.finish()?;
        let filter = filter.map(|filter| filter.to_string()).unwrap_or_default();
        Ok(LogLevelOverride { filter, set_at: now, until: now + TimeDelta::seconds(seconds) })
    }
}

/// Returns the temporary log level.
#[utoipa::path(get, path = "/v1/log-level", tag = "Operations", responses((status = 200, body = LogLevelResponse)))]
pub(crate) async fn show(_: Operator, State(state): State<ApiState>) -> Result<axum::Json<LogLevelResponse>, Problem> {
    Ok(axum::Json(log_level::read(&state.pool, state.clock.now()).await?.into()))
}

/// Sets a temporary log level. All processes apply it within two seconds. At its end the level of the process start applies
/// again.
#[utoipa::path(put, path = "/v1/log-level", tag = "Operations", request_body = LogLevelRequest, responses((status = 200, body = LogLevelResponse)))]
pub(crate) async fn set(
    operator: Operator, State(state): State<ApiState>, Draft(body, faults, _): Draft<LogLevelRequest>,
) -> Result<axum::Json<LogLevelResponse>, Problem> {
    let now = state.clock.now();
    let wanted = body.check(now, faults)?;
    let mut tx = state.begin().await?;
    log_level::write(&mut tx, &wanted).await?;
    let entry = operator.caller.did(None, AuditAction::LogLevelSet, TARGET);
    entry.with(json!({"filter": wanted.filter, "until": wanted.until})).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    Ok(axum::Json(Some(wanted).into()))
}

/// Removes the temporary log level. All processes return to the level of their start within two seconds.
#[utoipa::path(delete, path = "/v1/log-level", tag = "Operations", responses((status = 200, body = LogLevelResponse)))]
pub(crate) async fn delete(
    operator: Operator, State(state): State<ApiState>,
) -> Result<axum::Json<LogLevelResponse>, Problem> {
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    if log_level::clear(&mut tx, now).await? {
        operator.caller.did(None, AuditAction::LogLevelReset, TARGET).record(&mut tx, 1, now).await?;
    }
    tx.commit().await?;
    Ok(axum::Json(None.into()))
}
