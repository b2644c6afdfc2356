//! Frequency caps: how many messages a person is sent in a rolling window. Pure rules; the store
//! keeps what counts.

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

/// Most caps over the same tiers: a statement has room for so many.
pub(crate) const ALIKE_MAX: usize = 4;
pub(crate) const CAPS_MAX: usize = ALIKE_MAX * Group::ALL.len();
/// The highest `max`. So many times are kept of each person.
const MAX_MAX: i64 = 50;
const WINDOW_MIN: Duration = Duration::from_secs(60);
/// The longest window, and how long what counts is kept.
pub const WINDOW_MAX: Duration = Duration::from_secs(30 * 86_400);
/// How a refusal is written where another browser of the same person was refused before.
const AS_ELSEWHERE: &str = "as in another browser";

/// Tiers that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Promotional,
    Engagement,
    Both,
}

impl Group {
    /// Every group. Whoever counts in several does so in this order.
    pub const ALL: [Self; 3] = [Self::Promotional, Self::Engagement, Self::Both];

    /// The group of exactly these tiers, each named once or more often; none: there is no such group.
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

    /// The number that stands for this group in the database: the sum of its tiers' own.
    pub fn code(self) -> i16 {
        self.tiers().iter().map(|tier| tier.code()).sum()
    }
}

/// At most so many messages to a person in a rolling window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    group: Group,
    max: u32,
    window: Duration,
}

/// A cap in its written form, in requests and in the database.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Cap))]
#[serde(deny_unknown_fields)]
pub struct WrittenCap {
    /// Which tiers it counts, together if there are two: `promotional`, `engagement`. Both by default. There are no caps for
    /// transactional messages.
    #[serde(default = "both")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<bellwire_core::openapi::TierSchema>))]
    tiers: Vec<Tier>,
    /// Messages, 1 to 50.
    max: i64,
    /// The window: a whole number and its unit, `s`, `m`, `h` or `d`, from a minute to 30 days.
    #[cfg_attr(feature = "openapi", schema(example = "1d"))]
    window: String,
}

fn both() -> Vec<Tier> {
    Group::Both.tiers().to_vec()
}

impl WrittenCap {
    fn read(&self, pointer: &str, errors: &mut Vec<PolicyError>) -> Option<Cap> {
        let mut refuse = |member: &str, detail: String| {
            errors.push(PolicyError { pointer: format!("{pointer}/{member}"), detail });
        };
        let group = Group::of(&self.tiers);
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

/// The caps of an app. All of them hold.
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

    /// Caps as they are stored. What does not parse, which only a hand can have written, counts as not set.
    pub fn restore(stored: Option<Value>) -> Self {
        let written: Vec<WrittenCap> =
            stored.and_then(|stored| serde_json::from_value(stored).ok()).unwrap_or_default();
        Self::parse(&written).unwrap_or_default()
    }

    /// Their written form, in the order in which they were given.
    pub fn written(&self) -> Vec<WrittenCap> {
        self.0.iter().copied().map(WrittenCap::from).collect()
    }

    /// What holds for messages of a tier, by what is counted together, in the order of [`Group::ALL`]. Empty: nothing does.
    pub fn of(&self, tier: Tier) -> Vec<Counted> {
        let groups = Group::ALL.into_iter().filter(|group| group.tiers().contains(&tier));
        let counted = groups
            .map(|group| Counted { group, caps: self.0.iter().copied().filter(|cap| cap.group == group).collect() });
        counted.filter(|counted| !counted.caps.is_empty()).collect()
    }
}

/// Caps over the same tiers: 1 to [`ALIKE_MAX`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    pub group: Group,
    caps: Vec<Cap>,
}

impl Counted {
    /// How many times, the newest first, it takes to decide: the highest `max`.
    pub fn kept(&self) -> i32 {
        self.caps.iter().map(Cap::place).max().unwrap_or(0)
    }

