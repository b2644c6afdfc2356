//! Tokens of the provider that are refused, and what each lacks.

use serde_json::{Value, json};

use super::{ANN, World, viewer};
use crate::support::provider::{NOW_S, Signing};

#[tokio::test]
async fn incomplete_id_token_is_refused() {
    let world = World::begin().await;
    world.api.invite(ANN, viewer()).await;
    type Twist = fn(&mut Value);
    let twists: [(&str, Twist, &str); 17] = [
        ("another nonce", |claims| claims["nonce"] = json!("x"), "token"),
        ("no nonce", |claims| drop(claims.as_object_mut().unwrap().remove("nonce")), "token"),
        ("another audience", |claims| claims["aud"] = json!("somebody-else"), "token"),
        ("others as audience, too", |claims| claims["aud"] = json!(["bellwire", "somebody-else"]), "token"),
        ("no audience", |claims| claims["aud"] = json!([]), "token"),
        ("another issuer", |claims| claims["iss"] = json!("https://id.example.com"), "token"),
        ("nearly the issuer", |claims| claims["iss"] = json!(format!("{}/", claims["iss"].as_str().unwrap())), "token"),
        ("expired", |claims| claims["exp"] = json!(NOW_S), "token"),
        ("no expiry", |claims| drop(claims.as_object_mut().unwrap().remove("exp")), "provider"),
        ("no subject", |claims| claims["sub"] = json!(""), "token"),
        ("a long subject", |claims| claims["sub"] = json!("x".repeat(256)), "token"),
        ("NUL in the subject", |claims| claims["sub"] = json!("s\0"), "token"),
        ("an unverified address", |claims| claims["email_verified"] = json!(false), "email"),
        (
            "an address that nobody speaks of",
            |claims| drop(claims.as_object_mut().unwrap().remove("email_verified")),
            "email",
        ),
        ("no address", |claims| drop(claims.as_object_mut().unwrap().remove("email")), "email"),
        ("an address that is none", |claims| claims["email"] = json!("ann"), "email"),
        ("somebody unknown", |claims| claims["email"] = json!("ben@example.com"), "unknown"),
    ];
    for (what, twist, why) in twists {
        world.provider.twist(twist);
        world.refused(world.enter("s-1", ANN).await, why, what).await;
    }
    world.provider.behave();
    for signing in [Signing::None, Signing::Stolen, Signing::Hs256] {
        world.provider.sign_by(signing);
        world.refused(world.enter("s-1", ANN).await, "token", &format!("{signing:?}")).await;
    }
    world.provider.behave();
    assert!(world.log("teammate.linked").await.is_empty());
    world.enters("s-1", ANN).await;
}

#[tokio::test]
async fn a_token_from_a_fast_clock_is_refused() {
    let world = World::begin().await;
    world.api.invite(ANN, viewer()).await;
    world.provider.twist(|claims| claims["iat"] = json!(NOW_S + 62));
    world.refused(world.enter("s-1", ANN).await, "token", "62 s ahead").await;
    // One second later, this is the most that is accepted.
    world.provider.twist(|claims| claims["iat"] = json!(NOW_S + 61));
    world.enters("s-1", ANN).await;
}
