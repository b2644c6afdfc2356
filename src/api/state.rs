//! Shared state of handlers: the database, limits, and caches of this process.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{PgPool, Postgres, Transaction};
use tokio::time::Instant;
use uuid::Uuid;

use super::fair_semaphore::{Busy, Places, SharePermit};
use super::group_commit::Intake;
use super::keyed_lock::Turns;
use super::known_keys::KnownKeys;
use super::limits::{RequestLimits, RequestRate};
use super::passwords::Passwords;
use super::problem::{Problem, ProblemCode};
use super::remembered::Remembered;
use super::session::cookie::Cookies;
use super::session::oidc;
use super::session::relying_party::RelyingParty;
use super::{batch, checks as api_checks, cors, example, health};
use crate::checks;
use crate::live::{self, Live};
use crate::receipts::{self as receipts_engine, Receipts};
use bellwire_core::clock::Clock;
use bellwire_core::id::AppId;
use bellwire_gateway::Gateways;
use bellwire_rules::policy;
use bellwire_rules::policy::lane_state::LaneState;
use bellwire_rules::policy::runaway::Guard;
use bellwire_store::connections::primary::Primary;
use bellwire_store::connections::replica::Reads;
use bellwire_store::outcomes::rollups::MetricsKept;
use bellwire_store::queue::flows::Flow;
use bellwire_store::queue::sending::Born;
use bellwire_store::queue::stops::Stop;
use bellwire_store::transactions;
use bellwire_telemetry::metrics::Metrics;
use bellwire_telemetry::otlp::Tracer;
use bellwire_vault::Vault;

/// Imports and exports that one process makes at a time.
const TRANSFERS_AT_ONCE: usize = 4;

/// A handle on what handlers share. Cheap to clone, as every request does several times.
#[derive(Clone)]
pub struct ApiState(Arc<ApiContext>);

/// Dependencies of the API.
pub struct ApiContext {
    pub pool: PgPool,
    /// Pool for reads that may lag, not for reads of own writes.
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
    /// Places for simulations of policies, each of which keeps a core busy.
    pub(super) simulations: Places,
    /// Places for searches through whom an app has and what it has sent, each of which keeps a connection to the database busy.
    pub(super) searches: Places,
    /// Places for imports and exports, which keep a connection to the database busy for as long as their files take.
    pub(super) transfers: Places,
    pub(super) known_keys: Arc<KnownKeys>,
    pub(super) passwords: Passwords,
    pub(super) known_apps: Arc<cors::KnownApps>,
    pub(super) schema_checked: Arc<tokio::sync::OnceCell<()>>,
    pub(super) readiness: Arc<Remembered<Result<(), Problem>>>,
    pub(super) outside: Arc<Remembered<Vec<checks::CheckResult>>>,
}

/// Work that the API passes to this process's dispatch.
#[derive(Debug)]
pub enum Work {
    /// A request may change what is sent: it ends the idle mode.
    Asked,
    /// Something became due: look.
    Due,
    /// Deliveries born leased to this process: send them.
    Born {
        /// Lease of the rows.
        lease: Uuid,
        /// Start of the lease.
        since: Instant,
        /// Rows under the lease.
        rows: Vec<Born>,
    },
    /// To be obeyed before the response goes out.
    Stop(Stop),
    /// Orders to lanes, to be applied before the response.
    Orders(Vec<LaneState>),
    /// Flow control from now on, to be applied before the response.
    Flow(Flow),
}

/// Connection to this process's dispatch. A process without one only writes to the database.
#[derive(Clone)]
pub struct EngineHandle {
    /// Passes work to dispatch.
    pub tell: Arc<dyn Fn(Work) + Send + Sync>,
    /// Returns a fresh lease for sends to single subscriptions, if dispatch has room in memory. [`Work::Born`] returns it, or it
    /// expires if the sends fail.
    pub lease: Arc<dyn Fn() -> Option<Uuid> + Send + Sync>,
}

impl EngineHandle {
    /// For processes without dispatch.
    pub fn none() -> Self {
        Self { tell: Arc::new(|_| {}), lease: Arc::new(|| None) }
    }
}

