//! Languages and time zones as browsers, operating systems and databases write them.

use bellwire_core::locale::language_tag;
use bellwire_core::time_zone::time_zone;

#[test]
fn locale_forms_become_language_tags() {
    for (text, tag) in [
        ("en", Some("en")),
        ("EN-us", Some("en-US")),
        ("zh_hant_tw", Some("zh-Hant-TW")),
        ("en_US.UTF-8", Some("en-US")),
        ("en-US@posix", Some("en-US")),
        ("de_AT.ISO8859-15@euro", Some("de-AT")),
        ("sr_RS@latin", Some("sr-Latn-RS")),
        ("es-419", Some("es-419")),
        ("zh-yue", Some("zh")),
        ("en-US-u-va-posix", Some("en-US-u-va-posix")),
        ("de-AT,de;q=0.9,en;q=0.8", Some("de-AT")),
        ("*, pt-br", Some("pt-BR")),
        ("C:de_AT:de", Some("de-AT")),
        ("", None),
        ("C", None),
        ("C.UTF-8", None),
        ("POSIX", None),
        ("*", None),
        ("und", None),
        ("e_n", None),
        ("x", None),
        ("German", None),
        ("German (Austria)", None),
        ("français", None),
    ] {
        assert_eq!(language_tag(text).as_deref(), tag, "{text}");
    }
}

#[test]
fn zone_forms_become_names_of_the_database() {
    for (text, name) in [
        ("Europe/Vienna", Some("Europe/Vienna")),
        ("America/Argentina/Buenos_Aires", Some("America/Argentina/Buenos_Aires")),
        ("america/new york", Some("America/New_York")),
        (":Europe/Berlin", Some("Europe/Berlin")),
        ("posix/Europe/Berlin", Some("Europe/Berlin")),
        ("America/Newtown", Some("America/Newtown")),
        ("EST5EDT", Some("EST5EDT")),
        ("utc", Some("UTC")),
        ("Z", Some("UTC")),
        ("Etc/GMT+3", Some("Etc/GMT+3")),
        ("+03:00", Some("Etc/GMT-3")),
        ("-0800", Some("Etc/GMT+8")),
        ("\u{2212}08:00", Some("Etc/GMT+8")),
        ("GMT+3", Some("Etc/GMT-3")),
        ("UTC+14:00", Some("Etc/GMT-14")),
        ("<+03>-3", Some("Etc/GMT-3")),
        ("+00:00", Some("UTC")),
        ("+05:30", Some("Asia/Kolkata")),
        ("UTC+05:45", Some("Asia/Kathmandu")),
        ("-03:30", None),
        ("-13:00", None),
        ("+15:00", None),
        ("+3600", None),
        ("", None),
        ("/", None),
        ("3600", None),
        ("x y", None),
        ("Europe/", None),
        ("Europe//Berlin", None),
        ("Europe/Köln", None),
        ("Etc/Unknown", None),
        ("Pacific Standard Time", None),
        ("Eastern Time (US & Canada)", None),
    ] {
        assert_eq!(time_zone(text).as_deref(), name, "{text}");
    }
}
