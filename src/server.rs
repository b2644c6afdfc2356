//! One server process: runs the engines of its roles until a stop or the end of an engine.

pub(crate) mod announced;
pub(crate) mod campaigns;
mod connections;
pub(crate) mod context;
mod engines;
mod exposition;
mod https;
mod keys;
pub(crate) mod listeners;
pub(crate) mod maintenance;
pub(crate) mod measuring;
mod planned;
mod service_manager;
mod shares;
pub(crate) mod telemetry;
pub(crate) mod triggers;
mod vacuum;

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::http::header;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use nix::sys::resource::{Resource, getrlimit};
use tokio::net::TcpListener;
use tokio::sync::watch::channel;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::{error, info, warn};
use url::Url;

use crate::api::Example;
use crate::api::RequestRate;
use crate::api::http::auth::Scraper;
use crate::api::http::hsts::{self, Hsts};
use crate::api::session::relying_party::RelyingParty;
use crate::api::session::{self, cookie::Cookies};
use crate::api::{self, ApiState, EngineHandle, Work};
use crate::checks::{self, rules};
use crate::config::{Config, OidcClient, RECEIVER_CONNECTIONS};
use crate::receipts;
use bellwire_dispatch::Dispatcher;
use bellwire_dispatch::idle::Rest;
use bellwire_gateway::Gateways;
use bellwire_net::http_server;
use bellwire_net::oidc::{self, ClientSecret};
use bellwire_store::connections::{ConnectionMetrics, watch};
use bellwire_store::operations::cluster_identity;
use bellwire_telemetry::metrics::Metrics;
use bellwire_telemetry::otlp::{self, Otlp, Tracer};
use bellwire_telemetry::panics::begun_again;
use bellwire_vault::master_key;
use context::{Context, Migrations};
use exposition::Exposition;
use listeners::Listeners;

/// Runs a server on an open listener until `shutdown` completes: waits for the database, opens the context, runs the
/// engines of its roles, and closes in reverse order. Calls `started` with the address once it serves. An error means
/// that an engine or the database ended unexpectedly.
pub(crate) async fn run(
    config: Config, migrations: Migrations, listener: TcpListener, started: impl FnOnce(SocketAddr),
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let mut shutdown = pin!(shutdown);
    check_descriptors(&config);
    let opened = context::open_when_there(&config, migrations, shutdown.as_mut()).await?;
    let Some(context) = opened else { return Ok(()) };
    let ended = serve(&context, &config, listener, started, shutdown).await;
    context.close().await;
    ended
}

/// Warns if the system allows fewer descriptors than the settings may need, after the limit was raised. Without free
/// descriptors, clients are refused, and outbound connections fail and are retried.
fn check_descriptors(config: &Config) {
    let wanted = config.descriptors();
    if let Ok((limit, _)) = getrlimit(Resource::RLIMIT_NOFILE)
        && limit < wanted
    {
        warn!(
            limit,
            wanted,
            "the system lets this process open fewer files and sockets than its settings may want: raise its hard limit \
             (LimitNOFILE= of systemd, --ulimit nofile= of Docker), or let fewer clients in by BELLWIRE_CONNECTIONS_MAX"
        );
    }
}
fn check_exposure(config: &Config, address: SocketAddr) {
    if rules::is_in_the_clear(&setup(config)) {
        warn!(
            %address,
            "HTTP is served beyond this machine without TLS: keys and sessions can be read on the network. Set BELLWIRE_TLS_CERT or \
             BELLWIRE_ACME_DOMAIN, or put a proxy that ends TLS in front and set BELLWIRE_TRUSTED_PROXIES"
        );
    }
}

