//! How many POSTs a lane may have in flight: additive increase, multiplicative decrease.

/// Where a recognised gateway's lane begins.
const START: f32 = 32.0;
/// What a host that we do not know gets at most: it must not tie down more than a few connections' worth.
pub const STRANGER_MAX: u32 = 4;

/// The adaptive concurrency limit of one lane.
#[derive(Debug, Clone)]
pub struct Limit {
    limit: f32,
    max: f32,
    /// Until the first sign of congestion each success adds a whole permit, as in TCP's slow start.
    slow_start: bool,
    /// Answers to let pass before another decrease: those in flight say nothing about the lower limit.
    grace: u32,
}

impl Limit {
    /// A recognised gateway's.
    pub fn new(max: u32) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "limits are small")]
        let max = max.max(1) as f32;
        Self { limit: START.min(max), max, slow_start: true, grace: 0 }
    }

    /// Bounds the limit by this worker's share of what all may have in flight together.
    pub fn set_max(&mut self, max: u32) {
        #[expect(clippy::cast_precision_loss, reason = "limits are small")]
        let max = max.max(1) as f32;
        self.max = max;
        self.limit = self.limit.min(max);
    }

    /// The present limit, at least 1.
    pub fn get(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and max")]
        let whole = self.limit as u32;
        whole.max(1)
    }

    /// The gateway answered in good order.
    pub fn succeeded(&mut self) {
        self.grace = self.grace.saturating_sub(1);
        let step = if self.slow_start { 1.0 } else { 1.0 / self.limit };
        self.limit = (self.limit + step).min(self.max);
    }

    /// The gateway throttled, failed or did not answer.
    pub fn congested(&mut self) {
        self.slow_start = false;
        if self.grace > 0 {
            self.grace -= 1;
            return;
        }
        self.grace = self.get();
        self.limit = (self.limit / 2.0).max(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_doubles_until_congestion_then_grows_by_one_per_round() {
        let mut limit = Limit::new(256);
        for _ in 0..32 {
            limit.succeeded();
        }
        assert_eq!(limit.get(), 64);
        limit.congested();
        assert_eq!(limit.get(), 32);
        for _ in 0..33 {
            limit.succeeded();
        }
        assert_eq!(limit.get(), 33);
    }

    #[test]
    fn one_burst_of_failures_counts_once_and_the_limit_stays_within_bounds() {
        let mut limit = Limit::new(256);
        for _ in 0..32 {
            limit.congested();
        }
        assert_eq!(limit.get(), 16);
        for _ in 0..10_000 {
            limit.congested();
        }
        assert_eq!(limit.get(), 1);
        for _ in 0..1_000_000 {
            limit.succeeded();
        }
        assert_eq!(limit.get(), 256);
    }

    #[test]
    fn a_share_bounds_the_limit_and_gives_room_back() {
        let mut limit = Limit::new(4);
        (0..1000).for_each(|_| limit.succeeded());
        assert_eq!(limit.get(), 4);
        limit.set_max(0);
        assert_eq!(limit.get(), 1, "everybody may send at least one");
        limit.set_max(2);
        (0..1000).for_each(|_| limit.succeeded());
        assert_eq!(limit.get(), 2);
    }
}
