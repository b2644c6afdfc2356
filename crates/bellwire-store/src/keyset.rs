//! Lists by id with pages in both directions, the newest row first. A page begins after a row's key, so it is stable while rows
//! are added and deleted, and the last page costs as much as the first.

use uuid::Uuid;

use bellwire_core::id::just_above;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Towards {
    Older,
    Newer,
}

impl Towards {
    /// Returns the SQL operator that compares a row's key with the page's key.
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

/// Page of a list: the rows nearest to a key in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keyset {
    pub towards: Towards,
    /// Key before the first row of the page. The greatest key: from the newest row.
    pub beyond: Uuid,
    pub limit: i64,
}

impl Keyset {
    pub fn newest(limit: i64) -> Self {
        Self { towards: Towards::Older, beyond: Uuid::max(), limit }
    }

    /// Starts at the row with this id, or else at the next older one.
    pub fn from(id: impl Into<Uuid>) -> Self {
        Self { beyond: just_above(id), ..Self::newest(1) }
    }

    /// Starts at the row with this number, or else at the next lower one.
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

/// Reads a page with [`fetch_all!`] in the page's direction. For newer rows `<` and `DESC` are reversed in the statement, which
/// consists of literals. So each direction has its own statement, which is checked at compile time and uses an index.
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
