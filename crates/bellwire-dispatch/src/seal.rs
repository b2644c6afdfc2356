//! Encrypts deliveries. Takes no locks and does no I/O.

use bytes::Bytes;

use super::fair::turn::Turn;
use bellwire_gateway::Post;
use bellwire_webpush::OVERHEAD;
use bellwire_webpush::seal::{SealError, seal};
use bellwire_webpush::sealer::{Plain, Sealer};

/// A delivery that is ready for encryption.
pub(super) struct Unsealed {
    pub turn: Turn,
    pub post: Post,
    pub plaintext: Vec<u8>,
    /// Size of the padded plaintext, in bytes.
    pub pad_to: usize,
}

/// A delivery whose POST may start, or whose payload could not be encrypted.
pub(super) struct SealedDelivery {
    pub turn: Turn,
    pub post: Result<Post, SealError>,
}

impl Unsealed {
    /// Encrypts the payload. It takes no lock: the scheduler may suspend its thread for long, and other threads would wait for
    /// the lock.
    pub(super) fn seal(self) -> SealedDelivery {
        let Self { turn, mut post, plaintext, pad_to } = self;
        let mut body = Vec::with_capacity(pad_to + OVERHEAD);
        let sealed = seal(&turn.job.keys, &plaintext, pad_to, &mut body);
        post.body = Bytes::from(body);
        SealedDelivery { turn, post: sealed.map(|()| post) }
    }

    fn plain(&self) -> Plain<'_> {
        Plain { keys: &self.turn.job.keys, plaintext: &self.plaintext, pad_to: self.pad_to }
    }

    fn with(self, body: Result<Vec<u8>, SealError>) -> SealedDelivery {
        let Self { turn, mut post, .. } = self;
        let sealed = body.map(|body| {
            post.body = Bytes::from(body);
            post
        });
        SealedDelivery { turn, post: sealed }
    }
}

/// Encrypts several payloads, eight at a time if the sealer can. It takes no lock.
pub(super) fn seal_all(sealer: &Sealer, burst: Vec<Unsealed>) -> Vec<SealedDelivery> {
    if !sealer.is_accelerated() {
        return burst.into_iter().map(Unsealed::seal).collect();
    }
    let bodies = sealer.seal_all(&burst.iter().map(Unsealed::plain).collect::<Vec<_>>());
    burst.into_iter().zip(bodies).map(|(unsealed, body)| unsealed.with(body)).collect()
}
