//! Resources for the routes: created for each call, because many calls delete them.

use super::*;

impl Walk {
    pub(super) async fn message(&self, to: &str) -> String {
        let body = json!({"to": {"subscriptions": [to]}, "content": content()});
        text(&self.api.post("/messages", body).await.ok(202)["id"])
    }

    /// A campaign that stands as the route wants it.
    pub(super) async fn campaign(&self, route: &str, n: u32) -> String {
        let made = text(&self.api.post("/campaigns", campaign(1_000_000 + n)).await.ok(201)["id"]);
        let orders: &[&str] = match route.rsplit('/').next() {
            Some("pause" | "withdraw") => &["start"],
            Some("resume") => &["start", "pause"],
            _ => &[],
        };
        for order in orders {
            self.api.post(&format!("/campaigns/{made}/{order}"), json!({})).await.ok(200);
        }
        made
    }

    /// The first run of a campaign.
    pub(super) async fn run(&self, campaign: &str) -> String {
        let campaign = campaign.strip_prefix("cmp_").unwrap();
        let insert =
            "INSERT INTO campaign_runs (campaign, run, at, root) VALUES ($1::text::uuid, 1, $2, $1::text::uuid)";
        let made = sqlx::query(insert).bind(campaign).bind(self.api.clock.now()).execute(&self.api.pool).await;
        made.unwrap();
        "1".to_owned()
    }

    pub(super) async fn dead_letter(&self, to: &str) -> String {
        let message: MessageId = self.message(to).await.parse().unwrap();
        let subscription: SubscriptionId = to.parse().unwrap();
        let id = uuid_of(self.api.clock.now());
        sqlx::query(
            "INSERT INTO dead_letters (app, id, shard, message, subscription, lane, tier, reason, retries, at)
             SELECT app, $1, shard, $2, id, lane, 2, 'bad_request', 0, $3 FROM subscriptions WHERE id = $4",
        )
        .bind(id)
        .bind(message.0)
        .bind(self.api.clock.now())
        .bind(subscription.0)
        .execute(&self.api.pool)
        .await
        .unwrap();
        DeadLetterId(id).to_string()
    }

    /// Teammate that owns the resources: the caller.
    pub(super) fn owner(&self, of: Option<Shown>) -> TeammateId {
        let owner = self.teammates.iter().find(|(shown, ..)| of.is_none_or(|of| of == *shown)).expect("a teammate");
        owner.2.parse().unwrap()
    }

    pub(super) async fn passkey(&self, of: Option<Shown>) -> String {
        let id = uuid_of(self.api.clock.now());
        sqlx::query(
            "INSERT INTO passkeys (id, teammate, name, credential_id, public_key, algorithm, counter, transports, created_at)
             VALUES ($1, $2, 'n', uuid_send($1), '\\x00', -7, 0, '{}', $3)",
        )
        .bind(id)
        .bind(self.owner(of).0)
        .bind(self.api.clock.now())
        .execute(&self.api.pool)
        .await
        .unwrap();
        format!("pk_{id}")
    }

    /// Response of an authenticator for this caller.
    pub(super) async fn made_passkey(&self, shown: Shown, n: u32) -> Option<Value> {
        let headers = [("cookie", self.cookie(shown)?), ("sec-fetch-site", "same-origin")];
        let begin = "/v1/session/passkeys/options";
        let begun = self.api.call_with(Method::POST, begin, None, None, &headers).await;
        let mut authenticator = Authenticator::new(u8::try_from(n % 250).unwrap() + 1);
        Some(authenticator.make(begun.json.get("options")?))
    }

    pub(super) async fn session(&self, of: Option<Shown>) -> String {
        let (id, owner) = (uuid_of(self.api.clock.now()), self.owner(of));
        sqlx::query(
            "INSERT INTO sessions (id, teammate, began_at, seen_at, expires_at)
             VALUES ($1, $2, $3, $3, $3::timestamptz + interval '1 hour')",
        )
        .bind(id)
        .bind(owner.0)
        .bind(self.api.clock.now())
        .execute(&self.api.pool)
        .await
        .unwrap();
        format!("ses_{id}")
    }

    pub(super) async fn alert(&self, n: u32) -> String {
        let (app, subject) = (None, n.to_string());
        let alert = Alert { app, kind: AlertKind::Sli, subject: &subject, detail: "walk" };
        alerts::raise(&mut self.api.pool.acquire().await.unwrap(), &alert, self.api.clock.now()).await.unwrap();
        let id = sqlx::query_scalar("SELECT id FROM alerts WHERE subject = $1").bind(&subject);
        bellwire_core::id::AlertId(id.fetch_one(&self.api.pool).await.unwrap()).to_string()
    }
}
