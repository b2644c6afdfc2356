//! Names of time zones (IANA), read from the forms that browsers, operating systems and databases write.

use chrono_tz::{TZ_VARIANTS, Tz};

/// Maximum bytes of a name.
const NAME_MAX: usize = 64;
/// First parts of zone names. An unknown name that begins with one of these areas is accepted, because a newer database may
/// have it.
const AREAS: [&str; 10] =
    ["Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific"];
/// Zones without summer time at offsets that are not whole hours, in minutes east of Greenwich.
const BROKEN_HOURS: [(i32, &str); 8] = [
    (-570, "Pacific/Marquesas"),
    (210, "Asia/Tehran"),
    (270, "Asia/Kabul"),
    (330, "Asia/Kolkata"),
    (345, "Asia/Kathmandu"),
    (390, "Asia/Yangon"),
    (525, "Australia/Eucla"),
    (570, "Australia/Darwin"),
];

/// Returns the IANA name of a zone: `+03:00` is `Etc/GMT-3`, `:europe/berlin` is `Europe/Berlin`. `None`: the text names no zone,
/// as `Pacific Standard Time` and `-03:30`.
///
/// `GMT+3` and `UTC+3` lie east of Greenwich, as ICU and people read them; `Etc/GMT+3` lies west, as the database defines it.
pub fn time_zone(text: &str) -> Option<String> {
    let name = text.trim().trim_start_matches(':');
    let name =
        ["/usr/share/zoneinfo/", "posix/", "right/"].iter().fold(name, |name, start| name.trim_start_matches(start));
    let plain = name.replace(' ', "_");
    if let Some(zone) = known(&plain) {
        return Some(zone.name().to_owned());
    }
    if let Some(minutes) = offset(name) {
        return at_offset(minutes);
    }
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_+-".contains(&b));
    let (area, place) = plain.split_once('/')?;
    let has_form = plain.len() <= NAME_MAX && AREAS.contains(&area) && place.split('/').all(is_part);
    has_form.then_some(plain)
}

fn known(name: &str) -> Option<Tz> {
    let name = if name.eq_ignore_ascii_case("z") { "UTC" } else { name };
    name.parse().ok().or_else(|| TZ_VARIANTS.into_iter().find(|zone| zone.name().eq_ignore_ascii_case(name)))
}

/// Reads an offset such as `+03:00`, `UTC-5`, `gmt+0530` or POSIX's `<+03>-3`, in minutes east of Greenwich.
fn offset(text: &str) -> Option<i32> {
    let text =
        text.strip_prefix('<').and_then(|quoted| quoted.split('>').next()).unwrap_or(text).replace('\u{2212}', "-");
    let upper = text.to_ascii_uppercase();
    let signed = ["GMT", "UTC", "UT", "Z"].iter().find_map(|name| upper.strip_prefix(name)).unwrap_or(&upper).trim();
    let (east, digits) = match signed.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match (digits.split_once(':'), digits.len()) {
        (Some((hours, minutes)), _) => (hours, minutes.strip_suffix(":00").unwrap_or(minutes)),
        (None, 1 | 2) => (digits, "00"),
        (None, 4) => digits.split_at_checked(2)?,
        _ => return None,
    };
    let number = |digits: &str, max: u8| digits.parse::<u8>().ok().filter(|n| *n <= max && !digits.starts_with('+'));
    Some(east * (i32::from(number(hours, 14)?) * 60 + i32::from(number(minutes, 59)?)))
}

fn at_offset(minutes: i32) -> Option<String> {
    match (minutes / 60, minutes % 60) {
        (0, 0) => Some("UTC".to_owned()),
        // POSIX counts west of Greenwich.
        (hours @ -12..=14, 0) => Some(format!("Etc/GMT{:+}", -hours)),
        _ => BROKEN_HOURS.iter().find(|(at, _)| *at == minutes).map(|(_, name)| (*name).to_owned()),
    }
}
