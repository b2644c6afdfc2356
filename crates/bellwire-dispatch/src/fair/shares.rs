//! Shares of the tiers in a scarce resource.

use bellwire_core::delivery::Tier;

/// Shares of the tiers while all of them have work.
pub(crate) const WEIGHTS: [u32; 3] = [8, 3, 1];
pub(crate) const TIERS: usize = WEIGHTS.len();
/// Cost of a slot by tier. Tiers that get their shares pay the same in total.
pub(crate) const COSTS: [u64; TIERS] = [3, 8, 24];
/// Number of slots in a round, in which every tier gets its share.
pub(crate) const ROUND: u32 = WEIGHTS[0] + WEIGHTS[1] + WEIGHTS[2];
pub(crate) fn index(tier: Tier) -> usize {
    match tier {
        Tier::Transactional => 0,
        Tier::Promotional => 1,
        Tier::Engagement => 2,
    }
}
