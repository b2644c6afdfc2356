//! A whole server on a database of its own, against the push-service simulator, under a clock that stands still.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use bellwire::testkit::api::{self, ApiState, RelyingParty};
use bellwire::testkit::checks;
use bellwire::testkit::live;
use bellwire::testkit::server::{self, maintenance};
use bellwire_core::clock::Clock;
use bellwire_core::scope::Scope;
use bellwire_dispatch::{DispatchConfig, Dispatcher};
use bellwire_gateway::Gateways;
use bellwire_simulator::gateways::{self, RequestFault, Simulator};
use bellwire_store::keys::api_keys;
use bellwire_store::keys::data_keys;
use bellwire_store::outcomes::rollups::MetricsKept;
use bellwire_store::{self as store, operations::partitions};
use bellwire_telemetry::metrics::Metrics;
use bellwire_telemetry::otlp::Tracer;
use bellwire_vault::Vault;
use bellwire_vault::master_key::{MasterKey, MasterKeySource};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use super::{FaultProxy, START, TestDatabase, citus};

/// Deviations of a test from the usual set-up.
#[derive(Default)]
pub struct Setup {
    pub simulator: gateways::Options,
    pub dispatch: DispatchConfig,
    /// Push services beside the simulator, and whom to trust for them.
    pub others: (Vec<bellwire_gateway::HostMapping>, String),
    /// The proxy that connections to push services leave by.
    pub egress: Option<bellwire_gateway::Egress>,
    /// A clock other than one that stands still at [`START`].
    pub clock: Option<Clock>,
    /// A database other than one of the shared Postgres.
    pub database: Option<TestDatabase>,
    /// Whether the engine finds Postgres through a fault proxy.
    pub through_proxy: bool,
    /// Limits of listeners.
    pub live: live::LiveConfig,
    /// Relying party of passkeys.
    pub relying_party: Option<RelyingParty>,
    /// Input of checks.
    pub checks: checks::Setup,
}

/// Master key of `bellwire` processes on a test's database.
pub const MASTER_KEY: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";

/// Another engine on the same database, as in another process.
pub struct Worker {
    pub dispatcher: Arc<Dispatcher>,
    pub metrics: Arc<Metrics>,
    _tasks: JoinSet<()>,
}

impl Worker {
    /// Lets it work off everything that is due now by its clock.
    pub async fn run_until_idle(&self) {
        let idle = tokio::time::timeout(PATIENCE, self.dispatcher.run_until_idle()).await;
        idle.expect("it becomes idle").expect("the database answers");
    }
}

pub const DAY: Duration = Duration::from_secs(86_400);

/// Default retention.
pub const RETENTION: maintenance::Retention = maintenance::Retention {
    history: DAY.saturating_mul(35),
    archive: DAY.saturating_mul(30),
    subscriptions: DAY.saturating_mul(90),
    metrics: MetricsKept::DEFAULT,
    webhooks: DAY.saturating_mul(3),
    habits: DAY.saturating_mul(400),
    user_events: DAY.saturating_mul(90),
    audit_log: None,
};

/// Maximum wait for an expected event.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A server with one app, `shop`.
pub struct TestApp {
    pub database: TestDatabase,
    pub pool: PgPool,
    pub vault: Vault,
    pub clock: Clock,
    pub simulator: Simulator,
    pub gateways: Gateways,
    pub metrics: Arc<Metrics>,
    pub dispatcher: Arc<Dispatcher>,
    pub proxy: Option<FaultProxy>,
    /// Hosts beside the simulator's, and their authorities.
    pub others: (Vec<bellwire_gateway::HostMapping>, String),
    pub router: Router,
    /// Router for callers with access to database and master key.
    pub local: Router,
    /// The secret of a key of the app, with all its scopes.
    pub key: String,
    /// The secret of an operator's key.
    pub operator: String,
    /// The VAPID public key that new subscriptions are made with.
    pub application_server_key: Vec<u8>,
    dispatch: DispatchConfig,
    tasks: JoinSet<()>,
    finished: bool,
}

