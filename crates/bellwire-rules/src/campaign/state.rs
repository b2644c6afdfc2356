//! States of a campaign, and their transitions.

use bellwire_core::named;

named! {
    /// State of a campaign.
    #[cfg_attr(feature = "openapi", schema(as = CampaignState))]
    pub enum CampaignState {
        /// It can be changed, and nothing is due. Starting it changes the state.
        Draft = "draft",
        /// It was started and waits for its time or its next run. The scheduler changes the state.
        Scheduled = "scheduled",
        /// Messages are in progress or still to be created in its run. The scheduler changes the state.
        Sending = "sending",
        /// Nothing is sent until it is resumed. Messages that become due meanwhile are sent then.
        Paused = "paused",
        /// Nothing more is sent, permanently.
        Cancelled = "cancelled",
        /// Every delivery of its last run has ended, permanently.
        Done = "done",
    }
}

/// Requested change of a campaign's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CampaignOrder {
    /// Start it now or at its scheduled time.
    Start,
    /// Pause it and its messages.
    Pause,
    /// Resume it and its messages.
    Resume,
    /// Cancel it and its messages.
    Cancel,
}

/// Result of a requested change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderResult {
    /// The campaign changes to this state.
    To(CampaignState),
    /// The campaign already has the state.
    Already,
    /// The state does not allow the change.
    Never,
}

impl CampaignState {
    /// Returns the result of a requested change in this state. `has_begun`: a message of the campaign exists.
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
