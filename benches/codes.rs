//! Maximum rate of one-time codes without other load. Single sends go through the real server over keep-alive connections; each response
//! means that the code is durable, and each code is delivered to the simulated gateways. Measured for single sends, for batches, and for
//! sends to a user with an idempotency key. `scripts/bench codes`
//!
//! For `SECONDS` (5) and several numbers of connections, requests follow at full speed; the best rate counts. Then requests arrive at half
//! of that rate, independent of earlier responses. The run is repeated beside a floor: a bare client that inserts and commits the rows of a
//! send 200 times a second on the same Postgres. The cost of a send includes its delivery, and is a multiple of the cost of sealing,
//! measured before on the idle machine. `STATEMENTS=1` also prints the cost of each statement, and adds some microseconds. Ends with an
//! error if a code is missing or arrives twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bellwire_core::id::{AppId, SubscriptionId};
use futures_util::future::join_all;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use crate::support::client::Client;
use crate::support::codes::{self, code, code_to_user};
use crate::support::cpu::{Usage, per};
use crate::support::harness::Harness;
use crate::support::table::{Bar, figure, heading, number, percentiles};
use crate::support::{seed, setting};
use crate::{sealing, statements};

/// Commits of the bare client beside sends at a steady rate.
const BARE_PER_SECOND: u32 = 200;
/// Maximum time of a send at a steady rate at the 99th percentile, in ms.
const P99_MS: f64 = 20.0;
/// Cost of sealing on the machine for which the bar of the rate was set.
const SEALING_US: f64 = 65.0;
const CONNECTIONS: [usize; 4] = [16, 64, 128, 256];
const BATCH: usize = 1_000;
/// Batches that are asked for at a time.
const BATCHES: usize = 2;

/// Ways to request a code.
#[derive(Clone, Copy)]
enum Way {
    /// To a subscription, without a key.
    Plain,
    /// As the examples do: to a user, under an idempotency key.
    AsExamples,
}

/// A burst of requests.
struct Burst {
    sends: u32,
    took: Duration,
    usage: Usage,
    /// From each request to its answer, in order.
    waits: Vec<Duration>,
}

impl Burst {
    fn rate(&self) -> f64 {
        f64::from(self.sends) / self.took.as_secs_f64()
    }

    fn ms(&self, percent: usize) -> f64 {
        self.waits[(self.waits.len() - 1) * percent / 100].as_secs_f64() * 1e3
    }

    /// Prints the cost of each send as a multiple of sealing.
    fn report_cost(&self, sealing: f64, [server, postgres]: [Bar; 2]) {
        for (name, time, bar) in [("Server", self.usage.server, server), ("Postgres", self.usage.postgres, postgres)] {
            figure(&format!("{name}, CPU per send"), per(time, self.sends), "µs", Bar::None);
            figure(&format!("… as a multiple of sealing ({sealing:.1} µs)"), per(time, self.sends) / sealing, "", bar);
        }
    }
}