/// A response, read to its end.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub json: Value,
}

impl Reply {
    /// The body, if the request was answered with that status.
    #[track_caller]
    pub fn ok(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.json);
        self.json
    }
}

/// A subscription that the simulator minted and the server registered.
#[derive(Debug, Clone)]
pub struct Subscriber {
    pub id: String,
    pub endpoint: String,
}

impl TestApp {
    pub async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        let database = match setup.database {
            Some(database) => database,
            None => TestDatabase::create().await,
        };
        let pool = database.pool.clone();
        let clock = setup.clock.unwrap_or_else(|| Clock::stub(START));
        partitions::ensure(&pool, clock.now()).await.expect("partitions");
        let master_key = MasterKeySource::Given(MasterKey::parse(MASTER_KEY).expect("32 octets"));
        let vault = data_keys::open(&pool, &master_key, clock.now()).await.expect("an empty database");
        let simulator = Simulator::start(gateways::Options { clock: clock.clone(), ..setup.simulator }).await.unwrap();
        // What a proxy refuses is told at once, since that goes by the real clock, too.
        let (egress, told_after) = (setup.egress, Duration::ZERO);
        let settings = gateway_settings(&simulator, setup.others.clone());
        let settings = bellwire_gateway::GatewayConfig { egress, told_after, ..settings };
        let gateways = Gateways::new(settings).expect("the simulator's settings are right");
        let metrics = Metrics::new();
        let proxy = if setup.through_proxy { Some(FaultProxy::start().await) } else { None };
        let worker_database =
            proxy.as_ref().map_or_else(|| database.options(), |proxy| proxy.connect_options(&database.name));
        let worker_pool = store::connect(store::by_index_only(worker_database), 8).await.expect("a worker's pool");
        let (dispatcher, tasks) = Dispatcher::start(
            worker_pool,
            vault.clone(),
            clock.clone(),
            gateways.clone(),
            metrics.clone(),
            Tracer::off(),
            setup.dispatch,
        );
        let engine = server::engine(dispatcher.clone());
        let settings = api::ApiConfig {
            live: setup.live,
            relying_party: setup.relying_party,
            setup: setup.checks,
            ..api::ApiConfig::default()
        };
        let sending_pool = store::connect_lazily(store::by_index_only(database.options()), 2);
        let state =
            ApiState::new(pool.clone(), sending_pool, vault.clone(), clock.clone(), gateways.clone(), engine, settings);
        let (_, operator) =
            api_keys::create(&pool, &vault, None, "operator", &[Scope::Operator], None, &clock).await.unwrap();
        let mut app = Self {
            database,
            pool,
            vault,
            clock,
            simulator,
            gateways: gateways.clone(),
            metrics,
            others: setup.others,
            dispatcher,
            proxy,
            router: api::router(state.clone()),
            local: api::local_router(state),
            key: operator.clone(),
            operator,
            application_server_key: Vec::new(),
            dispatch: setup.dispatch,
            tasks,
            finished: false,
        };
        app.make_app().await;
        app
    }

    async fn make_app(&mut self) {
        let new =
            json!({"slug": "shop", "name": "Shop", "subject": "mailto:ops@example.com", "allow_other_gateways": true});
        let made = self.call(Method::POST, "/v1/apps", new).await.ok(201);
        let public = made["vapid_key"]["public_key"].as_str().expect("a public key");
        self.application_server_key = bellwire_core::base64url::decode_any(public).unwrap();
        let key = json!({"name": "server", "scopes": Scope::OF_APPS});
        let key = self.call(Method::POST, "/v1/apps/shop/api-keys", key).await.ok(201);
        self.key = key["secret"].as_str().expect("a secret").to_owned();
    }

    /// A request with the app's key.
    pub async fn call(&self, method: Method, path: &str, body: Value) -> Reply {
        self.call_as(method, path, &self.key, body).await
    }

    pub async fn call_as(&self, method: Method, path: &str, bearer: &str, body: Value) -> Reply {
        self.call_with(method, path, bearer, body, &[]).await
    }

    /// The same, with more headers.
    pub async fn call_with(
        &self, method: Method, path: &str, bearer: &str, body: Value, headers: &[(&str, &str)],
    ) -> Reply {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {bearer}"))
            .extension(axum::extract::ConnectInfo(std::net::SocketAddr::from(([127, 0, 0, 1], 1))));
        request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let body = if body.is_null() {
            Body::empty()
        } else {
            request = request.header("content-type", "application/json");
            Body::from(body.to_string())
        };
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 24).await.unwrap();
        Reply { status, json: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }
    }

    /// A request with the operator's key.
    pub async fn operate(&self, method: Method, path: &str, body: Value) -> Reply {
        self.call_as(method, path, &self.operator, body).await
    }

    /// The number of the app's lane to a gateway.
    pub async fn lane(&self, gateway: &str) -> i64 {
        let lanes = self.operate(Method::GET, "/v1/gateways", Value::Null).await.ok(200);
        let lane = lanes["data"].as_array().unwrap().iter().find(|lane| lane["gateway"] == gateway);
        lane.expect("somebody has subscribed there")["lane"].as_i64().unwrap()
    }

    pub async fn get(&self, path: &str) -> Value {
        self.call(Method::GET, path, Value::Null).await.ok(200)
    }

    /// Registers the simulated browsers of these indices at `{gateway}.bellwire.test`.
    pub async fn subscribe(&self, gateway: &str, indices: std::ops::Range<u32>) -> Vec<Subscriber> {
        self.subscribe_with(gateway, indices, json!({})).await
    }

    /// The same, with more members in the request (`topics`, `user_id` …).
    pub async fn subscribe_with(&self, gateway: &str, indices: std::ops::Range<u32>, more: Value) -> Vec<Subscriber> {
        self.subscribe_by(&self.application_server_key, gateway, indices, more).await
    }

    /// The same, of browsers that subscribed with that VAPID public key.
    pub async fn subscribe_by(
        &self, key: &[u8], gateway: &str, indices: std::ops::Range<u32>, more: Value,
    ) -> Vec<Subscriber> {
        let host = format!("{gateway}.bellwire.test");
        let mut subscribers = Vec::new();
        for index in indices {
            let minted = self.simulator.mint(&host, index, Some(key)).unwrap();
            let mut body = json!({"subscription": {
                "endpoint": minted.endpoint,
                "keys": {"p256dh": minted.p256dh, "auth": minted.auth},
            }});
            body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
            let made = self.call(Method::POST, "/v1/apps/shop/subscriptions", body).await.ok(201);
            subscribers.push(Subscriber { id: made["id"].as_str().unwrap().to_owned(), endpoint: minted.endpoint });
        }
        subscribers
    }

    /// Registers a known simulated browser again, as its next visit does. Returns its id.
    pub async fn come_back(&self, gateway: &str, index: u32) -> String {
        self.come_back_with(gateway, index, json!({})).await
    }

    /// The same, with more members in the request.
    pub async fn come_back_with(&self, gateway: &str, index: u32, more: Value) -> String {
        let host = format!("{gateway}.bellwire.test");
        let minted = self.simulator.mint(&host, index, Some(&self.application_server_key)).unwrap();
        let keys = json!({"p256dh": minted.p256dh, "auth": minted.auth});
        let mut body = json!({"subscription": {"endpoint": minted.endpoint, "keys": keys}});
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let known = self.call(Method::POST, "/v1/apps/shop/subscriptions", body).await.ok(200);
        known["id"].as_str().unwrap().to_owned()
    }

    /// Sends a message and returns its id.
    pub async fn send(&self, to: Value, more: Value) -> String {
        let mut body = json!({"to": to, "content": {"title": "Hello", "body": "World", "url": "https://example.com/"}});
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let sent = self.call(Method::POST, "/v1/apps/shop/messages", body).await.ok(202);
        sent["id"].as_str().unwrap().to_owned()
    }

    /// Lets the engine work off everything that is due now.
    pub async fn run_until_idle(&self) {
        let idle = tokio::time::timeout(PATIENCE, self.dispatcher.run_until_idle()).await;
        idle.expect("it becomes idle").expect("the database answers");
    }

    /// Runs until idle with another engine beside this one. An engine that finds a cursor locked skips its recipients and retries, as it
    /// would within a second.
    pub async fn run_until_idle_with(&self, other: &Worker) {
        tokio::join!(self.run_until_idle(), other.run_until_idle());
        self.run_until_idle().await;
        other.run_until_idle().await;
    }

    /// Moves the clock and lets the engine work off what became due.
    pub async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.run_until_idle().await;
    }

    /// A message's state and counts; the sum is checked.
    pub async fn message(&self, id: &str) -> Value {
        let message = self.get(&format!("/v1/apps/shop/messages/{id}")).await;
        let counts = &message["counts"];
        let n = |name: &str| counts[name].as_i64().unwrap_or_else(|| panic!("no {name} in {counts}"));
        let parts = ["queued", "dispatching", "retrying", "accepted", "gone", "expired", "dead", "cancelled", "capped"];
        assert_eq!(n("targeted"), parts.iter().map(|part| n(part)).sum::<i64>(), "the account of {id}: {counts}");
        message
    }

    /// The counts that are not zero.
    pub async fn counts(&self, id: &str) -> BTreeMap<String, i64> {
        let message = self.message(id).await;
        let counts = message["counts"].as_object().unwrap();
        counts.iter().filter_map(|(name, n)| Some((name.clone(), n.as_i64()?))).filter(|(_, n)| *n != 0).collect()
    }

    /// A delivery with its attempts.
    pub async fn delivery(&self, message: &str, subscription: &str) -> Value {
        self.get(&format!("/v1/apps/shop/messages/{message}/deliveries/{subscription}")).await
    }

    /// Pauses, resumes or cancels a message, and returns what it then is.
    pub async fn steer(&self, message: &str, turn: &str) -> Value {
        self.call(Method::POST, &format!("/v1/apps/shop/messages/{message}/{turn}"), Value::Null).await.ok(200)
    }

    /// Number of times that a rule acted, and of requests that it holds at this moment.
    pub fn rule(&self, id: u64) -> (u64, u64) {
        let report = self.simulator.report();
        let rule = report.rules.iter().find(|rule| rule.id == id).expect("the rule is in force");
        (rule.hits, rule.held)
    }

    /// Waits until a rule holds so many requests.
    pub async fn until_held(&self, id: u64, n: u64) {
        let held = |report: &gateways::SimulatorReport| report.rules.iter().any(|rule| rule.id == id && rule.held == n);
        let waited = tokio::time::timeout(PATIENCE, self.simulator.wait_until(held)).await;
        waited.unwrap_or_else(|_| panic!("rule {id} has acted and holds {:?}, not {n}", self.rule(id)));
    }

    /// Starts another engine on the same database, as another process would, by a clock of its own.
    pub async fn worker(&self, clock: Clock) -> Worker {
        self.worker_with(clock, gateways(&self.simulator)).await
    }

    /// One for which no certificate of the simulator is valid, as on a machine whose clock is wrong.
    pub async fn worker_without_trust(&self) -> Worker {
        let mut settings = gateway_settings(&self.simulator, Default::default());
        settings.extra_ca_pem = None;
        self.worker_with(self.clock.clone(), Gateways::new(settings).expect("settings")).await
    }

    async fn worker_with(&self, clock: Clock, gateways: Gateways) -> Worker {
        let pool = store::connect(store::by_index_only(self.database.options()), 8).await.unwrap();
        let (vault, metrics) = (self.vault.clone(), Metrics::new());
        let (dispatcher, _tasks) =
            Dispatcher::start(pool, vault, clock, gateways, metrics.clone(), Tracer::off(), self.dispatch);
        Worker { dispatcher, metrics, _tasks }
    }

    /// The fault proxy between the engine and Postgres.
    pub fn proxy(&self) -> &FaultProxy {
        self.proxy.as_ref().expect("asked for in the setup")
    }

    /// One round of maintenance.
    pub async fn sweep(&self) {
        maintenance::fold_metrics(&self.pool).await.expect("the database answers");
        maintenance::sweep(&self.pool, &self.vault, &self.metrics, self.clock.now())
            .await
            .expect("the database answers");
        maintenance::fold_habits(&self.pool, &self.clock).await.expect("the database answers");
        maintenance::fold_metrics(&self.pool).await.expect("the database answers");
    }

    /// One round of retention: partitions, then rows.
    pub async fn keep_house(&self) {
        let now = self.clock.now();
        maintenance::tend_partitions(&self.pool, now, RETENTION).await.expect("nobody reads history");
        maintenance::keep_house(&self.pool, now, RETENTION).await.expect("the database answers");
    }

    /// Ends the test: every account adds up, in the counts, in the attempts and at the gateways, and nothing is leased.
    pub async fn finish(self) {
        self.finish_after(&[]).await;
    }

    /// The same for a test in which the gateways find these faults on purpose.
    pub async fn finish_after(mut self, expected: &[RequestFault]) {
        self.finished = true;
        self.check_accounts().await;
        let mut faults = self.simulator.report().faults;
        faults.retain(|fault, _| !expected.contains(fault));
        assert!(faults.is_empty(), "the gateways found fault: {faults:?}");
        self.tasks.shutdown().await;
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        assert!(self.finished || std::thread::panicking(), "every test ends with finish(), which checks the accounts");
    }
}

