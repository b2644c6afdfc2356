//! What listeners are told.

use crate::model::id::AppId;
use crate::model::named;
use crate::store::outcomes::stream::Position;

named! {
    /// What an event is about.
    #[schema(as = StreamKind)]
    pub(crate) enum Kind {
        /// How far a campaign has come: a snapshot.
        MessageProgress = "message.progress",
        /// All deliveries of a campaign have ended.
        MessageDone = "message.done",
        /// A message was paused.
        MessagePaused = "message.paused",
        /// A message was resumed.
        MessageResumed = "message.resumed",
        /// A message was cancelled.
        MessageCancelled = "message.cancelled",
        /// A campaign stands somewhere else than before.
        CampaignState = "campaign.state",
        /// A lane is held: by a push service, an operator, or since its key is refused.
        LaneHeld = "lane.held",
        /// A lane is held no more.
        LaneReleased = "lane.released",
        /// A breaker opened, lets probes through, or closed.
        LaneBreaker = "lane.breaker",
        /// An alert was raised that was not open.
        AlertRaised = "alert.raised",
        /// Somebody resolved an alert.
        AlertResolved = "alert.resolved",
        /// Deliveries died; the first of their reason and minute.
        DeadLetterCreated = "dead_letter.created",
        /// Subscriptions turned out to be gone; the first of their lane and minute.
        SubscriptionGone = "subscription.gone",
        /// Deliveries missed what their tier promises; the first of their tier and minute.
        SlaMissed = "sla.missed",
        /// What became of attempts within the last second: a snapshot.
        Outcomes = "outcomes",
    }
}

impl Kind {
    /// Whether events of this kind are stored: their ids can be resumed from.
    pub(crate) fn is_durable(self) -> bool {
        !matches!(self, Self::MessageProgress | Self::Outcomes)
    }
}

/// Something that happened, as listeners are told.
#[derive(Debug)]
pub(crate) struct Event {
    /// Where it stands; none: it is a snapshot.
    pub position: Option<Position>,
    /// The app it concerns; none: the server as a whole.
    pub app: Option<AppId>,
    /// What it is about.
    pub kind: Kind,
    /// All of it, as JSON.
    pub json: Box<str>,
}