pub async fn run() {
    let sealing = sealing::one_message();
    let seconds = setting("SECONDS", 5);
    let is_counting = setting("STATEMENTS", 0) > 0;
    let harness = if is_counting { Harness::counting().await } else { Harness::open().await };
    let app = harness.app("codes").await;
    let audience = seed::subscriptions(&harness.pool, &harness.vault, app, setting("N", 100_000)).await;
    let to = Arc::new(audience.all);
    burst(&harness, app, &to, Way::Plain, CONNECTIONS[0], Duration::from_secs(1)).await; // connections, plans, tokens
    if is_counting {
        statements::forget(&harness.pool).await;
    }
    let mut bursts = Vec::new();
    for connections in CONNECTIONS {
        bursts.push((
            connections,
            burst(&harness, app, &to, Way::Plain, connections, Duration::from_secs(seconds.into())).await,
        ));
    }
    heading("Single sends, durable, by connections");
    for (connections, burst) in &bursts {
        figure(&format!("{connections} connections"), burst.rate(), "/s", Bar::None);
    }
    if is_counting {
        heading("What each statement took meanwhile");
        let sends: u32 = bursts.iter().map(|(_, burst)| burst.sends).sum();
        statements::show(&harness.pool, "a send", sends.into()).await;
    }
    let (connections, best) =
        bursts.into_iter().max_by(|(_, one), (_, other)| one.rate().total_cmp(&other.rate())).expect("some");
    heading(&format!("Single sends, durable, over {connections} connections"));
    figure("Sends per second", best.rate(), "/s", Bar::AtLeast(6_000.0 * SEALING_US / sealing));
    best.report_cost(sealing, [Bar::AtMost(3.0), Bar::AtMost(1.3)]);
    figure("From request to answer, p50", best.ms(50), "ms", Bar::None);
    figure("From request to answer, p99", best.ms(99), "ms", Bar::None);

    let half_rate = (best.rate() / 2.0) as u32;
    if is_counting {
        statements::forget(&harness.pool).await;
    }
    let half = steady(&harness, app, &to, Way::Plain, half_rate, seconds).await;
    if is_counting {
        heading("What each statement took at half of that rate");
        statements::show(&harness.pool, "a send", half.sends.into()).await;
    }
    heading(&format!("Single sends at half of that rate, {}/s", number(half.rate())));
    half.report_cost(sealing, [Bar::None; 2]);
    figure("From request to answer, p50", half.ms(50), "ms", Bar::None);
    figure("From request to answer, p99", half.ms(99), "ms", Bar::AtMost(P99_MS));

    let bare = harness.bare().await;
    let (half, mut floor) =
        tokio::join!(steady(&harness, app, &to, Way::Plain, half_rate, seconds), bare.insert(BARE_PER_SECOND, seconds));
    heading(&format!("The same beside {BARE_PER_SECOND} commits/s of a bare client"));
    percentiles("Floor: a bare client's commit", &mut floor, [Bar::None; 2]);
    figure("From request to answer, p50", half.ms(50), "ms", Bar::None);
    figure("From request to answer, p99", half.ms(99), "ms", Bar::None);

    let batches = batches(&harness, app, &to, Duration::from_secs(seconds.into())).await;
    heading(&format!("Batches of {}, {BATCHES} at a time", number(BATCH as f64)));
    figure("Sends per second", batches.rate(), "/s", Bar::None);
    batches.report_cost(sealing, [Bar::None; 2]);
    figure("From request to answer, p50", batches.ms(50), "ms", Bar::None);

    codes::name_users(&harness.pool, app).await;
    burst(&harness, app, &to, Way::AsExamples, connections, Duration::from_secs(1)).await; // plans
    if is_counting {
        statements::forget(&harness.pool).await;
    }
    let time = Duration::from_secs(seconds.into());
    let as_examples = burst(&harness, app, &to, Way::AsExamples, connections, time).await;
    if is_counting {
        heading("What each statement took for users, under idempotency keys");
        statements::show(&harness.pool, "a send", as_examples.sends.into()).await;
    }
    heading(&format!("To a user, under an idempotency key, over {connections} connections"));
    figure("Sends per second", as_examples.rate(), "/s", Bar::None);
    as_examples.report_cost(sealing, [Bar::None; 2]);
    figure("From request to answer, p50", as_examples.ms(50), "ms", Bar::None);
    figure("From request to answer, p99", as_examples.ms(99), "ms", Bar::None);
    let half = steady(&harness, app, &to, Way::AsExamples, (as_examples.rate() / 2.0) as u32, seconds).await;
    heading(&format!("The same at half of that rate, {}/s", number(half.rate())));
    figure("From request to answer, p50", half.ms(50), "ms", Bar::None);
    figure("From request to answer, p99", half.ms(99), "ms", Bar::None);
}

