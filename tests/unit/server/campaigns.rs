//! Unit tests of `src/server/campaigns.rs`, which includes them.

use super::*;

#[test]
fn campaign_state_follows_from_remaining_parts() {
    let now: Timestamp = "2026-12-01T09:00:00Z".parse().unwrap();
    let later = now + TimeDelta::hours(1);
    let ahead = |part_at, decide_at, has_begun, is_moving| Ahead { part_at, decide_at, has_begun, is_moving };
    let soon = Some(now + WATCHED_EVERY);
    for (ahead, next_run, state, next_at) in [
        (ahead(None, None, true, false), NextRun::Never, CampaignState::Done, None),
        (ahead(None, None, true, true), NextRun::Never, CampaignState::Sending, soon),
        (ahead(None, None, true, false), NextRun::At(later), CampaignState::Scheduled, Some(later)),
        (ahead(None, None, false, false), NextRun::At(later), CampaignState::Scheduled, Some(later)),
        (ahead(Some(later), None, false, false), NextRun::Never, CampaignState::Scheduled, Some(later)),
        (ahead(Some(later), None, true, false), NextRun::Never, CampaignState::Sending, Some(later)),
        (ahead(Some(later), None, true, true), NextRun::Never, CampaignState::Sending, soon),
        (ahead(None, Some(later), true, false), NextRun::Never, CampaignState::Sending, Some(later)),
    ] {
        assert_eq!(outlook(&ahead, next_run, Some(now + TimeDelta::hours(2)), now), (state, next_at), "{ahead:?}");
    }
    let end = Some(now + TimeDelta::seconds(3));
    let moving = ahead(Some(later), None, true, true);
    assert_eq!(
        outlook(&moving, NextRun::Never, end, now),
        (CampaignState::Sending, end),
        "what is under way is to be ended"
    );
    let waiting = ahead(Some(later), None, true, false);
    assert_eq!(outlook(&waiting, NextRun::Never, end, now), (CampaignState::Sending, Some(later)));
}
