//! `/v1/apps/{app}/measurement`: settings of the measurement, and `/v1/apps/{app}/results`: the results of all campaigns.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Datelike as _, Months, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use super::ApiState;
use super::campaigns;
use super::campaigns::link_parameters::check_parameters;
use super::http::auth::{MayChangeSettings, MayRead, Server};
use super::http::draft::Draft;
use super::http::extract::Query;
use super::http::problem::{Faults, Problem};
use super::http::routes::routes;
use crate::results::{self, AppResult};
use bellwire_core::clock::Timestamp;
use bellwire_core::duration;
use bellwire_rules::campaign::measurement::{Attribution, LinkTags, MeasurementRule, TouchKind};
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::measurement::{self, periods};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show, change, delete)).routes(routes!(show_results))
}

/// Limits of the window in seconds: an hour and 30 days.
const WINDOW_S: std::ops::RangeInclusive<u64> = 3_600..=2_592_000;
const HOSTS_MAX: usize = 50;
/// Campaigns in the result of a quarter.
const CAMPAIGNS_MAX: i64 = 200;
const HOST_RULE: &str = "must be a host such as `shop.example`, or `*.shop.example` for its subdomains, without a port";

/// Settings by which an app measures its campaigns.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MeasurementSettings {
    /// Time in which conversions count, such as `7d`: after a receipt for the attribution, and after the last message of a campaign
    /// for its result. 1h to 30d. Null: nothing is measured.
    window: Option<String>,
    /// Receipt that begins the window.
    #[serde(default = "clicked")]
    after: TouchKind,
    /// Campaign that gets a conversion if the person was reached by several.
    #[serde(default = "last")]
    attribution: Attribution,
    /// Parameters that service workers add to clicked links. Null: links stay as they are.
    link_tags: Option<LinkTagSettings>,
}

/// Parameters that service workers add to clicked links.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LinkTags)]
pub(crate) struct LinkTagSettings {
    /// Hosts whose links get them, 1 to 50: `shop.example`, or `*.shop.example` for all its subdomains.
    #[schema(min_items = 1, max_items = 50)]
    hosts: Vec<String>,
    /// Values by name, at most 20: up to 200 characters, in which `{campaign}` is the campaign's slug, and `{variant}` the name of the
    /// variant. By default `utm_source=push`, `utm_medium=web-push`, `utm_campaign={campaign}` and `utm_content={variant}`.
    #[serde(default = "usual_parameters")]
    parameters: BTreeMap<String, String>,
}

fn clicked() -> TouchKind {
    TouchKind::Clicked
}

fn last() -> Attribution {
    Attribution::Last
}

fn usual_parameters() -> BTreeMap<String, String> {
    let usual = [
        ("utm_source", "push"),
        ("utm_medium", "web-push"),
        ("utm_campaign", "{campaign}"),
        ("utm_content", "{variant}"),
    ];
    usual.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

impl MeasurementSettings {
    fn new(rule: Option<MeasurementRule>) -> Self {
        let Some(MeasurementRule { window_s, after, attribution, link_tags }) = rule else {
            return Self { window: None, after: clicked(), attribution: last(), link_tags: None };
        };
        let seconds = window_s.and_then(|seconds| u64::try_from(seconds).ok());
        let link_tags = link_tags.map(|LinkTags { hosts, parameters }| LinkTagSettings { hosts, parameters });
        Self { window: seconds.map(|it| duration::written(Duration::from_secs(it))), after, attribution, link_tags }
    }

    /// Returns the checked rule, or adds all faults.
    fn check(self, faults: &mut Faults) -> MeasurementRule {
        let window = self.window.as_deref().map(|text| duration::parse(text).map(|it| it.as_secs()));
        let fits = window.is_none_or(|seconds| seconds.is_some_and(|seconds| WINDOW_S.contains(&seconds)));
        faults.require(fits, "/window", "must be a span from 1h to 30d, such as `7d`");
        let link_tags = self.link_tags.map(|tags| tags.check(faults));
        let window_s = window.flatten().and_then(|seconds| i64::try_from(seconds).ok());
        MeasurementRule { window_s, after: self.after, attribution: self.attribution, link_tags }
    }
}

impl LinkTagSettings {
    fn check(self, faults: &mut Faults) -> LinkTags {
        let fits = (1..=HOSTS_MAX).contains(&self.hosts.len());
        faults.require(fits, "/link_tags/hosts", "must be 1 to 50 hosts");
        for (place, host) in self.hosts.iter().enumerate().take(HOSTS_MAX) {
            faults.require(is_host(host), &format!("/link_tags/hosts/{place}"), HOST_RULE);
        }
        check_parameters("/link_tags/parameters", &self.parameters, faults);
        let hosts = self.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        LinkTags { hosts, parameters: self.parameters }
    }
}

fn is_host(text: &str) -> bool {
    let host = text.strip_prefix("*.").unwrap_or(text);
    let is_label =
        |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    host.len() <= 253 && host.split('.').all(is_label)
}

/// Returns how the app measures what its campaigns achieve.
#[utoipa::path(get, path = "/v1/apps/{app}/measurement", tag = "Apps", responses((status = 200, body = MeasurementSettings)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>,
) -> Result<axum::Json<MeasurementSettings>, Problem> {
    Ok(axum::Json(MeasurementSettings::new(measurement::rule(&state.pool, server.app.id).await?)))
}

