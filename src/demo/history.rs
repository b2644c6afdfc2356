//! Ninety days of a shop before the demo begins: subscribers who come and go, campaigns, messages to single people, and what browsers
//! reported. The API, the dispatch engine, the scheduler of campaigns and maintenance make it, under a clock that moves from step to step.
//!
//! No server may run on the database meanwhile: it would send what is due at once, under the present time.

mod browsers;
mod content;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chrono::{Days, NaiveTime, TimeDelta};
use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::client::{Caller, Client};
use super::site::{ORIGIN, host_of, text};
use crate::api::{self, EngineHandle};
use crate::config::Config;
use crate::server::context::Context;
use crate::server::{api_state, campaigns, maintenance};
use bellwire_core::base64url;
use bellwire_core::clock::{Clock, Timestamp};
use bellwire_core::lane::Gateway;
use bellwire_dispatch::{DispatchConfig, Dispatcher};
use bellwire_gateway::{GatewayConfig, Gateways, HostMapping};
use bellwire_simulator::gateways::{HostSpec, LogbookLimits, Options, Rule, RuleAction, Simulator};
use bellwire_store::operations::partitions;
use bellwire_telemetry::metrics::Metrics;
use bellwire_telemetry::otlp::Tracer;
use browsers::Browsers;
use content::Day;

/// Slug of the app with the history.
pub(super) const SHOP: &str = "shop";
/// Full days before today.
const DAYS: u64 = 90;
const MORNING: TimeDelta = TimeDelta::hours(8);
/// Hour of campaigns, UTC.
const AFTERNOON: TimeDelta = TimeDelta::hours(15);
/// Hours after a campaign in which browsers report.
const HOURS: usize = 6;
const HOUR: TimeDelta = TimeDelta::hours(1);
/// Time for the last deliveries to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Creates the app and its history. `context` gets back its clock at the end.
pub(super) async fn make(context: &mut Context, config: &Config, seed: u64, operator: &str) -> anyhow::Result<()> {
    let present = context.clock.clone();
    let first = (present.now().date_naive() - Days::new(DAYS)).and_time(NaiveTime::MIN).and_utc();
    context.clock = Clock::stub(first);
    let made = match Shop::open(context, config, seed, operator).await {
        Ok(shop) => shop.live(first).await,
        Err(error) => Err(error),
    };
    context.clock = present;
    made
}

/// The app, and the engine, API and simulator that work for it.
struct Shop<'a> {
    context: &'a Context,
    api: Client,
    operator: &'a str,
    simulator: Simulator,
    dispatcher: Arc<Dispatcher>,
    browsers: Browsers,
    /// Server and engine: they end with this value.
    tasks: JoinSet<()>,
}

impl<'a> Shop<'a> {
    async fn open(context: &'a Context, config: &Config, seed: u64, operator: &'a str) -> anyhow::Result<Self> {
        let host = |gateway: Gateway| HostSpec::new(gateway, host_of(gateway));
        let simulator = Simulator::start(Options {
            hosts: Gateway::ALL.map(host).to_vec(),
            seed,
            limits: LogbookLimits { deliveries: 50_000, plaintexts: 50_000 },
            clock: context.clock.clone(), // for the expiry of VAPID tokens
            ..Options::default()
        })
        .await?;
        let hosts = simulator.hosts().into_iter();
        let gateways = Gateways::new(GatewayConfig {
            hosts: hosts
                .map(|host| HostMapping { host: host.host, gateway: host.gateway, address: Some(host.addr) })
                .collect(),
            extra_ca_pem: Some(simulator.ca_pem().into()),
            ..GatewayConfig::default()
        })?;
        let (pool, vault, clock) = (context.worker_pool.clone(), context.vault.clone(), context.clock.clone());
        let settings = DispatchConfig { policy: config.policy(), ..DispatchConfig::default() };
        let (dispatcher, mut tasks) =
            Dispatcher::start(pool, vault, clock, gateways.clone(), Metrics::new(), Tracer::off(), settings);
        let router = api::router(api_state(context, config, gateways, EngineHandle::none())?);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tasks.spawn(async move {
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            if let Err(error) = axum::serve(listener, service).await {
                tracing::error!(%error, "the API of the demo's history ended");
            }
        });
        let api = Client::new(format!("http://{address}"));
        let caller = Caller::Key(operator);
        api.post(caller, "/v1/apps", &content::app()).await?;
        let shown = api.get(Caller::Page(ORIGIN), &format!("/v1/apps/{SHOP}/config")).await?;
        let key =
            base64url::decode_any(text(&shown, "application_server_key")?).context("a public key is not base64url")?;
        Ok(Self { context, api, operator, simulator, dispatcher, browsers: Browsers::new(seed, key), tasks })
    }

