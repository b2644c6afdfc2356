//! Shared state of handlers: the database, limits, and caches of this process.

pub(in crate::api) mod config;
pub(in crate::api) mod engine_handle;
pub(in crate::api) mod known_link_tags;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{PgPool, Postgres, Transaction};

use super::http::fair_semaphore::{Busy, Places, SharePermit};
use super::http::keyed_lock::Turns;
use super::http::known_apps::KnownApps;
use super::http::known_keys::KnownKeys;
use super::http::limits::RequestLimits;
use super::http::problem::{Problem, ProblemCode};
use super::http::remembered::Remembered;
use crate::api::messages::group_commit::Intake;
use crate::api::session::passwords::Passwords;
use crate::api::state::config::ApiConfig;
use crate::api::state::engine_handle::EngineHandle;
use crate::api::state::known_link_tags::KnownLinkTags;
use crate::checks;
use crate::live::Live;
use crate::receipts::Receipts;
use bellwire_core::clock::Clock;
use bellwire_core::id::AppId;
use bellwire_gateway::Gateways;
use bellwire_store::connections::primary::Primary;
use bellwire_store::connections::replica::Reads;
use bellwire_store::transactions;
use bellwire_telemetry::metrics::Metrics;
use bellwire_telemetry::otlp::Tracer;
use bellwire_vault::Vault;

/// Maximum concurrent imports and exports of one process.
const TRANSFERS_AT_ONCE: usize = 4;
const LINK_CHECKS_AT_ONCE: usize = 8;
/// Time for which the result of `/readyz` is cached.
const READINESS_KEPT: Duration = Duration::from_secs(1);
/// Time for which results of network checks are cached.
const OUTSIDE_CHECKS_KEPT: Duration = Duration::from_secs(30);

/// Handle of the shared state. Cheap to clone.
#[derive(Clone)]
pub struct ApiState(Arc<ApiContext>);

/// Dependencies of the API.
pub struct ApiContext {
    pub pool: PgPool,
    /// Pool for reads that may be stale. Not for reads after own writes.
    pub reads: Reads,
    pub(crate) primary: Primary,
    pub vault: Vault,
    pub clock: Clock,
    pub gateways: Gateways,
    pub engine: EngineHandle,
    pub metrics: Arc<Metrics>,
    pub tracer: Tracer,
    pub settings: Arc<ApiConfig>,
    pub(super) limits: Arc<RequestLimits>,
    pub(super) intake: Intake,
    pub(super) turns: Turns,
    pub(super) receipts: Receipts,
    pub(super) live: Live,
    pub(super) charts: Places,
    /// Slots for policy simulations, each of which uses a CPU core.
    pub(super) simulations: Places,
    /// Slots for searches through subscriptions and deliveries, each of which uses a database connection.
    pub(super) searches: Places,
    /// Slots for imports and exports, which use a database connection until the end of the file.
    pub(super) transfers: Places,
    /// Slots for link checks, each of which uses a connection to an external server.
    pub(super) link_checks: Places,
    pub(super) known_keys: Arc<KnownKeys>,
    pub(super) passwords: Passwords,
    pub(super) known_apps: Arc<KnownApps>,
    /// Link parameters of recent messages.
    pub(super) known_link_tags: Arc<KnownLinkTags>,
    pub(super) schema_checked: Arc<tokio::sync::OnceCell<()>>,
    pub(super) readiness: Arc<Remembered<Result<(), Problem>>>,
    pub(super) outside: Arc<Remembered<Vec<checks::CheckResult>>>,
}

impl Deref for ApiState {
    type Target = ApiContext;

    fn deref(&self) -> &ApiContext {
        &self.0
    }
}

impl ApiState {
    pub(crate) async fn begin(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        transactions::begin(&self.pool).await
    }

    /// Creates the state. Messages are stored with `sending_pool`, whose connections allow only index plans.
    pub fn new(
        pool: PgPool, sending_pool: PgPool, vault: Vault, clock: Clock, gateways: Gateways, engine: EngineHandle,
        settings: ApiConfig,
    ) -> Self {
        let limits = Arc::new(RequestLimits::new(&settings));
        let intake =
            Intake::new(sending_pool, vault.clone(), clock.clone(), engine.clone(), settings.sends_waiting_max);
        let receipts = Receipts::new(pool.clone(), clock.clone(), settings.receipts);
        let live = Live::new(pool.clone(), clock.clone(), settings.live);
        let charts = Places::new(settings.charts_at_once);
        let simulations = Places::new(settings.simulations_at_once);
        let searches = Places::new(settings.searches_at_once);
        Self(Arc::new(ApiContext {
            reads: Reads::at(pool.clone()),
            primary: Primary::unwatched(),
            pool,
            vault,
            clock,
            gateways,
            engine,
            metrics: Metrics::new(),
            tracer: Tracer::off(),
            settings: Arc::new(settings),
            limits,
            intake,
            turns: Turns::default(),
            receipts,
            live,
            charts,
            simulations,
            searches,
            transfers: Places::new(TRANSFERS_AT_ONCE),
            link_checks: Places::new(LINK_CHECKS_AT_ONCE),
            known_keys: Arc::default(),
            passwords: Passwords::new(),
            known_apps: Arc::default(),
            known_link_tags: Arc::default(),
            schema_checked: Arc::default(),
            readiness: Arc::new(Remembered::new(READINESS_KEPT)),
            outside: Arc::new(Remembered::new(OUTSIDE_CHECKS_KEPT)),
        }))
    }

    /// Changes the shared state. Panics if other handles exist.
    pub fn set_up(&mut self, change: impl FnOnce(&mut ApiContext)) {
        change(Arc::get_mut(&mut self.0).expect("no other handle exists yet"));
    }

    /// Waits for a slot for an import or export. 503: too many run, in total or for this app.
    pub(super) async fn place_to_transfer(&self, app: AppId) -> Result<SharePermit, Problem> {
        const BUSY: Busy = Busy {
            code: ProblemCode::TransfersBusy,
            detail: "Too many imports and exports are in progress. Try again shortly.",
        };
        self.transfers.take(Some(app), self.settings.place_patience, &BUSY).await
    }

    /// Waits for a slot for a search. 503: too many run, in total or for this app.
    pub(super) async fn place_to_search(&self, app: AppId) -> Result<SharePermit, Problem> {
        const BUSY: Busy =
            Busy { code: ProblemCode::SearchesBusy, detail: "Too many searches are in progress. Try again shortly." };
        self.searches.take(Some(app), self.settings.place_patience, &BUSY).await
    }
}
