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
#[path = "../../../../../tests/crates/store/unit/audience/registration/known.rs"]
mod tests;
