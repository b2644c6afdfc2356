use super::*;

#[test]
fn a_contact_is_one_that_apple_accepts() {
    for good in [
        "mailto:push@example.com",
        "mailto:a.b+c@mail.example.co.uk",
        "https://example.com",
        "mailto:ops@shop.example",
        "https://example.com/contact?x=1",
    ] {
        assert_eq!(check_subject(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        "push@example.com",
        "mailto:",
        "mailto:push",
        "mailto:@example.com",
        "mailto:push@",
        "mailto:x@localhost",
        "mailto:x@mac.local",
        "mailto:x@a.LOCAL",
        "mailto:x@a.invalid",
        "mailto:x@a.test",
        "mailto: x@example.com",
        "mailto:<x@example.com>",
        "mailto:mailto:x@example.com",
        "mailto:x@y@example.com",
        "mailto:x@example.com,y@example.com",
        "mailto:x@example.com?subject=y",
        "mailto:x@-a.com",
        "mailto:x@a..com",
        "mailto:x@127.0.0.1",
        "mailto:x@exämple.com",
        "http://example.com",
        "https://localhost",
        "https://10.0.0.1",
        "https://[::1]/",
        "https://intranet",
        "https://user@example.com",
        "https://",
        "MAILTO:x@example.com",
    ] {
        assert!(check_subject(bad).is_err(), "{bad}");
    }
    assert!(check_subject(&format!("mailto:{}@example.com", "a".repeat(255))).is_err());
}
