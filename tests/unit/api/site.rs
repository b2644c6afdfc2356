//! Unit tests of `src/api/site.rs`, which includes them.

use super::*;

#[test]
fn what_a_browser_has_is_not_sent_again() {
    let file = File::new("/sdk/x.js", [b"b", b"g", b"x"]);
    let etag = file.forms[2].etag.to_str().unwrap().to_owned();
    for known in [etag.clone(), format!("\"other\", W/{etag}"), "*".to_owned()] {
        let request = HeaderMap::from_iter([(header::IF_NONE_MATCH, known.parse().unwrap())]);
        assert_eq!(file.answer(&request).status(), StatusCode::NOT_MODIFIED, "{known}");
    }
    for unknown in ["", "\"other\"", "x"] {
        let request = HeaderMap::from_iter([(header::IF_NONE_MATCH, unknown.parse().unwrap())]);
        assert_eq!(file.answer(&request).status(), StatusCode::OK, "{unknown}");
    }
}

#[test]
fn client_gets_the_smallest_accepted_encoding() {
    let file = File::new("/sdk/x.js", [b"b", b"g", b"x"]);
    let codings = [
        ("gzip, deflate, br, zstd", "br"),
        ("br;q=0, gzip;q=0.5", "gzip"),
        ("GZIP", "gzip"),
        ("deflate", ""),
        ("br;q=0.000", ""),
        ("br;q=x", ""),
        ("*", ""),
        ("", ""),
    ];
    for (accepted, coding) in codings {
        let request = HeaderMap::from_iter([(header::ACCEPT_ENCODING, accepted.parse().unwrap())]);
        let answer = file.answer(&request);
        let told = answer.headers().get(header::CONTENT_ENCODING).map_or("", |value| value.to_str().unwrap());
        assert_eq!(told, coding, "{accepted}");
        assert_eq!(answer.headers()[header::VARY], "Accept-Encoding");
        let request = HeaderMap::from_iter([
            (header::ACCEPT_ENCODING, accepted.parse().unwrap()),
            (header::IF_NONE_MATCH, answer.headers()[header::ETAG].clone()),
        ]);
        assert_eq!(file.answer(&request).status(), StatusCode::NOT_MODIFIED, "{accepted}");
    }
    let archive = File::new("/sdk/x.tgz", [b"", b"", b"x"]);
    let request = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static("br, gzip"))]);
    assert_eq!(archive.answer(&request).headers().get(header::CONTENT_ENCODING), None, "it is compressed already");
    let etags = file.forms.each_ref().map(|form| form.etag.clone());
    assert!(etags[0] != etags[1] && etags[1] != etags[2], "a strong ETag is of one form");
}

#[test]
fn all_of_the_admin_page_is_small() {
    let of_admin = EMBEDDED.iter().filter(|(path, _)| path.starts_with("/admin/"));
    let octets: usize = of_admin.map(|(_, [packed, ..])| packed.len()).sum();
    assert!((20_000..=226_000).contains(&octets), "{octets} octets compressed");
}

#[test]
fn every_embedded_file_has_a_type() {
    for (path, file) in FILES.iter() {
        assert_ne!(file.kind, "application/octet-stream", "{path}");
    }
}
