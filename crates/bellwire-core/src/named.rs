//! Enums whose values have the same name in the database, JSON, the OpenAPI description and logs.

/// Declares an enum of names. It reads and writes JSON and a `text` column, whose `CHECK` has the same names. An unknown name
/// is an error. A number after a name is the discriminant. (It is a `tt`, not a `literal`, because utoipa does not resolve the
/// latter.)
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Enum:ident {
            $($(#[$variant_meta:meta])* $Variant:ident = $name:tt $(($number:literal))?,)+
        }
    ) => {
        $crate::described! {
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
            $(#[$meta])*
            $vis enum $Enum {
                $($(#[$variant_meta])* #[serde(rename = $name)] $Variant $(= $number)?,)+
            }
        }

        impl $Enum {
            /// All values.
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            /// Returns the name used in the database, JSON, metrics and logs.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }

            /// Returns the names as a list, for errors about unknown names.
            #[allow(dead_code, reason = "not every enum is read from what people write")]
            $vis fn names() -> String {
                Self::ALL.map(Self::name).join(", ")
            }

            /// Returns the value with a name. `None`: unknown.
            $vis fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        $crate::stored_as_text!($Enum);
    };
}

/// Derives the OpenAPI schema of an item with the feature `openapi`.
#[cfg(feature = "openapi")]
#[doc(hidden)]
#[macro_export]
macro_rules! described {
    ($($item:tt)*) => { #[derive(utoipa::ToSchema)] $($item)* };
}

#[cfg(not(feature = "openapi"))]
#[doc(hidden)]
#[macro_export]
macro_rules! described {
    ($($item:tt)*) => { $($item)* };
}

/// Reads and writes a `text` column with the feature `sqlx`.
#[cfg(feature = "sqlx")]
#[doc(hidden)]
#[macro_export]
macro_rules! stored_as_text {
    ($Enum:ident) => {
        impl $crate::sqlx::Type<$crate::sqlx::Postgres> for $Enum {
            fn type_info() -> $crate::sqlx::postgres::PgTypeInfo {
                <str as $crate::sqlx::Type<$crate::sqlx::Postgres>>::type_info()
            }

            fn compatible(column: &$crate::sqlx::postgres::PgTypeInfo) -> bool {
                <str as $crate::sqlx::Type<$crate::sqlx::Postgres>>::compatible(column)
            }
        }

        impl $crate::sqlx::Encode<'_, $crate::sqlx::Postgres> for $Enum {
            fn encode_by_ref(
                &self, buffer: &mut $crate::sqlx::postgres::PgArgumentBuffer,
            ) -> Result<$crate::sqlx::encode::IsNull, $crate::sqlx::error::BoxDynError> {
                <&str as $crate::sqlx::Encode<'_, $crate::sqlx::Postgres>>::encode_by_ref(&self.name(), buffer)
            }
        }

        impl<'r> $crate::sqlx::Decode<'r, $crate::sqlx::Postgres> for $Enum {
            fn decode(value: $crate::sqlx::postgres::PgValueRef<'r>) -> Result<Self, $crate::sqlx::error::BoxDynError> {
                let name = <&str as $crate::sqlx::Decode<'r, $crate::sqlx::Postgres>>::decode(value)?;
                Self::from_name(name).ok_or_else(|| format!("no {} is called {name:?}", stringify!($Enum)).into())
            }
        }
    };
}

#[cfg(not(feature = "sqlx"))]
#[doc(hidden)]
#[macro_export]
macro_rules! stored_as_text {
    ($Enum:ident) => {};
}

#[cfg(all(test, feature = "openapi"))]
#[path = "../../../tests/crates/core/unit/named.rs"]
mod tests;