/// Limits of the API.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// Most octets of the body of a server's request.
    pub body_max_bytes: usize,
    /// Most octets of the body of a browser's request. Lists of receipts have a limit of their own.
    pub public_body_max_bytes: usize,
    /// Timeout of a request's body.
    pub body_timeout: Duration,
    /// Public requests of one client: an IPv4 address or an IPv6 /64. An IPv6 /48 may do 16 times as much, here and
    /// wherever clients are limited.
    pub per_client: RequestRate,
    /// Public requests of one app.
    pub per_app: RequestRate,
    /// Requests of one API key; each message of a batch counts as one.
    pub per_key: RequestRate,
    /// API keys that one client may show before they have proved to be valid.
    pub guesses_per_client: RequestRate,
    /// Requests with receipts of one client; everybody behind one address counts as one.
    pub receipts_per_client: RequestRate,
    /// Requests with receipts of one app.
    pub receipts_per_app: RequestRate,
    /// Messages to named recipients that wait to be written, at most: more are refused.
    pub sends_waiting_max: usize,
    /// Settings of gathering receipts.
    pub receipts: receipts_engine::ReceiptConfig,
    /// Limits of listeners of the event streams.
    pub live: live::LiveConfig,
    /// Charts of figures over time that are made at a time.
    pub charts_at_once: usize,
    /// Simulations of policies that are made at a time.
    pub simulations_at_once: usize,
    /// Steps of one simulation at most: a million take one to two seconds, and only policies of very many retries need more.
    pub simulation_steps_max: u64,
    /// Searches through deliveries, messages and dead letters that are made at a time: far fewer than connections to the database.
    pub searches_at_once: usize,
    /// Timeout of waiting for a slot. One app has at most half of the slots of each kind.
    pub place_patience: Duration,
    /// Timeout of a client for a part of an export. Afterwards it is disconnected, and its slot is free.
    pub part_timeout: Duration,
    /// Guard against apps that send far more than their size explains.
    pub guard: Guard,
    /// The example page; none: there is none.
    pub example: Option<example::Example>,
    /// Proxies between us and clients, each of which appends to `X-Forwarded-For`. 0: none, and the header is ignored.
    pub trusted_proxies: usize,
    /// The cookies of sessions.
    pub cookies: Cookies,
    /// Settings of the OpenID provider. `None`: no provider.
    pub oidc: Option<oidc::OidcSignInConfig>,
    /// Identity for passkeys. `None`: no passkeys.
    pub relying_party: Option<RelyingParty>,
    /// Retention of metrics over time.
    pub metrics_kept: MetricsKept,
    /// The figures that dispatch takes where a tier sets none.
    pub policy: policy::TierSettings,
    /// Objects of checks, except the database.
    pub setup: checks::Setup,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            body_max_bytes: 1024 * 1024, // a thousand of the longest user ids, and then some
            public_body_max_bytes: 16 * 1024,
            body_timeout: Duration::from_secs(30),
            per_client: RequestRate { burst: 60, per_minute: 120 },
            per_app: RequestRate { burst: 5_000, per_minute: 60_000 },
            per_key: RequestRate { burst: 40_000, per_minute: 1_200_000 },
            guesses_per_client: RequestRate { burst: 600, per_minute: 600 },
            receipts_per_client: RequestRate { burst: 2_000, per_minute: 12_000 },
            receipts_per_app: RequestRate { burst: 100_000, per_minute: 1_000_000 },
            sends_waiting_max: 8 * batch::MESSAGES_MAX,
            receipts: receipts_engine::ReceiptConfig::default(),
            live: live::LiveConfig::default(),
            charts_at_once: 4,
            simulations_at_once: 1,
            simulation_steps_max: 1_000_000,
            searches_at_once: 8,
            place_patience: Duration::from_secs(5),
            part_timeout: Duration::from_secs(60),
            guard: Guard::DEFAULT,
            example: Some(example::Example::default()),
            trusted_proxies: 0,
            cookies: Cookies { secure: false },
            oidc: None,
            relying_party: None,
            metrics_kept: MetricsKept::DEFAULT,
            policy: policy::TierSettings::DEFAULT,
            setup: checks::Setup::default(),
        }
    }
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

    /// Puts it together; rate limits and counts begin fresh. Sends go through `sending_pool`, whose connections plan by index
    /// only.
    pub fn new(
        pool: PgPool,
        sending_pool: PgPool,
        vault: Vault,
        clock: Clock,
        gateways: Gateways,
        engine: EngineHandle,
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
            known_keys: Arc::default(),
            passwords: Passwords::new(),
            known_apps: Arc::default(),
            schema_checked: Arc::default(),
            readiness: Arc::new(Remembered::new(health::READ_EVERY)),
            outside: Arc::new(Remembered::new(api_checks::OTHERS_EVERY)),
        }))
    }

    /// Changes what is shared. Panics once this is not its only handle.
    pub fn set_up(&mut self, change: impl FnOnce(&mut ApiContext)) {
        change(Arc::get_mut(&mut self.0).expect("no other handle exists yet"));
    }

    /// Waits for a place to take in or out what an app has, be it long. 503: too many do, or the app itself does so too often.
    pub(super) async fn place_to_transfer(&self, app: AppId) -> Result<SharePermit, Problem> {
        const BUSY: Busy = Busy {
            code: ProblemCode::TransfersBusy,
            detail: "More imports and exports are under way than this process makes at a time.",
        };
        self.transfers.take(Some(app), self.settings.place_patience, &BUSY).await
    }

    /// Waits for a place to search through whom an app has, or what it has sent. 503: too many search, or the app itself does so too often.
    pub(super) async fn place_to_search(&self, app: AppId) -> Result<SharePermit, Problem> {
        const BUSY: Busy = Busy {
            code: ProblemCode::SearchesBusy,
            detail: "More searches are asked for than this process makes at a time.",
        };
        self.searches.take(Some(app), self.settings.place_patience, &BUSY).await
    }
}
