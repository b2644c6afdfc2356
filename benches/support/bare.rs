//! The floor under one-time codes: a client that only inserts what a send inserts, on the same Postgres beside the same load.

use std::time::{Duration, Instant};

use bellwire_core::clock::Clock;
use bellwire_store as store;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use uuid::Builder;

/// As many connections as never make it wait for one of them.
const CONNECTIONS: u32 = 16;
/// Octets of a sealed code.
const CONTENT: usize = 150;

/// A client with tables of its own, which have all that the server's have but for rows.
pub struct Bare {
    pool: PgPool,
}

impl Bare {
    /// Makes the tables, opens all connections and prepares the statement on each.
    pub async fn open(options: PgConnectOptions) -> Self {
        let pool = store::connect(options, CONNECTIONS).await.expect("the database takes connections");
        sqlx::raw_sql(
            "CREATE SCHEMA floor;
             CREATE TABLE floor.messages (LIKE messages INCLUDING ALL);
             CREATE TABLE floor.queue (LIKE queue INCLUDING ALL);
             CREATE TABLE floor.message_counts (LIKE message_counts INCLUDING ALL)",
        )
        .execute(&pool)
        .await
        .expect("tables beside the server's");
        let bare = Self { pool };
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS {
            held.push(bare.pool.acquire().await.expect("a connection"));
        }
        drop(held);
        bare
    }

    /// Inserts at a steady rate, whether or not earlier ones have committed. How long each took from its time on, in ms.
    pub async fn insert(&self, per_second: u32, seconds: u32) -> Vec<f64> {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut inserts = JoinSet::new();
        for _ in 0..per_second * seconds {
            ticks.tick().await;
            let pool = self.pool.clone();
            inserts.spawn(async move {
                let began = Instant::now();
                insert(&pool).await;
                began.elapsed().as_secs_f64() * 1e3
            });
        }
        inserts.join_all().await
    }
}

/// A message, its row in the queue and its account, committed.
async fn insert(pool: &PgPool) {
    sqlx::query(
        "WITH message AS (
           INSERT INTO floor.messages (id, app, tier, state, audience, content, ttl_s, urgency, enveloped, audience_estimate,
             accepted_at, expires_at)
           VALUES ($1, $2, 1, 'sending', '{}', $3, 600, 3, true, 1, now(), now() + interval '10 minutes')),
         queued AS (
           INSERT INTO floor.queue (shard, subscription, message, lane, tier, due_at, scheduled_at, lease, leases, token)
           VALUES (0, $2, $1, 1, 1, now() + interval '30 seconds', now(), $2, 1, sha256('')))
         INSERT INTO floor.message_counts (message, lane, targeted) VALUES ($1, 1, 1)",
    )
    .bind(Clock::system().uuid())
    .bind(Builder::from_random_bytes(rand::random()).into_uuid())
    .bind(vec![7_u8; CONTENT])
    .execute(pool)
    .await
    .expect("Postgres takes it");
}
