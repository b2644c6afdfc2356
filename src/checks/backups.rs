//! Whether there is a backup that is not too old, and whether something waits since the last restore.

use chrono::TimeDelta;

use super::Finding;
use crate::model::clock::Timestamp;
use crate::store::operations::backups::Known;
use crate::store::operations::restoring::Last;

/// Whoever makes a backup a day has missed one by then.
const OLD: TimeDelta = TimeDelta::hours(50);
/// A server that is only tried out needs none.
const NEW: TimeDelta = TimeDelta::days(7);
/// What makes one.
const BY: &str = "bellwire backup --output FILE";

/// How old the newest backup is.
pub(super) fn age(Known { last_at, since }: Known, now: Timestamp) -> Finding {
    let days = |since: Timestamp| (now - since).num_hours().max(0);
    match (last_at, since) {
        (Some(at), _) if now - at <= OLD => Finding::ok("backups", format!("the newest is {} hours old", days(at))),
        (Some(at), _) => Finding::warning("backups", format!("the newest is {} hours old", days(at)))
            .advise("What happened since would be lost with the disk.")
            .by(BY),
        (None, Some(since)) if now - since > NEW => Finding::warning("backups", "none was made that is known of")
            .advise("One that is made by other means is noted by `bellwire backup --made-elsewhere`.")
            .by(BY),
        (None, _) => Finding::ok("backups", "none was made yet"),
    }
}

/// Whether a restore has held something back that still waits.
pub(super) fn held(last: Option<Last>) -> Finding {
    let Some(Last { backed_up_at, restored_at, held }) = last else { return Finding::ok("restore", "never restored") };
    let [backed_up_at, restored_at] = [backed_up_at, restored_at].map(|at| at.format("%Y-%m-%d %H:%M:%SZ"));
    let detail = format!("restored at {restored_at} to where it was at {backed_up_at}");
    if held == 0 {
        return Finding::ok("restore", detail);
    }
    Finding::warning("restore", format!("{detail}; {held} campaigns and messages are held back"))
        .advise("They were pending then, and may have been sent since: let them go on, or cancel them.")
        .by("bellwire held list")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Health;

    const NOW: Timestamp = Timestamp::from_timestamp(1_800_000_000, 0).unwrap();

    #[test]
    fn a_backup_that_is_old_or_missing_is_told_of() {
        let hours = |n| Some(NOW - TimeDelta::hours(n));
        for (last_at, since, health) in [
            (hours(49), hours(10_000), Health::Ok),
            (hours(51), hours(10_000), Health::Warning),
            (None, hours(24 * 8), Health::Warning),
            (None, hours(24 * 6), Health::Ok),
            (None, None, Health::Ok),
        ] {
            assert_eq!(age(Known { last_at, since }, NOW).health, health, "{last_at:?} {since:?}");
        }
    }

    #[test]
    fn what_waits_since_a_restore_is_told_of_until_it_is_decided() {
        let last = |held| Some(Last { backed_up_at: NOW, restored_at: NOW, held });
        assert_eq!(held(None).health, Health::Ok);
        assert_eq!(held(last(0)).health, Health::Ok);
        assert_eq!(held(last(2)).health, Health::Warning);
    }
}
