//! Counts of messages, and sums that are checked at the end of every test.

use std::collections::BTreeMap;

use bellwire::testkit::server::maintenance;

use super::TestApp;
use super::app::scalar;

impl TestApp {
    /// For tests whose gateways find fault on purpose.
    pub async fn check_accounts(&self) {
        let leased: i64 = scalar(&self.pool, "SELECT count(*) FROM queue WHERE lease IS NOT NULL").await;
        let batches: i64 = scalar(&self.pool, "SELECT count(*) FROM batches").await;
        assert_eq!((leased, batches), (0, 0), "leased rows and open batches at the end");
        let broken: i64 = scalar(
            &self.pool,
            "WITH logged AS MATERIALIZED (SELECT message, count(*) AS n FROM attempts WHERE ending <> 2 GROUP BY message)
             SELECT count(*) FROM (
                SELECT m.id, sum(c.targeted) AS targeted,
                       sum(c.accepted + c.gone + c.expired + c.dead + c.cancelled + c.capped) AS ended,
                       (SELECT count(*) FROM queue q WHERE q.message = m.id) AS waiting,
                       coalesce((SELECT n FROM logged l WHERE l.message = m.id), 0) AS logged
                FROM messages m JOIN message_counts c ON c.message = m.id GROUP BY m.id
             ) account WHERE targeted <> ended + waiting OR ended <> logged",
        )
        .await;
        assert_eq!(broken, 0, "messages whose account does not add up");
        let miscounted: i64 = scalar(
            &self.pool,
            "SELECT count(*) FROM (SELECT 1 FROM (
                SELECT topic, lane, n FROM audiences
                UNION ALL SELECT 0, lane, -1 FROM subscriptions WHERE state = 'active'
                UNION ALL SELECT topic, lane, -1 FROM topic_members
             ) kept (topic, lane, n) GROUP BY topic, lane HAVING sum(n) <> 0) miscounted",
        )
        .await;
        assert_eq!(miscounted, 0, "audiences whose kept count is not what there is");
        maintenance::fold_metrics(&self.pool).await.expect("the database answers");
        // Rollups outlive messages and their counts.
        let missing: i64 = scalar(
            &self.pool,
            "SELECT count(*) FROM (
                SELECT c.message, c.lane, e.fact, e.n FROM message_counts c JOIN messages m ON m.id = c.message, LATERAL
                    (VALUES (1, accepted), (3, gone), (4, expired), (5, dead), (6, cancelled), (7, capped)) e (fact, n)
             ) ended FULL JOIN (
                SELECT message, lane, u.fact, sum(u.n) AS n FROM rollups, unnest(facts, ns) u (fact, n)
                WHERE step = 3 AND u.fact IN (1, 3, 4, 5, 6, 7) GROUP BY message, lane, u.fact
             ) rolled USING (message, lane, fact)
             WHERE message IN (SELECT id FROM messages WHERE audience_estimate > 100)
               AND coalesce(ended.n, 0) <> coalesce(rolled.n, 0)",
        )
        .await;
        assert_eq!(missing, 0, "large messages whose figures over time are not their account");
        let missing: i64 = scalar(
            &self.pool,
            "SELECT count(*) FROM (SELECT FROM (
                SELECT lane, e.fact, e.n FROM message_counts, LATERAL
                    (VALUES (1, accepted), (3, gone), (4, expired), (5, dead), (6, cancelled), (7, capped)) e (fact, n)
                UNION ALL SELECT lane, u.fact, -u.n FROM rollups, unnest(facts, ns) u (fact, n)
                WHERE step = 3 AND message = '00000000-0000-0000-0000-000000000000' AND lane > 0
             ) ended (lane, fact, n) GROUP BY lane, fact HAVING sum(n) > 0) missing",
        )
        .await;
        assert_eq!(missing, 0, "lanes with outcomes that figures over time know nothing of");
    }
}

/// Counts of a message that are not zero, as a test expects them.
pub fn counts(expected: &[(&str, i64)]) -> BTreeMap<String, i64> {
    expected.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
}
