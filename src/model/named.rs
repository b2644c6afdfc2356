//! Enums whose values go by one name everywhere: a text column of the database, JSON, the OpenAPI description and logs.

/// Declares an enum of names. It reads and writes a `text` column, whose `CHECK` knows the same names, and JSON; whoever
/// reads a name that is none of them gets an error. (A `tt`, not a `literal`: utoipa does not see through the latter.)
macro_rules! named {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Enum:ident {
            $($(#[$variant_meta:meta])* $Variant:ident = $name:tt,)+
        }
    ) => {
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize, utoipa::ToSchema,
        )]
        $(#[$meta])*
        $vis enum $Enum {
            $($(#[$variant_meta])* #[serde(rename = $name)] $Variant,)+
        }

        impl $Enum {
            /// Every value.
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            /// The name used in the database, JSON, metrics and logs.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }

            /// Its names, as they are listed to whoever used another one.
            #[allow(dead_code, reason = "not every enum is read from what people write")]
            $vis fn names() -> String {
                Self::ALL.map(Self::name).join(", ")
            }

            /// The value of that name.
            $vis fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl sqlx::Type<sqlx::Postgres> for $Enum {
            fn type_info() -> sqlx::postgres::PgTypeInfo {
                <str as sqlx::Type<sqlx::Postgres>>::type_info()
            }

            fn compatible(column: &sqlx::postgres::PgTypeInfo) -> bool {
                <str as sqlx::Type<sqlx::Postgres>>::compatible(column)
            }
        }

        impl sqlx::Encode<'_, sqlx::Postgres> for $Enum {
            fn encode_by_ref(
                &self,
                buffer: &mut sqlx::postgres::PgArgumentBuffer,
            ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
                <&str as sqlx::Encode<'_, sqlx::Postgres>>::encode_by_ref(&self.name(), buffer)
            }
        }

        impl<'r> sqlx::Decode<'r, sqlx::Postgres> for $Enum {
            fn decode(value: sqlx::postgres::PgValueRef<'r>) -> Result<Self, sqlx::error::BoxDynError> {
                let name = <&str as sqlx::Decode<'r, sqlx::Postgres>>::decode(value)?;
                Self::from_name(name).ok_or_else(|| format!("no {} is called {name:?}", stringify!($Enum)).into())
            }
        }
    };
}

pub(crate) use named;

#[cfg(test)]
mod tests {
    use serde_json::json;
    use utoipa::PartialSchema as _;

    use crate::campaign::plan::{DidNot, Otherwise};
    use crate::campaign::state::State as CampaignState;
    use crate::campaign::zones::Past;
    use crate::classify::DeadReason;
    use crate::model::hook::{DeliveryState, DisabledWhy, EventType, WebhookState};
    use crate::model::lane::Gateway;
    use crate::model::message::MessageState;
    use crate::model::permission::{Join, Maker};
    use crate::model::role::Role as TeammateRole;
    use crate::model::subscription::SubscriptionState;
    use crate::store::keys::vapid_keys::Role;
    use crate::store::outcomes::{alerts, dead_letters};

    #[test]
    fn a_value_has_one_name_in_the_database_in_json_and_in_the_description_of_the_api() {
        macro_rules! check {
            ($($Enum:ty),+) => {$(
                let names = <$Enum>::ALL.map(<$Enum>::name);
                let described = serde_json::to_value(<$Enum>::schema()).unwrap();
                let described: Vec<_> = match described["oneOf"].as_array() {
                    Some(values) => values.iter().flat_map(|value| value["enum"].as_array().unwrap()).cloned().collect(),
                    None => described["enum"].as_array().unwrap().clone(),
                };
                assert_eq!(described, names.map(|name| json!(name)));
                for value in <$Enum>::ALL {
                    assert_eq!(<$Enum>::from_name(value.name()), Some(value));
                    assert_eq!(serde_json::to_value(value).unwrap(), value.name());
                    assert_eq!(serde_json::from_value::<$Enum>(json!(value.name())).unwrap(), value);
                }
                assert_eq!(<$Enum>::from_name("nonsense"), None);
            )+};
        }
        check!(
            SubscriptionState,
            Gateway,
            MessageState,
            DeadReason,
            dead_letters::State,
            alerts::Kind,
            Role,
            Maker,
            Join,
            TeammateRole,
            CampaignState,
            Past,
            Otherwise,
            DidNot,
            EventType,
            WebhookState,
            DisabledWhy,
            DeliveryState
        );
    }
}