/// Replaces the settings. Conversions and campaigns from now on follow them; those before are not measured again.
#[utoipa::path(put, path = "/v1/apps/{app}/measurement", tag = "Apps", request_body = MeasurementSettings,
    responses((status = 200, body = MeasurementSettings)))]
pub(crate) async fn change(
    server: Server<MayChangeSettings>, State(state): State<ApiState>,
    Draft(settings, mut faults, _): Draft<MeasurementSettings>,
) -> Result<axum::Json<MeasurementSettings>, Problem> {
    let rule = settings.check(&mut faults);
    faults.finish()?;
    write(&server, &state, Some(&rule)).await?;
    Ok(axum::Json(MeasurementSettings::new(Some(rule))))
}

/// Deletes the settings: conversions are no longer attributed to campaigns, and links stay as they are.
#[utoipa::path(delete, path = "/v1/apps/{app}/measurement", tag = "Apps", responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MayChangeSettings>, State(state): State<ApiState>,
) -> Result<StatusCode, Problem> {
    write(&server, &state, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn write(
    server: &Server<MayChangeSettings>, state: &ApiState, rule: Option<&MeasurementRule>,
) -> Result<(), Problem> {
    let app = server.app.id;
    let mut tx = state.begin().await?;
    measurement::set_rule(&mut *tx, app, rule).await?;
    let entry = server.did(AuditAction::AppChanged, app).with(json!({"measurement": rule}));
    entry.record(&mut tx, 1, state.clock.now()).await?;
    Ok(tx.commit().await?)
}

/// Quarter of a result.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ResultsQuery {
    /// Calendar quarter in UTC, such as `2026-Q4`. By default the present one.
    #[param(pattern = "^[0-9]{4}-Q[1-4]$")]
    quarter: Option<String>,
}

/// Returns what the app's campaigns with a control group caused together: those that began in a quarter.
#[utoipa::path(get, path = "/v1/apps/{app}/results", tag = "Campaigns", responses((status = 200, body = AppResult)))]
pub(crate) async fn show_results(
    server: Server<MayRead>, State(state): State<ApiState>, Query(ResultsQuery { quarter }): Query<ResultsQuery>,
) -> Result<axum::Json<AppResult>, Problem> {
    let now = state.clock.now();
    let quarter = quarter.unwrap_or_else(|| format!("{}-Q{}", now.year(), now.month0() / 3 + 1));
    let span = span_of(&quarter).ok_or_else(|| {
        Problem::invalid_parameter("quarter", "must be a year from 2000 to 2999 and a quarter, such as `2026-Q4`")
    })?;
    let mut all = Vec::new();
    for period in periods::with_control(&state.pool, server.app.id, span, CAMPAIGNS_MAX).await? {
        let plan = campaigns::plan_of(&state, &server.app, period.campaign).await?;
        all.push(results::read(&state.pool, &plan, &period, now).await?);
    }
    Ok(axum::Json(AppResult::sum(quarter, &all, now)))
}

/// Returns the first moment of a quarter, and of the next.
fn span_of(quarter: &str) -> Option<(Timestamp, Timestamp)> {
    let (year, number) = quarter.split_once("-Q")?;
    let year = year.parse::<i32>().ok().filter(|year| year_fits(*year))?;
    let number = number.parse::<u32>().ok().filter(|number| (1..=4).contains(number))?;
    let first = NaiveDate::from_ymd_opt(year, 3 * number - 2, 1)?;
    let at = |day: NaiveDate| Some(DateTime::<Utc>::from_naive_utc_and_offset(day.and_hms_opt(0, 0, 0)?, Utc));
    Some((at(first)?, at(first + Months::new(3))?))
}

fn year_fits(year: i32) -> bool {
    (2000..3000).contains(&year)
}
