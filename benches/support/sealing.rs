//! What preparing one message costs Bellwire itself: what a benchmark's other figures are measured by.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bellwire::testkit::model::clock::Clock;
use bellwire::testkit::model::id::{MessageId, SubscriptionId, VapidKeyId};
use bellwire::testkit::model::message::{Content, PLAINTEXT_MAX, Payload};
use bellwire::testkit::model::subscription::BrowserKeys;
use bellwire::testkit::vault::Vault;
use bellwire::testkit::webpush::keys::SigningKey;
use bellwire::testkit::webpush::payload::{Stamp, Template, delivery_id, receipt_token};
use bellwire::testkit::webpush::seal::{padded_len, seal};
use bellwire::testkit::webpush::vapid::TokenCache;
use uuid::Uuid;

/// Octets of the message that is sealed.
pub const PAYLOAD_OCTETS: usize = 300;
/// The contact in its VAPID token.
pub const SUBJECT: &str = "mailto:push@example.com";
/// Where it would go.
pub const ORIGIN: &str = "https://updates.push.services.mozilla.com";
/// Rounds, of which the median counts.
pub const ROUNDS: usize = 21;
const ROUND: Duration = Duration::from_millis(100);

/// A way to prepare a message: leaves the body in the buffer it is given.
pub type Prepare<'a> = Box<dyn FnMut(&mut Vec<u8>) + 'a>;

/// CPU-µs for one message, measured now on this machine.
pub fn one_message() -> f64 {
    let pair = SigningKey::generate();
    let keys = BrowserKeys { p256dh: *pair.public(), auth: [7; 16] };
    let (vapid, payload) = (SigningKey::generate(), "x".repeat(PAYLOAD_OCTETS));
    let mut line = bellwire_line(&keys, &vapid, &payload);
    let mut micros: Vec<f64> = (0..ROUNDS).map(|_| round(&mut line)).collect();
    median(&mut micros)
}

/// CPU-µs per message over one round.
pub fn round(prepare: &mut Prepare) -> f64 {
    let mut out = Vec::with_capacity(4096);
    let (start, cpu) = (Instant::now(), thread_cpu());
    let mut messages = 0;
    while start.elapsed() < ROUND {
        for _ in 0..50 {
            out.clear();
            prepare(&mut out);
            black_box(&out);
        }
        messages += 50;
    }
    (thread_cpu() - cpu).as_secs_f64() * 1e6 / f64::from(messages)
}

/// Time that this thread spent on a core. The kernel brings the figure up to date when the thread gives way.
fn thread_cpu() -> Duration {
    std::thread::yield_now();
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos = schedstat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("nanoseconds first"))
}

/// The middle one; sorts them.
pub fn median(micros: &mut [f64]) -> f64 {
    micros.sort_by(f64::total_cmp);
    micros[micros.len() / 2]
}

/// What the line does for one delivery between the claim and the POST.
pub fn bellwire_line<'a>(keys: &'a BrowserKeys, vapid: &'a SigningKey, payload: &str) -> Prepare<'a> {
    let vault = Vault::new([(1, [1; 32])], &[2; 32]);
    let template =
        Template::new(&Content::Raw { payload: Payload::Text(payload.into()), envelope: true }).expect("fits");
    let (message, subscription) = (MessageId(Uuid::now_v7()), SubscriptionId::new(Uuid::now_v7(), 0));
    let (cache, key_id, clock) = (TokenCache::default(), VapidKeyId(Uuid::now_v7()), Clock::system());
    let mut plaintext = Vec::new();
    Box::new(move |out| {
        plaintext.clear();
        let id = delivery_id(&vault, message, subscription.0);
        let receipt = receipt_token(&vault, message, subscription);
        template.render(&Stamp { id, receipt, retried: 0, content_type: None }, &mut plaintext);
        seal(keys, &plaintext, padded_len(plaintext.len(), PLAINTEXT_MAX), out).expect("seals");
        black_box(cache.header(key_id, vapid, SUBJECT, ORIGIN, clock.now()));
    })
}
