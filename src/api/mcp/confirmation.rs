//! Confirmation of a send: the caller repeats the number of recipients that a dry run returned.

use serde_json::{Value, json};

/// Recipients of a send, counted by its dry run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Recipients {
    count: i64,
    /// Margin of an estimate; 0 if counted.
    margin: i64,
}

/// Returns the refusal of a send whose number of recipients is not confirmed. An estimate is confirmed within its margin.
pub(super) fn refusal(expected: Option<i64>, dry_run: &Value) -> Option<Value> {
    let more = dry_run["more_messages"].as_i64().unwrap_or(0);
    if more > 0 {
        let next = "Nothing was sent: this campaign has too many messages to count. Start it by the admin page or the command line.";
        return Some(json!({"sent": false, "next": next, "dry_run": dry_run}));
    }
    let Recipients { count, margin } = recipients(dry_run);
    let reason = match expected {
        Some(expected) if expected.abs_diff(count) <= margin.unsigned_abs() => return None,
        Some(expected) => format!("the number of recipients is {count}, not {expected}"),
        None => "a send needs the number of its recipients".to_owned(),
    };
    let next = format!("Nothing was sent: {reason}. To send, call again with expected_recipients {count}.");
    Some(json!({"sent": false, "recipients": count, "margin": margin, "next": next, "dry_run": dry_run}))
}

/// Sums the estimates of a dry run, or returns its number of matches.
fn recipients(dry_run: &Value) -> Recipients {
    if let Some(count) = dry_run["matched"].as_i64() {
        return Recipients { count, margin: 0 };
    }
    let own = std::iter::once(dry_run).chain(dry_run["messages"].as_array().into_iter().flatten());
    own.fold(Recipients::default(), |sum, message| {
        let of = |member: &str| message[member].as_i64().unwrap_or(0);
        Recipients {
            count: sum.count.saturating_add(of("audience_estimate")),
            margin: sum.margin.saturating_add(of("audience_margin")),
        }
    })
}

#[cfg(test)]
#[path = "../../../tests/unit/api/mcp/confirmation.rs"]
mod tests;
