//! Idle mode: a process that is alone on its database polls less often until something happens.
//!
//! In idle mode, no other process can have stopped, ordered or sent anything without a notification to this one: each changing
//! API request ends the mode. With other processes on the same database, including commands, this process is never idle.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// Polling interval in idle mode for state that only others change, and maximum delay of such state.
pub const AT_REST: Duration = Duration::from_secs(60);
/// Time without due, new or active deliveries after which the process is idle.
const CALM_FOR: Duration = Duration::from_secs(5);

/// Idle state of a process, shared by its dispatch and its maintenance.
#[derive(Debug)]
pub struct Rest {
    state: Mutex<IdleState>,
    resting: watch::Sender<bool>,
}

#[derive(Debug)]
struct IdleState {
    calm_since: Instant,
    is_alone: bool,
}

impl Default for Rest {
    fn default() -> Self {
        let state = IdleState { calm_since: Instant::now(), is_alone: false };
        Self { state: Mutex::new(state), resting: watch::Sender::new(false) }
    }
}

impl Rest {
    /// Ends idle mode, because something happened.
    pub fn wake(&self) {
        self.state.lock().calm_since = Instant::now();
        if self.is_resting() {
            self.resting.send_replace(false);
        }
    }

    /// Records whether this process is the only one on its database.
    pub(super) fn alone(&self, is_alone: bool) {
        self.state.lock().is_alone = is_alone;
        if !is_alone && self.is_resting() {
            self.resting.send_replace(false);
        }
    }

    /// Whether nothing has happened for long enough. It may not be alone.
    pub(super) fn is_calm(&self) -> bool {
        self.state.lock().calm_since.elapsed() >= CALM_FOR
    }

    /// Enters idle mode if the conditions are met.
    pub(super) fn lie_down(&self) {
        let state = self.state.lock();
        if state.is_alone && state.calm_since.elapsed() >= CALM_FOR {
            self.resting.send_if_modified(|resting| !std::mem::replace(resting, true));
        }
    }

    pub fn is_resting(&self) -> bool {
        *self.resting.borrow()
    }

    /// Waits for `awake`, or in idle mode for `at_rest`. The end of idle mode ends the wait.
    pub async fn pause(&self, awake: Duration, at_rest: Duration) {
        if !self.is_resting() {
            return sleep(awake).await;
        }
        let mut resting = self.resting.subscribe();
        tokio::select! {
            () = sleep(at_rest) => {}
            _ = resting.wait_for(|resting| !resting) => {}
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/dispatch/unit/idle.rs"]
mod tests;