/// Measures `sends`, which returns how long each request waited for its answer and is for `each` codes. The cost includes
/// deliveries, the time only what is durable.
async fn measure(harness: &Harness, each: usize, sends: impl Future<Output = Vec<Duration>>) -> Burst {
    sqlx::query("CHECKPOINT").execute(&harness.pool).await.expect("a checkpoint");
    let (received, before, began) = (harness.received().await, harness.usage(), Instant::now());
    let mut waits = sends.await;
    let took = began.elapsed();
    while sqlx::query_scalar("SELECT EXISTS (SELECT FROM queue)").fetch_one(&harness.pool).await.expect("an answer") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let usage = harness.usage() - before;
    let sent = waits.len() * each;
    assert_eq!(harness.received().await - received, sent as u64, "every code arrives once");
    waits.sort_unstable();
    Burst { sends: u32::try_from(sent).expect("fewer"), took, usage, waits }
}

/// Sends over so many connections, each as fast as it is answered.
async fn burst(
    harness: &Harness, app: AppId, to: &Arc<Vec<SubscriptionId>>, way: Way, connections: usize, time: Duration,
) -> Burst {
    let next = Arc::new(AtomicUsize::new(0));
    let path = format!("/v1/apps/{app}/messages");
    let clients = (0..connections).map(|_| {
        let (api, path, to, next) = (harness.api.clone(), path.clone(), to.clone(), next.clone());
        tokio::spawn(async move {
            let (mut waits, began) = (Vec::new(), Instant::now());
            while began.elapsed() < time {
                let to = to[next.fetch_add(1, Ordering::Relaxed) % to.len()];
                waits.push(timed(&api, &path, way, to).await);
            }
            waits
        })
    });
    let sends = async { join_all(clients).await.into_iter().flat_map(|waits| waits.expect("every code is taken")) };
    measure(harness, 1, async { sends.await.collect() }).await
}

/// Sends a request and returns the time until its response.
async fn timed(api: &Client, path: &str, way: Way, to: SubscriptionId) -> Duration {
    match way {
        Way::Plain => {
            let (body, asked) = (code(to), Instant::now());
            api.post(path, &body).await;
            asked.elapsed()
        }
        Way::AsExamples => {
            let (body, key, asked) = (code_to_user(to), Uuid::now_v7().to_string(), Instant::now());
            api.post_once(path, &body, &key).await;
            asked.elapsed()
        }
    }
}

/// Sends at a steady rate, whether or not earlier requests were answered.
async fn steady(
    harness: &Harness, app: AppId, to: &[SubscriptionId], way: Way, per_second: u32, seconds: u32,
) -> Burst {
    let path: Arc<str> = format!("/v1/apps/{app}/messages").into();
    let sends = async {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut requests = JoinSet::new();
        for to in to.iter().copied().cycle().take((per_second * seconds) as usize) {
            ticks.tick().await;
            let (api, path) = (harness.api.clone(), path.clone());
            requests.spawn(async move { timed(&api, &path, way, to).await });
        }
        requests.join_all().await
    };
    measure(harness, 1, sends).await
}

/// Sends batches, each when an earlier one was answered.
async fn batches(harness: &Harness, app: AppId, to: &[SubscriptionId], time: Duration) -> Burst {
    let path = format!("/v1/apps/{app}/messages/batch");
    let messages: Vec<_> = to.iter().copied().cycle().take(BATCH).map(code).collect();
    let body = json!({"messages": messages});
    let clients = (0..BATCHES).map(async |_| {
        let (mut waits, began) = (Vec::new(), Instant::now());
        while began.elapsed() < time {
            let asked = Instant::now();
            let sent = harness.api.post(&path, &body).await;
            assert_eq!(sent["accepted"], BATCH, "{sent}");
            waits.push(asked.elapsed());
        }
        waits
    });
    measure(harness, BATCH, async { join_all(clients).await.concat() }).await
}
