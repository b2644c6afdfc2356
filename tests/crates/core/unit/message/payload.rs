//! Unit tests of `crates/bellwire-core/src/message/payload.rs`, which includes them.

use serde_json::json;

use super::*;

#[test]
fn payload_is_a_string_or_any_base64() {
    for spelling in ["+/8=", "-_8", "-_8=", "+/8"] {
        let payload: Payload = serde_json::from_value(json!({"base64": spelling})).unwrap();
        assert_eq!(payload.as_bytes(), [0xfb, 0xff]);
    }
    let object = serde_json::from_value::<Payload>(json!({"title": "Hi"})).unwrap();
    assert_eq!(object.as_bytes(), br#"{"title":"Hi"}"#);
    assert_eq!(serde_json::from_value::<Payload>(json!("tëxt")).unwrap().as_bytes(), "tëxt".as_bytes());
    let refusal = |value| serde_json::from_value::<Payload>(value).unwrap_err().to_string();
    assert!(refusal(json!({"base64": "*"})).contains("not base64"));
    assert!(refusal(json!({"base64": "AA", "more": 1})).contains("more"));
    assert!(refusal(json!(7)).contains("a string or"));
}
