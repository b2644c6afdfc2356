//! Eight lanes of AVX-512 IFMA, by the crate `bellwire-p256-lanes`.

use aws_lc_rs::rand;
use bellwire_p256_lanes::{Engine, Scalars};

use super::{Accelerator, ExchangeRecord, LANES};

impl Accelerator for Engine {
    fn name(&self) -> String {
        Engine::name(*self).to_owned()
    }

    fn knows_answers(&self) -> bool {
        Engine::knows_answers(*self)
    }

    fn exchange(&self, browsers: &[[u8; 65]; LANES], shown: usize) -> Option<ExchangeRecord> {
        let scalars = Scalars::generate(rand::fill).ok()?;
        let found = Engine::exchange(*self, &scalars, browsers);
        Some(ExchangeRecord { public: found.public, shared: found.shared, private: scalars.expose(shown) })
    }
}

/// Returns the engine for this processor.
pub(super) fn detect() -> Option<Box<dyn Accelerator>> {
    Some(Box::new(Engine::detect()?))
}