    /// By which times a person has had enough: if at one of these places, from 1 on, among theirs, the newest first, there is
    /// one that is later than the one beside it. Places that nobody has fill it up.
    pub fn limits(&self, now: Timestamp) -> [(i32, Timestamp); ALIKE_MAX] {
        let mut limits = [(i32::MAX, now); ALIKE_MAX];
        for (limit, cap) in limits.iter_mut().zip(&self.caps) {
            *limit = (cap.place(), now - cap.window);
        }
        limits
    }

    /// The cap that keeps a person the longest who has had messages at these times, the newest first. None: they may have
    /// another one now.
    pub fn refusal(&self, at: &[Timestamp], now: Timestamp) -> Option<Refusal> {
        let full = self.caps.iter().filter_map(|cap| {
            let free_at = *at.get(cap.max as usize - 1)? + cap.window;
            (free_at > now).then_some((free_at, *cap))
        });
        full.max_by_key(|(free_at, _)| *free_at).map(|(free_at, cap)| Refusal::Full { cap, free_at })
    }
}

impl Cap {
    /// Where, among somebody's times with the newest first, the last one stands that the window has room for.
    fn place(&self) -> i32 {
        i32::try_from(self.max).unwrap_or(i32::MAX)
    }

    pub fn to_json(self) -> Value {
        serde_json::json!(WrittenCap::from(self))
    }

    /// What it counts, for people: `2 promotional or engagement messages in 1d`.
    pub fn describe(self) -> String {
        let tiers: Vec<_> = self.group.tiers().iter().map(|tier| tier.name()).collect();
        let messages = if self.max == 1 { "message" } else { "messages" };
        format!("{} {} {messages} in {}", self.max, tiers.join(" or "), duration::written(self.window))
    }
}

/// Why a person does not get a message. It is written into the log of attempts and read again by whoever tells the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// They have had as many as a cap lets them have.
    Full {
        /// Which one; of several the one that lasts the longest.
        cap: Cap,
        free_at: Timestamp,
    },
    /// It was refused for another of their browsers before, and goes to all of them or none.
    AsElsewhere,
}

impl fmt::Display for Refusal {
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

impl FromStr for Refusal {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == AS_ELSEWHERE {
            return Ok(Self::AsElsewhere);
        }
        let words: Vec<_> = text.split(' ').collect();
        let [max, tiers, "in", window, "until", free_at] = words[..] else { return Err(()) };
        let tiers: Result<Vec<Tier>, _> = tiers.split('+').map(str::parse).collect();
        let cap = Cap {
            group: tiers.ok().and_then(|tiers| Group::of(&tiers)).ok_or(())?,
            max: max.parse().map_err(drop)?,
            window: duration::parse(window).ok_or(())?,
        };
        Ok(Self::Full { cap, free_at: free_at.parse().map_err(drop)? })
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};
    use serde_json::json;

    use super::*;

    fn caps(written: Value) -> Caps {
        let caps = Caps::restore(Some(written));
        assert_ne!(caps, Caps::default(), "they do not parse");
        caps
    }

