//! The age key that backups of tests are encrypted for.

/// A pair as `age-keygen` makes it, of no use elsewhere.
pub const AGE_IDENTITY: &str = "AGE-SECRET-KEY-1QURSWPC8QURSWPC8QURSWPC8QURSWPC8QURSWPC8QURSWPC8QURSKMP32K";

pub const AGE_RECIPIENT: &str = "age1zwlyl6h27gzv0lfntr7fcqrjrzqazap8sy5zylkxwneh7llf0dksu37mwt";
