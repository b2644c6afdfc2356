//! States of a campaign, and their transitions.

use bellwire_core::named;

named! {
    /// State of a campaign.
    #[cfg_attr(feature = "openapi", schema(as = CampaignState))]
    pub enum CampaignState {
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
pub enum CampaignOrder {
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
pub enum OrderResult {
    /// It changes to this state.
    To(CampaignState),
    /// It is so already.
    Already,
    /// The state does not allow the order.
    Never,
}

impl CampaignState {
    /// Returns the result of an order in this state. `has_begun`: a message of the campaign exists.
    pub fn after(self, order: CampaignOrder, has_begun: bool) -> OrderResult {
        use CampaignState::{Cancelled, Done, Draft, Paused, Scheduled, Sending};
        match (self, order) {
            (Draft, CampaignOrder::Start) => OrderResult::To(Scheduled),
            (Scheduled | Sending, CampaignOrder::Pause) => OrderResult::To(Paused),
            (Paused, CampaignOrder::Resume) if has_begun => OrderResult::To(Sending),
            (Paused, CampaignOrder::Resume) => OrderResult::To(Scheduled),
            (Draft | Scheduled | Sending | Paused, CampaignOrder::Cancel) => OrderResult::To(Cancelled),
            (Scheduled | Sending, CampaignOrder::Start | CampaignOrder::Resume)
            | (Paused, CampaignOrder::Pause)
            | (Cancelled, CampaignOrder::Cancel) => OrderResult::Already,
            (Draft, CampaignOrder::Pause | CampaignOrder::Resume)
            | (Paused, CampaignOrder::Start)
            | (Cancelled, CampaignOrder::Start | CampaignOrder::Pause | CampaignOrder::Resume)
            | (Done, _) => OrderResult::Never,
        }
    }
}
