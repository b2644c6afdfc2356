//! Names of events. Webhooks, event streams and the list of events share them.
//!
//! To add an event for webhooks: name it here, write its data in `hooks::event` or to `stream_events`, and list it in
//! `static/admin/src/lib/webhooks.ts`. The guides have the names and comments of this file.

use crate::named;

named! {
    /// Type of an event. Names never change.
    pub enum EventType {
        /// The push service accepted the push.
        DeliveryAccepted = "delivery.accepted",
        /// The push service reported the subscription as gone.
        DeliveryGone = "delivery.gone",
        /// The time to live ended.
        DeliveryExpired = "delivery.expired",
        /// The delivery failed for good.
        DeliveryDead = "delivery.dead",
        /// The delivery was cancelled, or its subscription unsubscribed.
        DeliveryCancelled = "delivery.cancelled",
        /// A frequency cap prevented the delivery.
        DeliveryCapped = "delivery.capped",
        /// A browser displayed a notification.
        DeliveryDisplayed = "delivery.displayed",
        /// A person clicked a notification.
        DeliveryClicked = "delivery.clicked",
        /// A person closed a notification.
        DeliveryClosed = "delivery.closed",
        /// A browser removed a withdrawn notification, or had nothing to remove.
        DeliveryWithdrawn = "delivery.withdrawn",
        /// The state of a campaign changed.
        CampaignState = "campaign.state",
        /// The result of a campaign is final: no more conversions count.
        CampaignResult = "campaign.result",
        /// All deliveries of a message to many have ended.
        MessageDone = "message.done",
        /// A caller paused a message.
        MessagePaused = "message.paused",
        /// A caller resumed a message.
        MessageResumed = "message.resumed",
        /// A caller cancelled a message.
        MessageCancelled = "message.cancelled",
        /// An alert was raised.
        AlertRaised = "alert.raised",
        /// An alert was resolved.
        AlertResolved = "alert.resolved",
        /// A person tested the webhook. Every webhook receives it.
        WebhookTest = "webhook.test",
        /// Progress of a campaign: a snapshot.
        MessageProgress = "message.progress",
        /// A push service, an operator or a refused key holds a lane.
        LaneHeld = "lane.held",
        /// The hold of a lane ended.
        LaneReleased = "lane.released",
        /// A breaker opened, lets probes through, or closed.
        LaneBreaker = "lane.breaker",
        /// Deliveries died; the first of a reason and minute.
        DeadLetterCreated = "dead_letter.created",
        /// Subscriptions are gone; the first of a lane and minute.
        SubscriptionGone = "subscription.gone",
        /// Deliveries missed the SLA of their tier; the first of a tier and minute.
        SlaMissed = "sla.missed",
        /// A subscription became active.
        SubscriptionCreated = "subscription.created",
        /// Values of an active subscription changed.
        SubscriptionChanged = "subscription.changed",
        /// A subscription is no longer active.
        SubscriptionEnded = "subscription.ended",
        /// An alert about the server was raised.
        ServerAlertRaised = "server.alert.raised",
        /// An alert about the server was resolved.
        ServerAlertResolved = "server.alert.resolved",
        /// Outcomes of attempts within the last second: a snapshot.
        Outcomes = "outcomes",
    }
}

impl EventType {
    /// Returns whether webhooks are sent events of this type.
    pub fn is_for_webhooks(self) -> bool {
        let groups = ["delivery.", "campaign.", "message.", "alert.", "webhook."];
        match self {
            Self::MessageProgress => false,
            Self::DeadLetterCreated | Self::SlaMissed => true,
            _ => {
                self.is_about_subscription()
                    || self.is_about_server()
                    || groups.iter().any(|group| self.name().starts_with(group))
            }
        }
    }

    /// Returns whether events of this type are about one subscription that began, changed or ended.
    pub fn is_about_subscription(self) -> bool {
        matches!(self, Self::SubscriptionCreated | Self::SubscriptionChanged | Self::SubscriptionEnded)
    }

    /// Returns whether events of this type are about the server as a whole: only its operators may receive them.
    pub fn is_about_server(self) -> bool {
        matches!(self, Self::ServerAlertRaised | Self::ServerAlertResolved)
    }

    /// Returns whether event streams contain events of this type: all except those of single deliveries and subscriptions, and
    /// those that only webhooks receive.
    pub fn is_streamed(self) -> bool {
        let is_for_webhooks_only = self == Self::WebhookTest || self.is_about_subscription() || self.is_about_server();
        !is_for_webhooks_only && !self.name().starts_with("delivery.")
    }

    /// Returns whether event streams store events of this type: a client can resume from their ids.
    pub fn is_durable(self) -> bool {
        self.is_streamed() && !matches!(self, Self::MessageProgress | Self::Outcomes)
    }
}
