//! Unit tests of `crates/bellwire-store/src/connections.rs`, which includes them.

use super::*;

#[tokio::test]
async fn permanent_connections_never_expire() {
    let nowhere = || PgConnectOptions::new().socket("/nonexistent");
    let staying = connect_to_stay(nowhere(), 3);
    let options = staying.options();
    assert_eq!((options.get_idle_timeout(), options.get_max_lifetime()), (None, None));
    assert_eq!(
        (options.get_max_connections(), options.get_min_connections()),
        (3, 0),
        "of no use where nothing is sent"
    );
    assert!(connect_lazily(nowhere(), 3).options().get_idle_timeout().is_some());
}
