//! Names of the demo: its app and topic, its site, and the hosts of its push services.

use anyhow::Context as _;
use serde_json::Value;

use bellwire_core::lane::Gateway;

pub(super) const APP: &str = "demo";
pub(super) const TOPIC: &str = "news";
/// Origin of the site whose pages register the browsers.
pub(super) const ORIGIN: &str = "https://shop.example";

/// Shares of the push services among the browsers, in twentieths.
pub(super) const SHARES: [(Gateway, u32); 5] =
    [(Gateway::Fcm, 9), (Gateway::Mozilla, 4), (Gateway::Apple, 3), (Gateway::Wns, 2), (Gateway::Other, 2)];

pub(super) fn host_of(gateway: Gateway) -> String {
    format!("{}.bellwire.test", gateway.name())
}

pub(super) fn text<'a>(json: &'a Value, member: &str) -> anyhow::Result<&'a str> {
    json[member].as_str().with_context(|| format!("the answer has no {member}"))
}

pub(super) fn gateway_of(n: u32) -> Gateway {
    let mut at = n % 20;
    for (gateway, share) in SHARES {
        match at.checked_sub(share) {
            Some(rest) => at = rest,
            None => return gateway,
        }
    }
    Gateway::Fcm // the shares make twenty
}
