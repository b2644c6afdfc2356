//! Encryption of one delivery. Pure: it touches nothing that is shared.

use bytes::Bytes;

use super::fair::turn::Turn;
use crate::gateway::Post;
use crate::webpush::OVERHEAD;
use crate::webpush::seal::{SealError, seal};

/// A delivery that lacks nothing but its encryption.
pub(super) struct Unsealed {
    pub turn: Turn,
    /// With an empty body.
    pub post: Post,
    pub plaintext: Vec<u8>,
    /// Octets that the plaintext is padded to.
    pub pad_to: usize,
}

/// A delivery whose POST may begin, or whose payload could not be sealed.
pub(super) struct Sealed {
    pub turn: Turn,
    pub post: Result<Post, SealError>,
}

impl Unsealed {
    /// Encrypts the payload. It may run on a thread that is not scheduled for long, and whoever waited for a lock of such a
    /// thread would wait as long: so it takes none.
    pub(super) fn seal(self) -> Sealed {
        let Self { turn, mut post, plaintext, pad_to } = self;
        let mut body = Vec::with_capacity(pad_to + OVERHEAD);
        let sealed = seal(&turn.job.keys, &plaintext, pad_to, &mut body);
        post.body = Bytes::from(body);
        Sealed { turn, post: sealed.map(|()| post) }
    }
}
