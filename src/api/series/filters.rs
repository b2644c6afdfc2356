//! What a chart is narrowed to.

use crate::model::delivery::{Ending, Tier};
use crate::model::fact::{Loss, StatusClass};
use crate::model::id::{LaneId, MessageId};
use crate::model::lane::Gateway;

/// What is left out. Empty: nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Filters {
    /// Ids or slugs.
    pub apps: Vec<String>,
    pub lanes: Vec<LaneId>,
    pub gateways: Vec<Gateway>,
    pub tiers: Vec<Tier>,
    pub messages: Vec<MessageId>,
    pub outcomes: Vec<Ending>,
    pub statuses: Vec<StatusClass>,
    pub reasons: Vec<Loss>,
}