    fn now() -> Timestamp {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    #[test]
    fn caps_read_back_as_they_were_written() {
        let written = json!([
            {"tiers": ["promotional", "engagement"], "max": 2, "window": "1d"},
            {"tiers": ["promotional"], "max": 5, "window": "7d"},
            {"tiers": ["engagement"], "max": 1, "window": "90m"},
        ]);
        assert_eq!(json!(caps(written.clone()).written()), written);
        assert_eq!(
            caps(json!([{"max": 2, "window": "24h"}])),
            caps(json!([{"tiers": [3, 2], "max": 2, "window": "1d"}]))
        );
    }

    #[test]
    fn every_mistake_is_named() {
        let cap = |more: Value| {
            let mut cap = json!({"max": 1, "window": "1d"});
            cap.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            cap
        };
        let many = |n: i64| (1..=n).map(|n| cap(json!({"window": format!("{n}h")}))).collect::<Vec<_>>();
        for (written, pointers) in [
            (vec![cap(json!({"max": 0}))], vec!["/0/max"]),
            (vec![cap(json!({})), cap(json!({"max": 51, "tiers": [3], "window": "59s"}))], vec!["/1/max", "/1/window"]),
            (vec![cap(json!({"tiers": []}))], vec!["/0/tiers"]),
            (vec![cap(json!({"tiers": ["promotional", "transactional"]}))], vec!["/0/tiers"]),
            (vec![cap(json!({"window": "31d"}))], vec!["/0/window"]),
            (vec![cap(json!({"window": "a while"}))], vec!["/0/window"]),
            (vec![cap(json!({})), cap(json!({"window": "24h"}))], vec!["/1/window"]),
            (many(4), vec![]),
            (many(5), vec!["/4"]),
            (many(13), vec![""]),
        ] {
            let written: Vec<WrittenCap> = serde_json::from_value(json!(written)).unwrap();
            let errors = Caps::parse(&written).err().unwrap_or_default();
            assert_eq!(errors.iter().map(|error| &*error.pointer).collect::<Vec<_>>(), pointers, "{written:?}");
        }
    }

    #[test]
    fn caps_apply_to_their_tiers_never_transactional() {
        let caps = caps(json!([
            {"max": 3, "window": "1d"}, {"tiers": ["promotional"], "max": 1, "window": "1h"}, {"max": 9, "window": "7d"},
        ]));
        let of = |tier| caps.of(tier).iter().map(|counted| (counted.group, counted.kept())).collect::<Vec<_>>();
        assert_eq!(of(Tier::Transactional), []);
        assert_eq!(of(Tier::Promotional), [(Group::Promotional, 1), (Group::Both, 9)]);
        assert_eq!(of(Tier::Engagement), [(Group::Both, 9)]);
    }

    #[test]
    fn rolling_window_names_the_longest_cap() {
        let caps = caps(json!([{"max": 2, "window": "1d"}, {"max": 3, "window": "7d"}])).of(Tier::Promotional);
        let (day, week) = (TimeDelta::days(1), TimeDelta::days(7));
        let moment = TimeDelta::microseconds(1);
        for (ago, free_in) in [
            (vec![], None),
            (vec![moment], None),
            (vec![moment, day], None), // to the microsecond: what was a window ago counts no longer
            (vec![moment, day - moment], Some(moment)),
            (vec![moment, moment * 2], Some(day - moment * 2)),
            (vec![day, day * 2, day * 3], Some(day * 4)),
            (vec![moment, moment, day * 3], Some(day * 4)),
            (vec![day, day * 2, week], None),
            (vec![moment, moment, week - day / 2], Some(day - moment)),
        ] {
            let at: Vec<_> = ago.iter().map(|ago| now() - *ago).collect();
            let refusal = caps[0].refusal(&at, now());
            let free_at = refusal.map(|refusal| match refusal {
                Refusal::Full { free_at, .. } => free_at - now(),
                Refusal::AsElsewhere => panic!("{refusal}"),
            });
            assert_eq!(free_at, free_in, "{ago:?}");
            // What the database goes by says the same.
            let is_past = |(place, since): (i32, Timestamp)| at.get(place as usize - 1).is_some_and(|at| *at > since);
            assert_eq!(caps[0].limits(now()).into_iter().any(is_past), free_in.is_some(), "{ago:?}");
        }
    }

    #[test]
    fn refusal_round_trips() {
        let cap = |written| caps(json!([written])).0[0];
        let free_at = now() + TimeDelta::milliseconds(1);
        for (refusal, text) in [
            (
                Refusal::Full { cap: cap(json!({"max": 2, "window": "24h"})), free_at },
                "2 promotional+engagement in 1d until 2027-01-15T08:00:00.001Z",
            ),
            (
                Refusal::Full { cap: cap(json!({"tiers": [3], "max": 1, "window": "90s"})), free_at },
                "1 engagement in 90s until 2027-01-15T08:00:00.001Z",
            ),
            (Refusal::AsElsewhere, "as in another browser"),
        ] {
            assert_eq!(refusal.to_string(), text);
            assert_eq!(text.parse(), Ok(refusal));
        }
        for wrong in
            ["", "2 promotional in 1d", "x promotional in 1d until 2027-01-15T08:00:00Z", "2 all in 1d until now"]
        {
            assert_eq!(wrong.parse::<Refusal>(), Err(()), "{wrong}");
        }
    }
}