/// Serves until `shutdown`, then stops within `config.shutdown_deadline`. Requests that have begun get their response,
/// no new work is claimed, and deliveries in flight end or are requeued. Then it sends the rest to the OpenTelemetry
/// collector, within three more seconds. Fails if an engine ends by itself.
async fn serve(
    context: &Context, config: &Config, listener: TcpListener, started: impl FnOnce(SocketAddr),
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let address = listener.local_addr().context("the listener has no address")?;
    let metrics = Metrics::new();
    let exposition = Arc::new(Exposition::new(context, metrics.clone()));
    let otlp = start_otlp(context, config)?;
    let tracer = otlp.as_ref().map_or_else(Tracer::off, |otlp| otlp.tracer());
    if let Some(egress) = config.egress() {
        info!(proxy = %egress.proxy(), "connections leave by a proxy");
    }
    let gateways = self::gateways(config)?;
    // A separate client: slow receivers of webhooks must not take the connections of pushes. Many receivers may share a
    // host.
    let receivers = bellwire_gateway::GatewayConfig {
        connections_per_origin: RECEIVER_CONNECTIONS as usize,
        ..gateway_settings(config)?
    };
    let receivers = Gateways::new(receivers).context("the gateways' settings cannot be used")?;
    // All checks come before the first worker registers, because a server that cannot serve must not dispatch.
    cluster_identity::check(&mut *context.pool.acquire().await?, context.clock.now()).await?;
    let https = https::open(context, config, &metrics).await?;
    let listeners = Listeners::bind(listener, config).await?;
    info!(%address, data = %context.data(config), "started");
    check_exposure(config, address);
    let (dispatcher, mut engines) = engines::start(context, config, &gateways, &receivers, &metrics, &tracer);
    watch_surroundings(context, &metrics, engines::rest(dispatcher.as_ref()), &mut engines);
    if let Some(otlp) = &otlp {
        let (otlp, exposition) = (otlp.clone(), exposition.clone());
        engines.spawn(begun_again("telling metrics", move || tell_metrics_on(otlp.clone(), exposition.clone())));
    }
    let tls = https.as_ref().map(|https| https.tls.clone());
    if let Some(https) = https {
        engines.spawn(https.keep);
    }
    connections::open(context, config).await;
    let told = ServerTelemetry { metrics, tracer, exposition: exposition.clone() };
    let served = routes(context, config, gateways, told, dispatcher.clone())?;
    let (stop_serving, stop) = channel(false);
    let mut serving = listeners.serve(tls, served, config, &stop)?;
    let url = config.public_url.clone().unwrap_or_else(|| config.local_url(address));
    let mut announced = pin!(announced::keep(config.data_dir.clone(), url.as_str().trim_end_matches('/'), address));
    let _ = futures_util::poll!(announced.as_mut()); // commands find the server from now on
    started(address);
    service_manager::tell_ready();
    let failure = tokio::select! {
        () = shutdown => None,
        () = announced.as_mut() => None, // never
        () = service_manager::feed_watchdog(address) => None, // an endless loop
        ended = serving.join_next() => Some(anyhow::anyhow!("an HTTP server ended: {ended:?}")),
        Some(ended) = engines.join_next() => Some(anyhow::anyhow!("an engine ended: {ended:?}")),
        postgres = context.keep_postgres() => Some(postgres.context("the embedded Postgres ended")),
    };
    info!("stopping");
    service_manager::tell_stopping(config.shutdown_deadline);
    let _ = stop_serving.send(true);
    wind_down(&mut serving, dispatcher, config.shutdown_deadline).await;
    engines.shutdown().await;
    if let Some(otlp) = otlp {
        otlp.stop(exposition.metrics()).await;
    }
    match failure {
        None => Ok(()),
        Some(failure) => {
            error!(error = %failure, "the server must stop");
            Err(failure)
        }
    }
}

/// Writes measurements of the database connections into the metrics.
struct Observed(Arc<Metrics>);

impl ConnectionMetrics for Observed {
    fn writable(&self, is_writable: bool) {
        self.0.database_writable.set(is_writable.into());
    }

    fn failover(&self) {
        self.0.database_failovers.inc();
    }

    fn commits_unconfirmed(&self, is_stuck: bool) {
        self.0.commits_unconfirmed.set(is_stuck.into());
    }

    fn read_replica(&self, is_usable: bool, lag: Option<Duration>) {
        self.0.read_replica(is_usable, lag);
    }
}

