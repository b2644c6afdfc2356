//! Notes of settlements, for metrics: see [`rollups`](super::rollups). Notes are only inserted, so no transaction waits for
//! another.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use crate::outcomes::ledger::settlement::{End, Fate, Settlement};
use crate::outcomes::ledger::take::QueuedDelivery;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Ending;
use bellwire_core::fact::{Fact, FactCounts, StatusClass, wait_class};
use bellwire_core::id::{LaneId, MessageId};

/// Maximum recipients of a message without metrics of its own. Larger messages are fanned out in batches; one-time codes would
/// leave three rows each.
pub const CHARTED_ABOVE: i64 = 100;

/// Returns the facts of a settled delivery. A delivery in flight has none.
pub fn facts(settlement: &Settlement) -> impl Iterator<Item = Fact> + '_ {
    let answers = settlement.attempts().flat_map(|(attempt, ending)| {
        let was_sent = attempt.status.is_some() || attempt.took_ms.is_some();
        let answer = was_sent.then(|| Fact::Posted(StatusClass::of(attempt.status)));
        let retried = (ending == Ending::Retry).then_some(Fact::Ended(Ending::Retry));
        [answer, retried].into_iter().flatten()
    });
    let ended = settlement.end().map(End::ending);
    let accepted_at = match settlement.fate() {
        Fate::Ended(last, End::Accepted) => Some(last.at),
        _ => None,
    };
    let origin = settlement.delivery().origin;
    let waited = accepted_at.map(|at| Fact::Waited(wait_class((at - origin.free_at).to_std().unwrap_or_default())));
    let asked = accepted_at.filter(|_| origin.enveloped).map(|_| Fact::ReceiptAsked);
    answers.chain(ended.map(Fact::Ended)).chain(waited).chain(asked)
}

/// Returns all facts of a batch's settlements as two arrays: facts and counts.
pub fn of_batch(settlements: &[Settlement]) -> (Vec<i16>, Vec<i64>) {
    let mut counts = FactCounts::default();
    settlements.iter().flat_map(facts).for_each(|fact| counts.add(fact));
    counts.stored().unzip()
}

/// Facts of queue rows. Rows with the same facts, lane, tier and message share a profile number, so that the statement only
/// counts numbers of settled rows.
#[derive(Debug, Default)]
pub struct Profiles {
    known: BTreeMap<Profile, i32>,
}

type Profile = (LaneId, i16, Option<MessageId>, Vec<i16>);

/// Fact of a profile: number, lane, tier, message and fact.
type ProfileFact = (i32, LaneId, i16, Option<MessageId>, i16);

impl Profiles {
    pub fn of(&mut self, settlement: &Settlement) -> i32 {
        let facts = facts(settlement).map(Fact::code).collect();
        let next = i32::try_from(self.known.len()).expect("a group has some hundred rows");
        let of = settlement.delivery();
        let profile = (of.lane, of.tier.code(), settlement.charted(), facts);
        *self.known.entry(profile).or_insert(next)
    }

    /// Returns the facts of each profile.
    pub fn told(&self) -> Vec<ProfileFact> {
        let facts = self.known.iter().flat_map(|((lane, tier, message, facts), number)| {
            facts.iter().map(|fact| (*number, *lane, *tier, *message, *fact))
        });
        facts.collect()
    }
}

/// Writes notes of deliveries that ended without another POST.
pub async fn write_unsent(
    conn: &mut PgConnection, rows: &[QueuedDelivery], ending: Ending, now: Timestamp,
) -> sqlx::Result<()> {
    // Only what a receipt came for ends as accepted here: it was asked for.
    let facts: Vec<i16> = match ending {
        Ending::Accepted => vec![Fact::Ended(ending).code(), Fact::ReceiptAsked.code()],
        _ => vec![Fact::Ended(ending).code()],
    };
    execute!(
        conn,
        "INSERT INTO rollup_notes (minute, lane, tier, message, fact, n)
         SELECT date_trunc('minute', $1::timestamptz), ended.lane, ended.tier, ended.message, f.fact, ended.n
         FROM (SELECT w.lane, w.tier, m.id AS message, count(*) AS n
               FROM unnest($2::integer[], $3::smallint[], $4::uuid[]) AS w (lane, tier, message)
               LEFT JOIN messages m ON m.id = w.message AND m.audience_estimate > $6
               GROUP BY w.lane, w.tier, m.id) ended,
              unnest($5::smallint[]) AS f (fact)",
        (now),
        rows,
        |row| (row.lane, row.tier, row.message),
        (&facts, CHARTED_ABOVE)
    )
}