/// One value out of the test's database.
pub async fn scalar(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.expect("the statement is right")
}

/// Waits until so many transactions wait for locks.
pub async fn until_waiting(pool: &PgPool, n: i64) {
    // Who waits for a row on another machine waits there.
    let waiting = match tokio::task::spawn_blocking(citus::cluster).await.expect("a cluster") {
        None => "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        Some(_) => {
            "SELECT count(*) FROM citus_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        }
    };
    let waited = tokio::time::timeout(PATIENCE, async { while scalar(pool, waiting).await < n {} });
    waited.await.expect("so many wait");
}

/// Gateways of which all known ones are the simulator's.
pub fn gateways(simulator: &Simulator) -> Gateways {
    Gateways::new(gateway_settings(simulator, Default::default())).expect("the simulator's settings are right")
}

/// The rest after a failed connect is short, since it goes by the real clock.
fn gateway_settings(
    simulator: &Simulator, (others, ca_pem): (Vec<bellwire_gateway::HostMapping>, String),
) -> bellwire_gateway::GatewayConfig {
    let mapping = |host: gateways::HostMapping| bellwire_gateway::HostMapping {
        host: host.host,
        gateway: host.gateway,
        address: Some(host.addr),
    };
    bellwire_gateway::GatewayConfig {
        hosts: simulator.hosts().into_iter().map(mapping).chain(others).collect(),
        extra_ca_pem: Some((simulator.ca_pem().to_owned() + &ca_pem).into_bytes()),
        allow_loopback: true,
        connect_pause: Duration::from_millis(1),
        ..bellwire_gateway::GatewayConfig::default()
    }
}

/// Members that a problem names.
pub fn pointers(problem: &Value) -> Vec<&str> {
    problem["errors"].as_array().unwrap().iter().map(|it| it["pointer"].as_str().unwrap()).collect()
}