/// Watches in every role: the host of the database that accepts writes, the lag of its standby, and the level of the
/// log.
fn watch_surroundings(context: &Context, metrics: &Arc<Metrics>, rest: Arc<Rest>, engines: &mut JoinSet<()>) {
    if let Some(hosts) = &context.hosts {
        let pools = [&context.pool, &context.sending_pool, &context.worker_pool].map(Clone::clone).to_vec();
        let (primary, metrics) = (context.primary.clone(), Arc::new(Observed(metrics.clone())));
        let hosts = hosts.clone();
        let watch = move || watch::watch_on(hosts.clone(), pools.clone(), primary.clone(), metrics.clone());
        engines.spawn(begun_again("watching the database", watch));
    } else {
        metrics.database_writable.set(1); // it is embedded
    }
    for pool in [&context.sending_pool, &context.worker_pool].map(Clone::clone) {
        engines.spawn(begun_again("trying connections", move || connections::try_on(pool.clone())));
    }
    let (pool, clock) = (context.pool.clone(), context.clock.clone());
    let follow = move || telemetry::follow_on(pool.clone(), clock.clone(), rest.clone());
    engines.spawn(begun_again("following the log's level", follow));
    if context.reads.replica().is_some() {
        let (reads, metrics) = (context.reads.clone(), Arc::new(Observed(metrics.clone())));
        engines.spawn(begun_again("watching a standby", move || reads.clone().watch_on(metrics.clone())));
    }
}

/// Waits until requests and deliveries are done, at most for `patience`.
///
/// Dispatch also sends what the last requests create, but half of the time is reserved for its deliveries in flight. A
/// client that never ends its request must not abort them. Another worker sends what is created later.
async fn wind_down(serving: &mut JoinSet<()>, dispatcher: Option<Arc<Dispatcher>>, patience: Duration) {
    let deadline = Instant::now() + patience;
    let _ = timeout_at(deadline - patience / 2, all_ended(serving)).await;
    let dispatch_stops = async {
        if let Some(dispatcher) = dispatcher {
            dispatcher.stop(deadline.saturating_duration_since(Instant::now())).await;
        }
    };
    let (_, answered) = tokio::join!(dispatch_stops, timeout_at(deadline, all_ended(serving)));
    if answered.is_err() {
        warn!("some requests had not come to their end by the deadline, and were cut");
    }
    serving.shutdown().await;
}

/// Starts the exporter for an OpenTelemetry collector, if one is configured.
fn start_otlp(context: &Context, config: &Config) -> anyhow::Result<Option<Arc<Otlp>>> {
    let Some(settings) = config.otlp() else { return Ok(None) };
    let extra_ca_pem = config.otel_exporter_otlp_certificate.as_deref().map(read).transpose()?;
    let otlp = Otlp::start(otlp::OtlpConfig { extra_ca_pem, ..settings }, context.clock.clone());
    Ok(Some(Arc::new(otlp.context("the collector's settings cannot be used")?)))
}
async fn tell_metrics_on(otlp: Arc<Otlp>, exposition: Arc<Exposition>) {
    loop {
        tokio::time::sleep(otlp.metrics_every()).await;
        otlp.tell_metrics(exposition.metrics().await).await;
    }
}

