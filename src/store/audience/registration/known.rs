//! Who may go on with a subscription when its endpoint is registered again. Whoever has endpoint and keys has had the
//! browser in hands, which may have been before its present user came.

/// What is known of a subscription, and of the request that names its endpoint again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<'a> {
    /// The request shows the subscription's token, or a server's key.
    pub covered: bool,
    /// It names the keys that are stored.
    pub same_keys: bool,
    /// A receipt has shown that the stored keys are the browser's.
    pub proven: bool,
    /// The subscription is sent to.
    pub active: bool,
    /// The user that the subscription belongs to.
    pub user: Option<&'a str>,
    /// The user that it shall belong to, if the request says so; inner none: nobody. That it may say so was checked.
    pub wanted: Option<Option<&'a str>>,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The subscription goes on with all that it says.
    GoesOn,
    /// It begins anew: whoever registers it has it from now on, and nothing of what it was.
    BeginsAnew,
    /// Refused: its keys are proven to be others.
    Taken,
    /// Refused: it belongs to a user of whom the request says nothing.
    BelongsToUser,
}

/// Decides.
pub(super) fn judge(case: &Case<'_>) -> Verdict {
    let proves_user = case.user.is_some() && case.wanted == Some(case.user);
    match case {
        Case { covered: true, .. } => Verdict::GoesOn,
        // Keys that no receipt has proven may be made up by somebody who knows the endpoint alone. They must not
        // keep out its browser, which cannot be told from anybody else yet: the latest is believed.
        Case { same_keys: false, proven: true, .. } => Verdict::Taken,
        _ if proves_user => Verdict::GoesOn,
        Case { same_keys: false, .. } => Verdict::BeginsAnew,
        Case { user: None, .. } => Verdict::GoesOn,
        // Else every page that does not know who is logged in would log them out.
        Case { wanted: None, active: true, .. } => Verdict::BelongsToUser,
        _ => Verdict::BeginsAnew,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_goes_on_with_a_users_subscription_or_proven_keys_without_showing_a_right_to_them() {
        use Verdict::{BeginsAnew, BelongsToUser, GoesOn, Taken};
        let (ann, bob) = (Some("ann"), Some("bob"));
        for (same_keys, proven, active, user, wanted, verdict) in [
            // The same keys.
            (true, true, true, None, None, GoesOn),
            (true, true, true, None, Some(bob), GoesOn),
            (true, true, false, None, None, GoesOn),
            (true, true, true, ann, None, BelongsToUser),
            (true, false, true, ann, None, BelongsToUser),
            (true, true, true, ann, Some(ann), GoesOn),
            (true, true, true, ann, Some(bob), BeginsAnew),
            (true, true, true, ann, Some(None), BeginsAnew),
            (true, true, false, ann, None, BeginsAnew),
            (true, true, false, ann, Some(ann), GoesOn),
            // Other keys.
            (false, true, true, None, None, Taken),
            (false, true, true, ann, Some(ann), Taken),
            (false, true, false, None, None, Taken),
            (false, false, true, None, None, BeginsAnew),
            (false, false, true, None, Some(None), BeginsAnew),
            (false, false, true, ann, None, BeginsAnew),
            (false, false, true, ann, Some(bob), BeginsAnew),
            (false, false, true, ann, Some(ann), GoesOn),
        ] {
            let case = Case { covered: false, same_keys, proven, active, user, wanted };
            assert_eq!(judge(&case), verdict, "{case:?}");
            assert_eq!(judge(&Case { covered: true, ..case }), GoesOn, "{case:?}");
        }
    }
}
