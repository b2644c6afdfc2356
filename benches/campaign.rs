//! A campaign over TLS with durable outcomes: deliveries per second, and CPU per delivery of server, Postgres and
//! simulator apart.
#![allow(clippy::print_stdout, missing_docs)]

#[path = "support/cpu.rs"]
mod cpu;

use std::io::BufRead;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwire::clock::Clock;
use bellwire::dispatch::{Dispatcher, Settings};
use bellwire::gateway::{self, Gateways};
use bellwire::id::SubscriptionId;
use bellwire::message::{Content, Notification};
use bellwire::postgres::{Embedded, Options};
use bellwire::simulator;
use bellwire::store::copy::Rows;
use bellwire::store::{self, data_keys, partitions};
use bellwire::subscription::decode_base64;
use bellwire::vault::{self, Purpose, Vault};
use bellwire::webpush::keys::SigningKey;
use sqlx::PgPool;

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if args.get(1).is_some_and(|arg| arg == "--simulator") {
        return runtime.block_on(simulator_process(&args[2], &args[3]));
    }
    let n = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    runtime.block_on(campaign(n));
}

async fn simulator_process(ca: &str, sample: &str) {
    use clap::Parser;
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: simulator::Args,
    }
    let cli = Cli::parse_from(["simulator", "--sample", sample, "--ca-file", ca]);
    simulator::run(cli.args, std::future::pending(), std::io::stdout()).await.unwrap();
}

