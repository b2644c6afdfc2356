//! Unit tests of `crates/bellwire-core/src/role.rs`, which includes them.

use uuid::Uuid;

use super::*;

const SHOP: AppId = AppId(Uuid::from_u128(1));
const OTHER: AppId = AppId(Uuid::from_u128(2));

fn scopes() -> impl Iterator<Item = Scope> {
    Scope::OF_APPS.into_iter().chain(Scope::OF_SERVER)
}

#[test]
fn each_role_includes_the_previous() {
    let may = |role, app| {
        let grants = Grants(vec![Grant { role, app }]);
        scopes().filter(|scope| grants.may(Some(SHOP), *scope)).map(Scope::name).collect::<Vec<_>>()
    };
    let of_app = [
        (Role::Viewer, vec!["read"]),
        (Role::Sender, vec!["send", "read", "messages"]),
        (Role::Operator, vec!["send", "read", "subscribers", "messages", "policies", "settings"]),
        (Role::Admin, Scope::OF_APPS.map(Scope::name).to_vec()),
    ];
    for (role, expected) in of_app {
        assert_eq!(may(role, Some(SHOP)), expected, "{role:?} of the app");
        let of_server: &[&str] = if role >= Role::Operator { &["operator", "metrics"] } else { &[] };
        assert_eq!(may(role, None), [&expected[..], of_server].concat(), "{role:?} of all");
    }
}

#[test]
fn app_role_grants_nothing_elsewhere() {
    let of_shop = Grants(vec![Grant { role: Role::Admin, app: Some(SHOP) }]);
    assert!(of_shop.know(SHOP) && !of_shop.know(OTHER));
    assert!(scopes().all(|scope| !of_shop.may(Some(OTHER), scope) && !of_shop.may(None, scope)));
    assert!(!of_shop.may_watch_server() && !of_shop.may_change_team());
    assert_eq!(of_shop.apps(), Some(vec![SHOP]));
    let both = Grants(vec![of_shop.0[0], Grant { role: Role::Viewer, app: None }]);
    assert_eq!((both.apps(), Grants::default().apps()), (None, Some(Vec::new())));
    assert!(both.know(OTHER) && both.may(Some(OTHER), Scope::Read) && !both.may(Some(OTHER), Scope::Send));
    assert!(both.may(Some(SHOP), Scope::Keys) && both.may_watch_server() && !both.may_change_team());
    assert!(!both.may(Some(SHOP), Scope::Operator), "an admin of the app does not run the server");
    assert!(Grants(vec![Grant { role: Role::Admin, app: None }]).may_change_team());
    assert!(!Grants::default().know(SHOP));
}