async fn all_ended(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

pub(crate) fn http_limits(config: &Config) -> http_server::ListenerLimits {
    http_server::ListenerLimits {
        idle: config.idle_timeout,
        head: config.header_timeout,
        head_max_bytes: config.header_limit_octets as usize,
        connections: config.connections_max as usize,
        connections_per_client: (config.trusted_proxies == 0).then_some(config.connections_per_client as usize),
        ..http_server::ListenerLimits::default()
    }
}

/// Returns the settings that the checks need.
pub(crate) fn setup(config: &Config) -> checks::Setup {
    let file = match config.master_key_source() {
        master_key::MasterKeySource::File(file) => Some(file),
        master_key::MasterKeySource::Given(_) | master_key::MasterKeySource::Command(_) => None,
    };
    checks::Setup {
        listen: config.listen,
        public_url: config.public_url.clone(),
        trusted_proxies: config.trusted_proxies as usize,
        certificate: match (&config.tls_cert, &config.acme_domain) {
            (Some(file), _) => Some(checks::Certificate::File(file.clone())),
            (None, Some(domain)) => Some(checks::Certificate::Ordered {
                directory: config.acme_directory.as_str().to_owned(),
                domain: domain.clone(),
            }),
            (None, None) => None,
        },
        master_key_file: file,
        data_dir: config.database_url.is_none().then(|| config.data_dir.clone()),
        multi_buffer: config.multi_buffer,
        unknown_variables: config.unknown_variables().to_vec(),
        passed_over: config.passed_over().map(Path::to_owned),
        asks_others: true,
        descriptors: config.descriptors(),
    }
}

struct Served {
    /// Router of the API if this process has that role. In any case health, and metrics with a key.
    main: Router,
    metrics: Router,
}
struct ServerTelemetry {
    metrics: Arc<Metrics>,
    tracer: Tracer,
    exposition: Arc<Exposition>,
}

fn routes(
    context: &Context, config: &Config, gateways: Gateways, told: ServerTelemetry, dispatcher: Option<Arc<Dispatcher>>,
) -> anyhow::Result<Served> {
    let ServerTelemetry { metrics, tracer, exposition } = told;
    let mut state = api_state(context, config, gateways, dispatcher.map_or_else(EngineHandle::none, engine))?;
    state.set_up(|shared| {
        (shared.metrics, shared.tracer) = (metrics, tracer);
        (shared.primary, shared.reads) = (context.primary.clone(), context.reads.clone());
    });
    let main = if config.roles.api { api::router(state.clone()) } else { api::health_router(state.clone()) };
    let show = move || async move {
        let exposition = exposition.metrics().await.render();
        ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], exposition)
    };
    let for_scrapers = {
        let show = show.clone();
        move |_: Scraper| show()
    };
    let main = main.merge(Router::new().route("/metrics", get(for_scrapers)).with_state(state));
    // Not for `localhost`: browsers would refuse other services there that use HTTP.
    let public =
        config.public_url.as_ref().is_some_and(|url| url.scheme() == "https" && url.host_str() != Some("localhost"));
    let hsts = public.then(|| Hsts::new(config.hsts_max_age, config.trusted_proxies as usize)).flatten();
    Ok(Served {
        main: match hsts {
            Some(hsts) => main.layer(from_fn_with_state(hsts, hsts::tell)),
            None => main,
        },
        metrics: Router::new().route("/metrics", get(show)),
    })
}

/// Returns the API for the command line: [`api::local_router`] without dispatch. A running server picks up its changes.
pub(crate) fn local_router(context: &Context, config: &Config) -> anyhow::Result<Router> {
    let gateways = gateways(config)?;
    Ok(api::local_router(api_state(context, config, gateways, EngineHandle::none())?))
}

