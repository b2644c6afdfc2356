//! Lists by id, with pages in both directions, the newest row first. A page begins beyond a row's key, so it stays in place while
//! rows are added and deleted, and the last page costs as much as the first.

use uuid::Uuid;

use bellwire_core::id::just_above;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Towards {
    Older,
    Newer,
}

impl Towards {
    /// Returns the comparison of keys with the one that the page lies beyond.
    pub fn comparison(self) -> &'static str {
        match self {
            Self::Older => " < ",
            Self::Newer => " > ",
        }
    }

    pub fn order(self) -> &'static str {
        match self {
            Self::Older => " DESC ",
            Self::Newer => " ASC ",
        }
    }
}

/// Rows of a list nearest to a key, in one direction, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keyset {
    pub towards: Towards,
    /// The key, which itself is left out; the greatest one for the newest rows.
    pub beyond: Uuid,
    pub limit: i64,
}

impl Keyset {
    pub fn newest(limit: i64) -> Self {
        Self { towards: Towards::Older, beyond: Uuid::max(), limit }
    }

    /// The row of that id, or else the next older one.
    pub fn from(id: impl Into<Uuid>) -> Self {
        Self { beyond: just_above(id), ..Self::newest(1) }
    }

    /// The row of that number, or else the next lower one.
    pub fn from_number(number: i32) -> Self {
        Self::from(key_of(number))
    }

    pub fn number(self) -> i32 {
        i32::try_from(self.beyond.as_u128()).unwrap_or(i32::MAX)
    }
}

pub fn key_of(number: i32) -> Uuid {
    Uuid::from_u128(u128::from(number.unsigned_abs()))
}

/// Reads a page, in the page's direction, as [`fetch_all!`] does. In the statement, which is a list of literals, `<` and `DESC` are
/// reversed for newer rows. So each direction has its own statement, which is checked at compile time and uses an index.
macro_rules! paged {
    ($executor:expr, $page:expr, $row:ident, [$($text:tt)+] $(, $parameters:tt)*) => {
        match $page.towards {
            $crate::keyset::Towards::Older => {
                $crate::keyset::paged!(@ [" < " " DESC "] [""] [$($text)+] [$executor, $row, $($parameters),*])
            }
            $crate::keyset::Towards::Newer => {
                $crate::keyset::paged!(@ [" > " " ASC "] [""] [$($text)+] [$executor, $row, $($parameters),*])
            }
        }
    };
    (@ [$beyond:tt $order:tt] [$($done:tt)+] [< $($text:tt)*] $rest:tt) => {
        $crate::keyset::paged!(@ [$beyond $order] [$($done)+ + $beyond] [$($text)*] $rest)
    };
    (@ [$beyond:tt $order:tt] [$($done:tt)+] [DESC $($text:tt)*] $rest:tt) => {
        $crate::keyset::paged!(@ [$beyond $order] [$($done)+ + $order] [$($text)*] $rest)
    };
    (@ $way:tt [$($done:tt)+] [$part:literal $($text:tt)*] $rest:tt) => {
        $crate::keyset::paged!(@ $way [$($done)+ + $part] [$($text)*] $rest)
    };
    (@ $way:tt [$($done:tt)+] [] [$executor:expr, $row:ident, $($parameters:tt),*]) => {
        fetch_all!($executor, $row, $($done)+ $(, $parameters)*)
    };
}
pub(crate) use paged;
