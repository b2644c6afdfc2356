//! When nothing happens: a process that is alone on its database asks it less often, until something happens.
//!
//! Nobody else can then have stopped, ordered or sent anything that this process does not hear of at once, but for the command
//! line's, which waits for a second at most. With others on the same database it never rests.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// It rests when nothing has been due, born or under way for so long.
const CALM_FOR: Duration = Duration::from_secs(5);

/// Whether a process rests. Shared by its engine and its maintenance.
#[derive(Debug)]
pub(crate) struct Rest {
    state: Mutex<State>,
    resting: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    calm_since: Instant,
    is_alone: bool,
}

impl Default for Rest {
    fn default() -> Self {
        let state = State { calm_since: Instant::now(), is_alone: false };
        Self { state: Mutex::new(state), resting: watch::Sender::new(false) }
    }
}

impl Rest {
    /// Something happens: it rests no more.
    pub(crate) fn wake(&self) {
        self.state.lock().calm_since = Instant::now();
        if self.is_resting() {
            self.resting.send_replace(false);
        }
    }

    /// Whether this process is the only one on its database.
    pub(super) fn alone(&self, is_alone: bool) {
        self.state.lock().is_alone = is_alone;
        if !is_alone && self.is_resting() {
            self.resting.send_replace(false);
        }
    }

    /// Whether nothing has happened for long enough, be it alone or not.
    pub(super) fn is_calm(&self) -> bool {
        self.state.lock().calm_since.elapsed() >= CALM_FOR
    }

    /// Begins to rest if it may.
    pub(super) fn lie_down(&self) {
        let state = self.state.lock();
        if state.is_alone && state.calm_since.elapsed() >= CALM_FOR {
            self.resting.send_if_modified(|resting| !std::mem::replace(resting, true));
        }
    }

    /// Whether it rests.
    pub(crate) fn is_resting(&self) -> bool {
        *self.resting.borrow()
    }

    /// Waits for as long as the first while it does not rest, and for as long as the second while it does; that ends with the rest.
    pub(crate) async fn pause(&self, awake: Duration, at_rest: Duration) {
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
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_who_is_alone_rests_once_all_is_calm_and_wakes_at_once() {
        let rest = Rest::default();
        tokio::time::advance(CALM_FOR).await;
        rest.lie_down();
        assert!(rest.is_calm() && !rest.is_resting(), "nobody has looked whether it is alone");
        rest.alone(true);
        rest.wake();
        rest.lie_down();
        assert!(!rest.is_resting());
        tokio::time::advance(CALM_FOR).await;
        rest.lie_down();
        assert!(rest.is_resting());
        rest.wake();
        assert!(!rest.is_resting() && !rest.is_calm());
        tokio::time::advance(CALM_FOR).await;
        rest.lie_down();
        rest.alone(false);
        assert!(!rest.is_resting(), "another process came");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_long_at_rest_and_ends_with_it() {
        let (rest, hour) = (Rest::default(), Duration::from_secs(3_600));
        let began = Instant::now();
        rest.pause(Duration::from_secs(1), hour).await;
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        rest.alone(true);
        tokio::time::advance(CALM_FOR).await;
        rest.lie_down();
        let began = Instant::now();
        let waking = async {
            sleep(Duration::from_secs(2)).await;
            rest.wake();
        };
        tokio::join!(rest.pause(Duration::from_secs(1), hour), waking);
        assert_eq!(began.elapsed(), Duration::from_secs(2));
    }
}