pub(crate) fn api_state(
    context: &Context, config: &Config, gateways: Gateways, engine: EngineHandle,
) -> anyhow::Result<ApiState> {
    let settings = api::ApiConfig {
        body_max_bytes: config.body_limit_octets as usize,
        public_body_max_bytes: config.public_body_limit_octets as usize,
        body_timeout: config.body_timeout,
        per_key: RequestRate { burst: config.key_burst, per_minute: config.key_rate_per_second * 60 },
        guesses_per_client: RequestRate { burst: config.key_guesses_burst, per_minute: config.key_guesses_per_minute },
        per_client: RequestRate { burst: config.public_burst, per_minute: config.public_rate_per_minute },
        per_app: RequestRate { burst: config.public_app_burst, per_minute: config.public_app_rate_per_minute },
        receipts_per_client: RequestRate { burst: config.receipt_burst, per_minute: config.receipt_rate_per_minute },
        receipts_per_app: RequestRate {
            burst: config.receipt_app_burst,
            per_minute: config.receipt_app_rate_per_minute,
        },
        sends_waiting_max: api::ApiConfig::default().sends_waiting_max,
        receipts: receipts::ReceiptConfig {
            retention_days: config.retention_days,
            ..receipts::ReceiptConfig::default()
        },
        live: api::ApiConfig::default().live,
        charts_at_once: api::ApiConfig::default().charts_at_once,
        simulations_at_once: api::ApiConfig::default().simulations_at_once,
        simulation_steps_max: api::ApiConfig::default().simulation_steps_max,
        searches_at_once: api::ApiConfig::default().searches_at_once,
        place_patience: api::ApiConfig::default().place_patience,
        part_timeout: api::ApiConfig::default().part_timeout,
        guard: engines::guard(config),
        example: config.example.map(|audience| Example { audience, public_url: config.public_url.clone() }),
        mcp: config.mcp,
        trusted_proxies: config.trusted_proxies as usize,
        cookies: Cookies { secure: config.base_url().scheme() == "https" },
        oidc: sign_in_by_oidc(config)?,
        relying_party: config.public_url.as_ref().and_then(RelyingParty::of),
        policy: config.policy(),
        metrics_kept: engines::metrics_kept(config),
        setup: setup(config),
    };
    let Context { pool, sending_pool, vault, clock, .. } = context;
    let (pool, sending_pool) = (pool.clone(), sending_pool.clone());
    Ok(ApiState::new(pool, sending_pool, vault.clone(), clock.clone(), gateways, engine, settings))
}
fn sign_in_by_oidc(config: &Config) -> anyhow::Result<Option<api::OidcSignInConfig>> {
    let Some(OidcClient { issuer, client_id, client_secret }) = config.oidc_client() else { return Ok(None) };
    let provider = oidc::Provider::new(oidc::OidcConfig {
        issuer: issuer.to_owned(),
        client_id: client_id.to_owned(),
        client_secret: ClientSecret::new(client_secret.expose().to_owned()),
        redirect_url: format!("{}{}", config.base_url().as_str().trim_end_matches('/'), session::oidc::CALLBACK),
        extra_ca_pem: config.oidc_ca_file.as_deref().map(read).transpose()?,
        egress: config.egress(),
        timeout: oidc::TIMEOUT,
    });
    let host = Url::parse(issuer).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    Ok(Some(api::OidcSignInConfig {
        provider: provider.context("the OpenID provider's settings cannot be used")?,
        label: config.oidc_label.clone().unwrap_or(host),
        domains: config.oidc_domains.iter().map(|domain| domain.to_lowercase()).collect(),
        newcomers: config.oidc_newcomer_role,
    }))
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Connects the API with the dispatcher of its own process.
pub fn engine(dispatcher: Arc<Dispatcher>) -> EngineHandle {
    let leasing = dispatcher.clone();
    EngineHandle {
        tell: Arc::new(move |work| match work {
            Work::Asked => dispatcher.rest().wake(),
            Work::Due => dispatcher.kick(),
            Work::Stop(stop) => dispatcher.obey(stop),
            Work::Orders(states) => dispatcher.obey_orders(states),
            Work::Flow(flow) => dispatcher.obey_flow(flow),
            Work::Born { lease, since, rows } => dispatcher.hand_over(rows, lease, since),
        }),
        lease: Arc::new(move || leasing.lease()),
    }
}

/// Builds the gateway client from the configuration.
pub(crate) fn gateways(config: &Config) -> anyhow::Result<Gateways> {
    Gateways::new(gateway_settings(config)?).context("the gateways' settings cannot be used")
}

fn gateway_settings(config: &Config) -> anyhow::Result<bellwire_gateway::GatewayConfig> {
    let mut hosts = Vec::new();
    for text in &config.gateways {
        match text.parse() {
            Ok(mapping) => hosts.push(mapping),
            Err(error) => bail!("BELLWIRE_GATEWAYS: {text:?}: {error}"),
        }
    }
    Ok(bellwire_gateway::GatewayConfig {
        hosts,
        extra_ca_pem: config.gateway_ca_file.as_deref().map(read).transpose()?,
        allow_loopback: config.allow_loopback,
        egress: config.egress(),
        nat64: config.nat64_prefixes.clone(),
        connections_per_origin: config.connections_per_gateway as usize,
        ..bellwire_gateway::GatewayConfig::default()
    })
}
