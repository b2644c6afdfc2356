//! Filters of a chart.

use bellwire_core::delivery::{Ending, Tier};
use bellwire_core::fact::{Loss, StatusClass};
use bellwire_core::id::{LaneId, MessageId};
use bellwire_core::lane::Gateway;

/// Values that rows must have. An empty list allows all.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Filters {
    pub apps: Vec<String>,
    pub lanes: Vec<LaneId>,
    pub gateways: Vec<Gateway>,
    pub tiers: Vec<Tier>,
    pub messages: Vec<MessageId>,
    pub outcomes: Vec<Ending>,
    pub statuses: Vec<StatusClass>,
    pub reasons: Vec<Loss>,
}
