//! States of a campaign, and their transitions.

use bellwire_core::named;

named! {
    /// State of a campaign.
    #[cfg_attr(feature = "openapi", schema(as = CampaignState))]
    pub enum State {
        /// It can be changed, and nothing of it is due. Starting it moves it on.
        Draft = "draft",
        /// It was started, and none of its messages is under way: it waits for its time, or, if it recurs, for the next. The
        /// scheduler moves it on.
        Scheduled = "scheduled",
        /// Messages of it are under way, or follow within its run. The scheduler moves it on.
        Sending = "sending",
        /// Nothing of it goes out until it is resumed; what falls due meanwhile is made up for then.
        Paused = "paused",
        /// It sends no further message, forever.
        Cancelled = "cancelled",
        /// Every delivery of its last run has ended, for good.
        Done = "done",
    }
}

/// Order to a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Start it, at once or at its time.
    Start,
    /// Pause it and its messages.
    Pause,
    /// Resume it and its messages.
    Resume,
    /// Cancel it and its messages.
    Cancel,
}

/// Result of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It changes to this state.
    To(State),
    /// It is so already.
    Already,
    /// The state does not allow the order.
    Never,
}

impl State {
    /// Returns the result of an order in this state. `has_begun`: a message of the campaign exists.
    pub fn after(self, order: Order, has_begun: bool) -> Turn {
        use State::{Cancelled, Done, Draft, Paused, Scheduled, Sending};
        match (self, order) {
            (Draft, Order::Start) => Turn::To(Scheduled),
            (Scheduled | Sending, Order::Pause) => Turn::To(Paused),
            (Paused, Order::Resume) if has_begun => Turn::To(Sending),
            (Paused, Order::Resume) => Turn::To(Scheduled),
            (Draft | Scheduled | Sending | Paused, Order::Cancel) => Turn::To(Cancelled),
            (Scheduled | Sending, Order::Start | Order::Resume)
            | (Paused, Order::Pause)
            | (Cancelled, Order::Cancel) => Turn::Already,
            (Draft, Order::Pause | Order::Resume)
            | (Paused, Order::Start)
            | (Cancelled, Order::Start | Order::Pause | Order::Resume)
            | (Done, _) => Turn::Never,
        }
    }
}
