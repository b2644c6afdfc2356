//! Frequency caps: maximum messages to a person in a rolling window. Pure rules; the store has the counts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::SecondsFormat;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::PolicyError;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::duration;

/// Reason of a delivery that was not sent, because its person wants only transactional messages.
pub const MUTED: &str = "muted";

/// Maximum caps over the same tiers, limited by the SQL statement.
pub(crate) const ALIKE_MAX: usize = 4;
pub(crate) const CAPS_MAX: usize = ALIKE_MAX * TierGroup::ALL.len();
/// Maximum of `max`, and maximum times stored for each person.
const MAX_MAX: i64 = 50;
const WINDOW_MIN: Duration = Duration::from_secs(60);
/// Longest window. Counts are stored as long.
pub const WINDOW_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Stored text of a refusal that repeats the refusal for another browser of the same person.
const AS_ELSEWHERE: &str = "as in another browser";

/// Group of tiers that a cap counts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TierGroup {
    Promotional,
    Engagement,
    Both,
}

impl TierGroup {
    /// All groups, in the order in which a message is counted.
    pub const ALL: [Self; 3] = [Self::Promotional, Self::Engagement, Self::Both];

    /// Returns the group of exactly these tiers; duplicates are allowed. `None`: no such group.
    fn of(tiers: &[Tier]) -> Option<Self> {
        let has = |tier| tiers.contains(&tier);
        match (has(Tier::Transactional), has(Tier::Promotional), has(Tier::Engagement)) {
            (false, true, true) => Some(Self::Both),
            (false, true, false) => Some(Self::Promotional),
            (false, false, true) => Some(Self::Engagement),
            _ => None,
        }
    }

    pub fn tiers(self) -> &'static [Tier] {
        match self {
            Self::Promotional => &[Tier::Promotional],
            Self::Engagement => &[Tier::Engagement],
            Self::Both => &[Tier::Promotional, Tier::Engagement],
        }
    }

    /// Returns the number of this group in the database: the sum of its tiers' numbers.
    pub fn code(self) -> i16 {
        self.tiers().iter().map(|tier| tier.code()).sum()
    }
}

/// Maximum messages to a person in a rolling window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    group: TierGroup,
    max: u32,
    window: Duration,
}

/// JSON form of a cap, in requests and in the database.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Cap))]
#[serde(deny_unknown_fields)]
pub struct WrittenCap {
    /// Tiers that are counted together: `promotional`, `engagement`, or both (the default). Transactional messages have no
    /// caps.
    #[serde(default = "both")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<bellwire_core::openapi::TierSchema>))]
    tiers: Vec<Tier>,
    /// Maximum messages, 1 to 50.
    max: i64,
    /// Window: a whole number with the unit `s`, `m`, `h` or `d`, from a minute to 30 days.
    #[cfg_attr(feature = "openapi", schema(example = "1d"))]
    window: String,
}

fn both() -> Vec<Tier> {
    TierGroup::Both.tiers().to_vec()
}

impl WrittenCap {
    fn read(&self, pointer: &str, errors: &mut Vec<PolicyError>) -> Option<Cap> {
        let mut refuse = |member: &str, detail: String| {
            errors.push(PolicyError { pointer: format!("{pointer}/{member}"), detail });
        };
        let group = TierGroup::of(&self.tiers);
        if group.is_none() {
            refuse("tiers", "must be promotional, engagement or both: transactional messages have no caps".to_owned());
        }
        let max = u32::try_from(self.max).ok().filter(|_| (1..=MAX_MAX).contains(&self.max));
        if max.is_none() {
            refuse("max", format!("must be 1 to {MAX_MAX}"));
        }
        let window = duration::parse(&self.window).filter(|window| (WINDOW_MIN..=WINDOW_MAX).contains(window));
        if window.is_none() {
            refuse("window", "must be a duration such as `12h` or `7d`, from a minute to 30 days".to_owned());
        }
        Some(Cap { group: group?, max: max?, window: window? })
    }
}

impl From<Cap> for WrittenCap {
    fn from(Cap { group, max, window }: Cap) -> Self {
        Self { tiers: group.tiers().to_vec(), max: max.into(), window: duration::written(window) }
    }
}

/// Caps of an app, all of which apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caps(Vec<Cap>);

impl Caps {
    pub fn parse(written: &[WrittenCap]) -> Result<Self, Vec<PolicyError>> {
        let error = |pointer: &str, detail: String| PolicyError { pointer: pointer.to_owned(), detail };
        if written.len() > CAPS_MAX {
            return Err(vec![error("", format!("must be at most {CAPS_MAX} caps"))]);
        }
        let (mut caps, mut errors) = (Vec::<Cap>::new(), Vec::new());
        for (i, one) in written.iter().enumerate() {
            let Some(cap) = one.read(&format!("/{i}"), &mut errors) else { continue };
            let alike = || caps.iter().filter(|other| other.group == cap.group);
            if alike().any(|other| other.window == cap.window) {
                errors.push(error(&format!("/{i}/window"), "is that of an earlier cap over the same tiers".to_owned()));
            } else if alike().count() == ALIKE_MAX {
                errors.push(error(&format!("/{i}"), format!("may be one of at most {ALIKE_MAX} over the same tiers")));
            } else {
                caps.push(cap);
            }
        }
        if errors.is_empty() { Ok(Self(caps)) } else { Err(errors) }
    }

