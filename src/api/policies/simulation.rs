//! `/v1/apps/{app}/policies/simulate`: simulates a delivery policy against a failing push service. Nothing is sent.
//!
//! A simulation costs only CPU time, so its size is limited, few run at a time, and none on the threads that handle requests.

use axum::Json as Answer;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use utoipa::{IntoParams, ToSchema};

use crate::api::ApiState;
use crate::api::http::auth::{MayRead, Server};
use crate::api::http::extract::{Json, Query};
use crate::api::http::fair_semaphore::Busy;
use crate::api::http::problem::{FieldError, Problem, ProblemCode};
use crate::api::http::routes::routes;
use crate::api::policies::preview::PolicyPreviewRequest;
use bellwire_core::delivery::Tier;
use bellwire_rules::policy::Policy;
use bellwire_simulator::policies::{self, BuiltInScenario, FaultPeriod, Scenario, SimulationReport, TooLong};
use utoipa_axum::router::OpenApiRouter;

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(simulate))
}

/// Default number of deliveries.
const DELIVERIES_DEFAULT: u32 = 10_000;
/// Maximum number of deliveries: a few tens of milliseconds of work.
const DELIVERIES_MAX: u32 = 20_000;
/// Minimum number of deliveries, below which percentages mean little.
const DELIVERIES_MIN: u32 = 100;
const LOAD_MAX: usize = 300;

const BUSY: Busy =
    Busy { code: ProblemCode::SimulationsBusy, detail: "Too many simulations are in progress. Try again shortly." };

/// Options of a simulation.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SimulationQuery {
    /// Simulated situation.
    #[param(inline)]
    scenario: BuiltInScenario,
    /// Number of deliveries, 100 to 20,000. By default 10,000. The capacity of the push service is scaled with the number.
    deliveries: Option<u32>,
    /// Random seed: the same seed gives the same figures. By default 1.
    seed: Option<u32>,
}

impl SimulationQuery {
    fn scenario(&self, tier: Tier) -> Result<Scenario, Problem> {
        let deliveries = self.deliveries.unwrap_or(DELIVERIES_DEFAULT);
        if !(DELIVERIES_MIN..=DELIVERIES_MAX).contains(&deliveries) {
            let rule = format!("must be {DELIVERIES_MIN} to {DELIVERIES_MAX}");
            return Err(Problem::invalid_parameter("deliveries", rule));
        }
        Ok(Scenario { tier, ..self.scenario.scenario() }.with_at_most(deliveries))
    }
}

/// Outage of the push service: no request succeeds.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Outage {
    /// Start, in seconds from the beginning of the simulation.
    from_s: f64,
    /// End, in seconds from the beginning of the simulation. Null: never.
    until_s: Option<f64>,
}

impl From<&FaultPeriod> for Outage {
    fn from(fault: &FaultPeriod) -> Self {
        Self { from_s: fault.from_s, until_s: Some(fault.until_s()).filter(|until_s| until_s.is_finite()) }
    }
}

/// Result of a simulation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Simulation {
    /// Simulated situation.
    scenario: BuiltInScenario,
    /// Tier of all deliveries.
    tier: Tier,
    /// Time to live in seconds of the tier.
    ttl_s: u32,
    /// Outages of the push service that affect all requests.
    outages: Vec<Outage>,
    /// Result with the tried policy.
    report: SimulationReport,
    /// Result with the current policy. Null: no policy is tried.
    today: Option<SimulationReport>,
    /// Warnings about the policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FieldError>,
}

/// Simulates a policy against a failing push service, and compares it with the current policy. Nothing is sent.
///
/// The rules, the breaker and the adaptive limit are the server's own, with a simulated clock and one lane. Encryption,
/// connections and the database cost no time. Each entry of the load is the busiest second of its interval. 422
/// (`simulation_too_long`): the policy makes too many retries for the time limit. `bellwire policy simulate` has no limit.
#[utoipa::path(post, path = "/v1/apps/{app}/policies/simulate", tag = "Policies",
    responses((status = 200, body = Simulation)))]
pub(crate) async fn simulate(
    Server { app, .. }: Server<MayRead>, State(state): State<ApiState>, Query(query): Query<SimulationQuery>,
    Json(body, _): Json<PolicyPreviewRequest>,
) -> Result<Answer<Simulation>, Problem> {
    let tier = body.tier();
    let scenario = query.scenario(tier)?;
    let mut said = body.gather(&state, &app).await?;
    let warnings = std::mem::take(&mut said.warnings);
    let policy = Policy::in_force(tier, &said.places(state.settings.policy));
    let today = said.untried().map(|said| Policy::in_force(tier, &said.places(state.settings.policy)));
    let (ttl_s, outages) = (scenario.ttl_s(), scenario.outages().map(Outage::from).collect());
    let place = state.simulations.take(Some(app.id), state.settings.place_patience, &BUSY).await?;
    let (seed, steps_max) = (query.seed.unwrap_or(1).into(), state.settings.simulation_steps_max);
    // The client may disconnect: the permit is released when the work has ended.
    let simulated = spawn_blocking(move || {
        let _place = place;
        let run = |policy: &Policy| policies::run(&scenario, policy, seed, steps_max);
        Ok::<_, TooLong>((run(&policy)?, today.as_ref().map(run).transpose()?))
    });
    let (report, today) = simulated.await.map_err(|_| Problem::internal())??;
    let (report, today) = (drawable(report), today.map(drawable));
    Ok(Answer(Simulation { scenario: query.scenario, tier, ttl_s, outages, report, today, warnings }))
}

/// Reduces the entries of the load to the resolution of a chart.
fn drawable(report: SimulationReport) -> SimulationReport {
    SimulationReport { load: report.load.in_at_most(LOAD_MAX), ..report }
}

impl From<TooLong> for Problem {
    fn from(too_long: TooLong) -> Self {
        Self::new(ProblemCode::SimulationTooLong, format!("The simulation {too_long}."))
    }
}
