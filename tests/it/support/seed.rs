//! Many subscriptions at once, past the API.

use std::ops::Range;

use bellwire_core::base64url;
use bellwire_core::id::{AppId, SubscriptionId};
use bellwire_store::audience::registration::endpoint_mac;
use bellwire_store::outcomes::copy::Rows;
use bellwire_vault as vault;
use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::TestApp;
use super::app::Subscriber;

const COPY: &str = "COPY subscriptions (shard, id, app, lane, state, origin_id, since, endpoint_mac, address, \
                    token_version, last_seen, created_at) FROM STDIN (FORMAT binary)";

/// Registers the simulated browsers of these indices at `{gateway}.bellwire.test`: the first through the API, which
/// makes the lane, the others like it.
pub async fn seed(app: &TestApp, gateway: &str, indices: Range<u32>) {
    seed_in(app, gateway, indices, |_, index| (index % 64) as u8).await;
}

/// The same, all in one logical shard: on Citus, too, they make one batch. Answers them in order.
pub async fn seed_together(app: &TestApp, gateway: &str, indices: Range<u32>) -> Vec<Subscriber> {
    seed_in(app, gateway, indices, |first, _| u8::try_from(first.shard()).expect("one of 64")).await
}

async fn seed_in(
    app: &TestApp, gateway: &str, indices: Range<u32>, shard: fn(SubscriptionId, u32) -> u8,
) -> Vec<Subscriber> {
    let mut seeded = app.subscribe(gateway, indices.start..indices.start + 1).await;
    let first: SubscriptionId = seeded[0].id.parse().expect("an id");
    let (owner, lane): (AppId, i32) = sqlx::query_as("SELECT app, lane FROM subscriptions WHERE id = $1")
        .bind(first.0)
        .fetch_one(&app.pool)
        .await
        .expect("it was registered");
    let now = app.clock.now();
    let others = i64::try_from(indices.len()).expect("few") - 1;
    let mut rows = Rows::new(12, indices.len());
    for index in indices.skip(1) {
        let host = format!("{gateway}.bellwire.test");
        let minted = app.simulator.mint(&host, index, Some(&app.application_server_key)).expect("a host of ours");
        let id = SubscriptionId::new(app.clock.uuid(), shard(first, index));
        let mut address = base64url::decode_any(&minted.p256dh).expect("base64");
        address.extend(base64url::decode_any(&minted.auth).expect("base64"));
        address.extend_from_slice(minted.endpoint.as_bytes());
        rows.row()
            .smallint(id.shard())
            .uuid(id.0)
            .uuid(owner.0)
            .integer(lane)
            .text_or_null(Some("active"))
            .uuid(id.0)
            .timestamp(now)
            .bytes(&endpoint_mac(&app.vault, owner, &minted.endpoint))
            .bytes(&app.vault.seal(vault::ADDRESS, id.0, &address))
            .integer(1)
            .timestamp(now)
            .timestamp(now);
        seeded.push(Subscriber { id: id.to_string(), endpoint: minted.endpoint });
    }
    let mut connection = app.pool.acquire().await.expect("a connection");
    rows.send(&mut connection, COPY).await.expect("subscriptions");
    note(&mut connection, lane, others, now).await;
    seeded
}

/// Notes that so many subscriptions came to a lane, where no trigger saw it.
pub async fn note(conn: &mut PgConnection, lane: i32, n: i64, at: DateTime<Utc>) {
    // A thing won is fact 40.
    let note = "INSERT INTO audience_changes (topic, lane, n, at, fact) SELECT 0, $1, $2, $3, 40
                WHERE NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'subscriptions'::regclass AND tgname = 'subscriptions_gained')";
    sqlx::query(note).bind(lane).bind(n).bind(at).execute(conn).await.expect("a note");
}