async fn campaign(n: u32) {
    let dir = std::env::temp_dir().join(format!("bellwire-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let ca = dir.join("ca.pem");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--simulator", ca.to_str().unwrap(), "100"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let started: serde_json::Value = serde_json::from_str(&line).unwrap();
    let hosts: Vec<simulator::HostMapping> = serde_json::from_value(started["hosts"].clone()).unwrap();

    let options = Options {
        data_dir: dir.join("data"),
        search_path: std::env::var_os("PATH"),
        ephemeral: true,
        ..Options::default()
    };
    let postgres = Embedded::start(&options).unwrap();
    let database = postgres.connect_options("postgres");
    store::migrate(&database).await.unwrap();
    let pool = store::connect(store::by_index_only(database), 16).await.unwrap();
    let clock = Clock::system();
    partitions::ensure(&pool, clock.now()).await.unwrap();
    let key = data_keys::Source::Given(data_keys::MasterKey::generate());
    let vault = data_keys::open(&pool, &key, clock.now()).await.unwrap();
    let began = Instant::now();
    let app = seed(&pool, &vault, &clock, n).await;
    println!("seeded {n} in {:.1?}", began.elapsed());
    let gateways = Gateways::new(gateway::Settings {
        hosts: hosts
            .iter()
            .map(|h| gateway::HostMapping { host: h.host.clone(), gateway: h.gateway, address: Some(h.addr) })
            .collect(),
        extra_ca_pem: Some(std::fs::read(&ca).unwrap()),
        allow_loopback: true,
        ..gateway::Settings::default()
    })
    .unwrap();
    let sealers = std::env::var("SEALERS").ok().and_then(|n| n.parse().ok()).unwrap_or(Settings::default().sealers);
    let (dispatcher, _tasks) = Dispatcher::start(
        pool.clone(),
        vault.clone(),
        clock.clone(),
        gateways,
        bellwire::metrics::Metrics::new(),
        Settings { sealers, ..Settings::default() },
    );
    run(&dispatcher, &pool, &vault, &clock, app, n, &postgres, &child).await;
    finish(child, &dir);
}

fn finish(mut child: Child, dir: &std::path::Path) {
    let _ = child.kill();
    let _ = child.wait();
    let _ = std::fs::remove_dir_all(dir);
}

async fn seed(pool: &PgPool, vault: &Vault, clock: &Clock, n: u32) -> uuid::Uuid {
    let app = clock.uuid();
    let key_id = clock.uuid();
    let key = SigningKey::generate();
    let now = clock.now();
    sqlx::query("INSERT INTO apps (id, slug, name, created_at) VALUES ($1, 'bench', 'Bench', $2)")
        .bind(app)
        .bind(now)
        .execute(pool)
        .await
        .unwrap();
    sqlx::query("INSERT INTO vapid_keys (id, app, public_key, private_key, subject, state, created_at) VALUES ($1, $2, $3, $4, 'mailto:ops@example.com', 'active', $5)")
        .bind(key_id).bind(app).bind(key.public().to_vec()).bind(vault.seal(vault::VAPID_PRIVATE, key_id, key.expose_private())).bind(now)
        .execute(pool).await.unwrap();
    let gateways = ["fcm", "mozilla", "wns", "apple"];
    let mut lanes = Vec::new();
    for gateway in gateways {
        lanes.push(
            sqlx::query_scalar::<_, i32>(
                "INSERT INTO lanes (app, vapid_key, gateway) VALUES ($1, $2, $3) RETURNING id",
            )
            .bind(app)
            .bind(key_id)
            .bind(gateway)
            .fetch_one(pool)
            .await
            .unwrap(),
        );
    }
    // The endpoints are the simulator's, which derives them from the seed: an in-process twin mints them.
    let twin = simulator::Simulator::start(simulator::Options::default()).await.unwrap();
    let hosts = gateways.map(|gateway| format!("{gateway}.bellwire.test"));
    let mut at = 0;
    while at < n {
        let mut rows = Rows::new(12, 10_000);
        for index in at..(at + 10_000).min(n) {
            let which = index as usize % 4;
            let minted = twin.mint(&hosts[which], index, Some(key.public())).unwrap();
            let id = SubscriptionId::new(clock.uuid(), (index % 64) as u8);
            let mut address = decode_base64(&minted.p256dh).unwrap();
            address.extend(decode_base64(&minted.auth).unwrap());
            address.extend_from_slice(minted.endpoint.as_bytes());
            let mac = vault.mac(Purpose::Endpoint, &[app.as_bytes(), minted.endpoint.as_bytes()]);
            rows.row()
                .smallint(id.shard())
                .uuid(id.0)
                .uuid(app)
                .integer(lanes[which])
                .text_or_null(Some("active"))
                .uuid(id.0)
                .timestamp(now)
                .bytes(&mac)
                .bytes(&vault.seal(vault::ADDRESS, id.0, &address))
                .smallint(1)
                .timestamp(now)
                .timestamp(now);
        }
        rows.send(&mut *pool.acquire().await.unwrap(), "COPY subscriptions (shard, id, app, lane, state, origin_id, since, endpoint_mac, address, token_version, last_seen, created_at) FROM STDIN (FORMAT binary)").await.unwrap();
        at += 10_000;
    }
    sqlx::query("VACUUM ANALYZE subscriptions").execute(pool).await.unwrap();
    sqlx::query("CHECKPOINT").execute(pool).await.unwrap();
    app
}

#[allow(clippy::too_many_arguments)]
async fn run(
    dispatcher: &Arc<Dispatcher>,
    pool: &PgPool,
    vault: &Vault,
    clock: &Clock,
    app: uuid::Uuid,
    n: u32,
    postgres: &Embedded,
    simulator: &Child,
) {
    let (me, pg, sim) = (std::process::id() as i32, postgres.postmaster().unwrap(), simulator.id() as i32);
    for round in 0..std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2) {
        let message = clock.uuid();
        let content = Content::Notification {
            content: Box::new(Notification {
                title: "Fresh in the shop".into(),
                body: Some("x".repeat(180)),
                url: Some("https://example.com/new".into()),
                ..Notification::default()
            }),
            compact: None,
        };
        let content = vault.seal(vault::CONTENT, message, &serde_json::to_vec(&content).unwrap());
        let now = clock.now();
        sqlx::query("INSERT INTO messages (id, app, tier, state, audience, content, ttl_s, urgency, audience_estimate, accepted_at, expires_at) VALUES ($1, $2, 2, 'sending', '{}', $3, 86400, 2, $4, $5, $6)")
            .bind(message).bind(app).bind(content).bind(i64::from(n)).bind(now).bind(now + Duration::from_secs(86_400)).execute(pool).await.unwrap();
        let before = (cpu::of_process(me), cpu::of_tree(pg), cpu::of_process(sim));
        let began = Instant::now();
        sqlx::query("INSERT INTO cursors (message, lane, tier, after, due_at) SELECT $1, id, 2, $3, $2 FROM lanes")
            .bind(message)
            .bind(now)
            .bind(uuid::Uuid::nil())
            .execute(pool)
            .await
            .unwrap();
        dispatcher.kick();
        let mut last = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let (targeted, accepted): (i64, i64) = sqlx::query_as("SELECT coalesce(sum(targeted), 0)::bigint, coalesce(sum(accepted), 0)::bigint FROM message_counts WHERE message = $1").bind(message).fetch_one(pool).await.unwrap();
            let rest: i64 = sqlx::query_scalar("SELECT (SELECT count(*) FROM cursors WHERE message = $1) + (SELECT count(*) FROM pages WHERE message = $1) + (SELECT count(*) FROM queue WHERE message = $1)").bind(message).fetch_one(pool).await.unwrap();
            if std::env::var("V").is_ok() {
                println!(
                    "{:>6.1?} targeted {targeted} accepted {accepted} (+{}) rest {rest} load {:?}",
                    began.elapsed(),
                    accepted - last,
                    dispatcher.load()
                );
            }
            last = accepted;
            if rest == 0 && targeted >= i64::from(n) {
                break;
            }
        }
        let took = began.elapsed();
        let after = (cpu::of_process(me), cpu::of_tree(pg), cpu::of_process(sim));
        let per = |a: Duration, b: Duration| (b - a).as_secs_f64() * 1e6 / f64::from(n);
        println!(
            "round {round}: {:.0}/s in {took:.1?}; CPU-us per delivery: server {:.1}, postgres {:.1}, simulator {:.1}; rss {:?} KiB; accepted {last}",
            f64::from(n) / took.as_secs_f64(),
            per(before.0, after.0),
            per(before.1, after.1),
            per(before.2, after.2),
            cpu::resident_kib(me)
        );
    }
}
