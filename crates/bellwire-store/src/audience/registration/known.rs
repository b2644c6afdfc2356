//! Decides whether a registration may change the known subscription of its endpoint. Endpoint and keys may come from a previous
//! user of the browser, and push services can read the endpoint.

use bellwire_core::subscription::SubscriptionState;

/// Strength of the evidence that stored keys are those of the browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeyRank {
    Unproven,
    /// Vouched for by a user token, an API key, an import or the subscription's token.
    Vouched,
    /// Confirmed by a receipt of a push that was encrypted with the keys.
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
    /// Whether the request has an API key or the subscription's token.
    pub covered: bool,
    pub same_keys: bool,
    pub rank: KeyRank,
    pub state: SubscriptionState,
    pub user: Option<&'a str>,
    /// User in the request, already authenticated. Inner `None` means no user.
    pub wanted: Option<Option<&'a str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegistrationVerdict {
    GoesOn,
    /// The subscription is refreshed, and its user and details are deleted.
    BeginsAnew,
    /// A new subscription with another id takes over the endpoint, with or without the details of the previous one.
    TakesOver {
        keeps: bool,
    },
    /// Refused: the stored keys differ and have a higher rank, or their person unsubscribed.
    Taken,
    /// Refused: the subscription belongs to a user whom the request does not prove.
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
