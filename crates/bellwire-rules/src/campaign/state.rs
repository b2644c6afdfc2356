//! Where a campaign stands, and where it may go from there.

use bellwire_core::named;

named! {
    /// Where a campaign stands.
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
        /// Nothing of it goes out any more, for good.
        Cancelled = "cancelled",
        /// Every delivery of its last run has ended, for good.
        Done = "done",
    }
}

/// What is wanted of a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Let it go.
    Start,
    /// Hold it.
    Pause,
    /// Let it go on.
    Resume,
    /// End it.
    Cancel,
}

/// What an order comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It goes there.
    To(State),
    /// It is so already.
    Already,
    /// It cannot be so any more, or not yet.
    Never,
}

impl State {
    /// What an order comes to here. `has_begun`: a message of it was made.
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