    /// Parses stored caps. Invalid values, which only manual changes can produce, count as absent.
    pub fn restore(stored: Option<Value>) -> Self {
        let written: Vec<WrittenCap> =
            stored.and_then(|stored| serde_json::from_value(stored).ok()).unwrap_or_default();
        Self::parse(&written).unwrap_or_default()
    }

    /// Returns the JSON form, in the order of the request.
    pub fn written(&self) -> Vec<WrittenCap> {
        self.0.iter().copied().map(WrittenCap::from).collect()
    }

    /// Returns the caps for messages of a tier, by group, in the order of [`TierGroup::ALL`].
    pub fn of(&self, tier: Tier) -> Vec<CapSet> {
        let groups = TierGroup::ALL.into_iter().filter(|group| group.tiers().contains(&tier));
        let counted = groups
            .map(|group| CapSet { group, caps: self.0.iter().copied().filter(|cap| cap.group == group).collect() });
        counted.filter(|counted| !counted.caps.is_empty()).collect()
    }
}

/// Caps over the same tiers: 1 to [`ALIKE_MAX`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapSet {
    pub group: TierGroup,
    caps: Vec<Cap>,
}

impl CapSet {
    /// Returns how many of a person's last times a decision needs: the highest `max`.
    pub fn kept(&self) -> i32 {
        self.caps.iter().map(Cap::place).max().unwrap_or(0)
    }

    /// Returns positions among a person's times (from 1, newest first), each with a limit. A cap is reached if the time at a
    /// position is later than its limit. Unused entries have positions that do not exist.
    pub fn limits(&self, now: Timestamp) -> [(i32, Timestamp); ALIKE_MAX] {
        let mut limits = [(i32::MAX, now); ALIKE_MAX];
        for (limit, cap) in limits.iter_mut().zip(&self.caps) {
            *limit = (cap.place(), now - cap.window);
        }
        limits
    }

    /// Returns the cap that lasts longest for a person with messages at these times, newest first. `None`: another message may
    /// be sent now.
    pub fn refusal(&self, at: &[Timestamp], now: Timestamp) -> Option<CapRefusal> {
        let full = self.caps.iter().filter_map(|cap| {
            let free_at = *at.get(cap.max as usize - 1)? + cap.window;
            (free_at > now).then_some((free_at, *cap))
        });
        full.max_by_key(|(free_at, _)| *free_at).map(|(free_at, cap)| CapRefusal::Full { cap, free_at })
    }
}

impl Cap {
    /// Returns the position (newest first) of the last message that the cap allows in the window.
    fn place(&self) -> i32 {
        i32::try_from(self.max).unwrap_or(i32::MAX)
    }

    pub fn to_json(self) -> Value {
        serde_json::json!(WrittenCap::from(self))
    }

    /// Describes the cap for people: `2 promotional or engagement messages in 1d`.
    pub fn describe(self) -> String {
        let tiers: Vec<_> = self.group.tiers().iter().map(|tier| tier.name()).collect();
        let messages = if self.max == 1 { "message" } else { "messages" };
        format!("{} {} {messages} in {}", self.max, tiers.join(" or "), duration::written(self.window))
    }
}

/// Reason why a person does not get a message. It is stored in the log of attempts, from which explanations read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapRefusal {
    /// The person reached a cap.
    Full {
        /// The reached cap; of several, the one that lasts longest.
        cap: Cap,
        free_at: Timestamp,
    },
    /// The message was refused for another browser of the person before. It is sent to all of their browsers or to none.
    AsElsewhere,
}

impl fmt::Display for CapRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { cap: Cap { group, max, window }, free_at } => {
                let tiers: Vec<_> = group.tiers().iter().map(|tier| tier.name()).collect();
                let (tiers, window) = (tiers.join("+"), duration::written(*window));
                write!(f, "{max} {tiers} in {window} until {}", free_at.to_rfc3339_opts(SecondsFormat::AutoSi, true))
            }
            Self::AsElsewhere => f.write_str(AS_ELSEWHERE),
        }
    }
}

impl FromStr for CapRefusal {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == AS_ELSEWHERE {
            return Ok(Self::AsElsewhere);
        }
        let words: Vec<_> = text.split(' ').collect();
        let [max, tiers, "in", window, "until", free_at] = words[..] else { return Err(()) };
        let tiers: Result<Vec<Tier>, _> = tiers.split('+').map(str::parse).collect();
        let cap = Cap {
            group: tiers.ok().and_then(|tiers| TierGroup::of(&tiers)).ok_or(())?,
            max: max.parse().map_err(drop)?,
            window: duration::parse(window).ok_or(())?,
        };
        Ok(Self::Full { cap, free_at: free_at.parse().map_err(drop)? })
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/policy/caps.rs"]
mod tests;
