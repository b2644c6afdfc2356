//! Unit tests of `crates/bellwire-store/src/audience/registration/known.rs`, which includes them.

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
