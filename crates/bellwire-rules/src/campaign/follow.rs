//! Follow-ups: campaigns for recipients of another one who lack a reaction.

use serde::{Deserialize, Serialize};

/// Campaign that a follow-up refers to. Its recipients without a reaction get the follow-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    /// Id of the campaign, `cmp_…`.
    pub campaign: String,
    /// Reaction that recipients lack.
    pub did_not: FollowCondition,
}

bellwire_core::named! {
    /// Reaction that recipients of a campaign lack to get its follow-up.
    pub enum FollowCondition {
        Click = "click",
        Display = "display",
    }
}
