//! Intel's crypto_mb, which computes eight at a time with AVX-512 IFMA.

use aws_lc_rs::rand;
use bellwire_multi_buffer as multi_buffer;

use super::{Accelerator, Exchange, LANES};

/// A processor that can.
#[derive(Debug)]
pub(super) struct CryptoMb(&'static multi_buffer::Accelerator);

impl CryptoMb {
    pub(super) fn detect() -> Option<Self> {
        multi_buffer::Accelerator::detect().map(Self)
    }
}

impl Accelerator for CryptoMb {
    fn name(&self) -> String {
        format!("crypto_mb {}", self.0.version())
    }

    fn exchange(&self, browsers: &[[u8; 65]; LANES], shown: usize) -> Option<Exchange> {
        let scalars = multi_buffer::Scalars::generate(rand::fill).ok()?;
        let public = self.0.public_keys(&scalars)?;
        Some(Exchange { public, shared: self.0.agree(&scalars, browsers), private: scalars.expose(shown) })
    }
}