    /// Simulates all days, then stops the engine.
    async fn live(mut self, first: Timestamp) -> anyhow::Result<()> {
        self.open_for_business().await?;
        for day in 0..DAYS {
            self.live_a_day(day, first + TimeDelta::days(day.try_into()?)).await?;
        }
        self.dispatcher.stop(PATIENCE).await;
        self.tasks.shutdown().await;
        self.simulator.stop().await;
        Ok(())
    }

    /// Stores the content of the first day, and imports the browsers of the previous system.
    async fn open_for_business(&mut self) -> anyhow::Result<()> {
        for (path, body) in content::stored() {
            self.ask(Method::PUT, &path, body).await?;
        }
        self.ask(Method::POST, "/webhooks", content::webhook()).await?;
        let imported = self.browsers.mint_all(&self.simulator, content::IMPORTED)?;
        self.ask(Method::POST, "/imports", Value::Array(imported)).await?;
        self.plan(&content::weekly(self.context.clock.now())).await
    }

    async fn live_a_day(&mut self, n: u64, midnight: Timestamp) -> anyhow::Result<()> {
        let pool = &self.context.pool;
        self.wait_until(midnight + MORNING);
        partitions::ensure(pool, self.context.clock.now()).await?;
        let day = Day(n);
        if let Some(share) = day.uninstalled() {
            self.simulator.add_rule(Rule { share: Some(share), ..Rule::always(RuleAction::Gone) })?;
        }
        if let Some(share) = day.refused() {
            self.simulator.add_rule(Rule { share: Some(share), ..Rule::always(RuleAction::BadRequest) })?;
        }
        self.browsers.arrive(&self.api, self.operator, &self.simulator, day.arrivals()).await?;
        self.browsers.leave(&self.api, self.operator, day.departures()).await?;
        for user in self.browsers.some_users(content::PARCELS) {
            self.ask(Method::POST, "/messages", content::parcel(&user)).await?;
        }
        self.work_off().await?;
        self.browsers.report(&self.api, &self.simulator, &self.context.clock, 1).await?;
        self.wait_until(midnight + AFTERNOON);
        for plan in day.campaigns(midnight) {
            self.plan(&plan).await?;
        }
        self.work_off().await?;
        self.browsers.report(&self.api, &self.simulator, &self.context.clock, HOURS).await?;
        // The rest of an A/B test, whose time is over by now.
        self.work_off().await?;
        self.browsers.report(&self.api, &self.simulator, &self.context.clock, 1).await?;
        maintenance::fold_metrics(pool).await?;
        maintenance::fold_habits(pool, &self.context.clock).await?;
        maintenance::sweep(pool, &self.context.vault, &Metrics::new(), self.context.clock.now()).await?;
        Ok(())
    }

    /// Moves the clock forward to that time.
    fn wait_until(&self, at: Timestamp) {
        let clock = &self.context.clock;
        clock.advance((at - clock.now()).to_std().unwrap_or_default());
    }

    /// Lets the scheduler and the engine do what is due.
    async fn work_off(&self) -> anyhow::Result<()> {
        let Context { pool, vault, clock, .. } = self.context;
        campaigns::advance(pool, vault, clock).await?;
        self.dispatcher.run_until_idle().await?;
        Ok(())
    }

    /// Saves a campaign's plan and starts it.
    async fn plan(&self, plan: &Value) -> anyhow::Result<()> {
        self.ask(Method::POST, "/campaigns", plan.clone()).await?;
        self.ask(Method::POST, &format!("/campaigns/{}/start", text(plan, "slug")?), json!({})).await
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> anyhow::Result<()> {
        let path = format!("/v1/apps/{SHOP}{path}");
        self.api.call(Caller::Key(self.operator), method, &path, body.to_string().into()).await.map(drop)
    }
}
