//! Decides which registration of a known endpoint may change its subscription. Endpoint and keys may come from the previous user
//! of the browser; the endpoint alone is known to its push service.

use bellwire_core::subscription::SubscriptionState;

/// Strength of the evidence that a subscription's keys are those of its browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeyRank {
    Unproven,
    /// A user token, an API key, an import or the subscription's token vouched for them.
    Vouched,
    /// A receipt came for a push that was encrypted with them.
    Confirmed,
}

impl KeyRank {
    pub(super) fn of(vouched: bool, confirmed: bool) -> Self {
        match (vouched, confirmed) {
            (_, true) => Self::Confirmed,
            (true, false) => Self::Vouched,
            (false, false) => Self::Unproven,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ReplacementCase<'a> {
    /// The request shows the subscription's token or a server's key.
    pub covered: bool,
    pub same_keys: bool,
    pub rank: KeyRank,
    pub state: SubscriptionState,
    pub user: Option<&'a str>,
    /// User that the request names, already authenticated. Inner `None` means no user.
    pub wanted: Option<Option<&'a str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegistrationVerdict {
    GoesOn,
    /// The subscription is refreshed and loses its user and details.
    BeginsAnew,
    /// A new subscription, with another id, takes the endpoint; it keeps the details of the previous one or none.
    TakesOver {
        keeps: bool,
    },
    /// Refused: the stored keys are other ones, of a higher rank, or of a person who unsubscribed.
    Taken,
    /// Refused: the subscription belongs to a user whom the request does not name.
    BelongsToUser,
}

pub(super) fn judge(case: &ReplacementCase<'_>) -> RegistrationVerdict {
    let proves_user = case.user.is_some() && case.wanted == Some(case.user);
    // The user token of another user does not vouch against a user's subscription: every user of the site has one.
    let names_first_user = case.user.is_none() && matches!(case.wanted, Some(Some(_)));
    let vouches = case.covered || proves_user || names_first_user;
    if !case.same_keys {
        let outranked = KeyRank::of(vouches, false) < case.rank;
        let stays_ended = case.state == SubscriptionState::Unsubscribed && !case.covered;
        return match outranked || stays_ended {
            true => RegistrationVerdict::Taken,
            false => RegistrationVerdict::TakesOver { keeps: case.covered || proves_user },
        };
    }
    match case {
        ReplacementCase { covered: true, .. } | ReplacementCase { user: None, .. } => RegistrationVerdict::GoesOn,
        _ if proves_user => RegistrationVerdict::GoesOn,
        // Otherwise every page that does not know its user would log the user out.
        ReplacementCase { wanted: None, state: SubscriptionState::Active, .. } => RegistrationVerdict::BelongsToUser,
        _ => RegistrationVerdict::BeginsAnew,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: Option<&str> = Some("ann");
    const BOB: Option<&str> = Some("bob");

    #[test]
    fn same_keys_of_a_user_need_a_right() {
        use RegistrationVerdict::{BeginsAnew, BelongsToUser, GoesOn};
        use SubscriptionState::{Active, Gone, Unsubscribed};
        for (state, user, wanted, verdict) in [
            (Active, None, None, GoesOn),
            (Active, None, Some(BOB), GoesOn),
            (Unsubscribed, None, None, GoesOn),
            (Active, ANN, None, BelongsToUser),
            (Active, ANN, Some(ANN), GoesOn),
            (Active, ANN, Some(BOB), BeginsAnew),
            (Active, ANN, Some(None), BeginsAnew),
            (Gone, ANN, None, BeginsAnew),
            (Gone, ANN, Some(ANN), GoesOn),
        ] {
            for rank in [KeyRank::Unproven, KeyRank::Vouched, KeyRank::Confirmed] {
                let case = ReplacementCase { covered: false, same_keys: true, rank, state, user, wanted };
                assert_eq!(judge(&case), verdict, "{case:?}");
                assert_eq!(judge(&ReplacementCase { covered: true, ..case }), GoesOn, "{case:?}");
            }
        }
    }

    #[test]
    fn other_keys_never_replace_a_higher_rank() {
        use KeyRank::{Confirmed, Unproven, Vouched};
        use RegistrationVerdict::Taken;
        use SubscriptionState::{Active, Gone, Unsubscribed};
        let (keeps, bare) =
            (RegistrationVerdict::TakesOver { keeps: true }, RegistrationVerdict::TakesOver { keeps: false });
        for (covered, rank, state, user, wanted, verdict) in [
            (false, Unproven, Active, None, None, bare),
            (false, Unproven, Active, None, Some(None), bare),
            (false, Unproven, Active, None, Some(ANN), bare),
            (false, Unproven, Unsubscribed, None, None, Taken),
            (false, Unproven, Unsubscribed, None, Some(ANN), Taken),
            (true, Unproven, Unsubscribed, None, None, keeps),
            (false, Vouched, Active, None, None, Taken),
            (false, Vouched, Gone, None, Some(None), Taken),
            (false, Vouched, Active, None, Some(ANN), bare),
            (false, Vouched, Active, ANN, None, Taken),
            (false, Vouched, Active, ANN, Some(None), Taken),
            (false, Vouched, Active, ANN, Some(BOB), Taken),
            (false, Vouched, Active, ANN, Some(ANN), keeps),
            (false, Vouched, Unsubscribed, ANN, Some(ANN), Taken),
            (true, Vouched, Active, ANN, None, keeps),
            (true, Vouched, Unsubscribed, ANN, None, keeps),
            (false, Confirmed, Active, ANN, Some(ANN), Taken),
            (true, Confirmed, Active, ANN, Some(ANN), Taken),
        ] {
            let case = ReplacementCase { covered, same_keys: false, rank, state, user, wanted };
            assert_eq!(judge(&case), verdict, "{case:?}");
        }
    }
}
