//! Checks of the age of the last backup, and of work that a restore holds back.

use chrono::TimeDelta;

use super::CheckResult;
use bellwire_core::clock::Timestamp;
use bellwire_store::operations::backups::BackupStatus;
use bellwire_store::operations::restoring::{HeldCount, Last};

/// Age of the last backup from which it is too old: a daily backup was missed.
const OLD: TimeDelta = TimeDelta::hours(50);
/// Age of a server from which it needs a backup.
const NEW: TimeDelta = TimeDelta::days(7);
const BY: &str = "bellwire backup --output FILE";

/// Checks the age of the last backup.
pub(super) fn age(BackupStatus { last_at, since }: BackupStatus, now: Timestamp) -> CheckResult {
    let days = |since: Timestamp| (now - since).num_hours().max(0);
    match (last_at, since) {
        (Some(at), _) if now - at <= OLD => CheckResult::ok("backups", format!("the newest is {} hours old", days(at))),
        (Some(at), _) => CheckResult::warning("backups", format!("the newest is {} hours old", days(at)))
            .advise("If the disk fails, all later changes are lost.")
            .by(BY),
        (None, Some(since)) if now - since > NEW => CheckResult::warning("backups", "no backup is recorded")
            .advise("Record a backup made by other means with `bellwire backup --made-elsewhere`.")
            .by(BY),
        (None, _) => CheckResult::ok("backups", "no backup exists yet"),
    }
}

/// Checks for campaigns and messages that the last restore still holds back.
pub(super) fn held(last: Option<Last>) -> CheckResult {
    let Some(Last { backed_up_at, restored_at, held }) = last else {
        return CheckResult::ok("restore", "never restored");
    };
    let [backed_up_at, restored_at] = [backed_up_at, restored_at].map(|at| at.format("%Y-%m-%d %H:%M:%SZ"));
    let detail = format!("restored at {restored_at} to where it was at {backed_up_at}");
    let HeldCount { campaigns, messages } = held;
    if campaigns + messages == 0 {
        return CheckResult::ok("restore", detail);
    }
    CheckResult::warning("restore", format!("{detail}; {campaigns} campaigns and {messages} messages are held back"))
        .advise("They were pending then, and may have been sent since: resume or cancel them.")
        .by("bellwire held list")
}

#[cfg(test)]
#[path = "../../tests/unit/checks/backups.rs"]
mod tests;
