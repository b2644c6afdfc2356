//! Unit tests of `src/backup/age.rs`, which includes them.

use super::*;

fn pair() -> (Vec<Identity>, Recipient) {
    let secret = bech32::encode_upper::<bech32::Bech32>(Hrp::parse("age-secret-key-").unwrap(), &[7; 32]).unwrap();
    let identities = Identity::parse_file(&format!("# created: 2030-01-31\n{secret}\n")).unwrap();
    let recipient = identities[0].recipient().unwrap();
    (identities, recipient)
}

fn encrypted(plain: &[u8], recipients: &[Recipient]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), recipients).unwrap();
    writer.write_all(plain).unwrap();
    writer.finish().unwrap()
}

fn decrypted(file: &[u8], identities: &[Identity]) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    AgeReader::new(file, identities)?.read_to_end(&mut plain)?;
    Ok(plain)
}

#[test]
fn encrypted_data_reads_back_at_any_length() {
    let (identities, recipient) = pair();
    let other = Recipient(random());
    for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 7] {
        let plain: Vec<u8> = (0..length).map(|n| n as u8).collect();
        let file = encrypted(&plain, &[other.clone(), recipient.clone()]);
        assert_eq!(decrypted(&file, &identities).unwrap(), plain, "{length}");
    }
    let file = encrypted(b"secret", &[other]);
    let refused = decrypted(&file, &identities).unwrap_err();
    assert_eq!(refused.to_string(), "none of the identities can read it");
}

#[test]
fn what_age_itself_has_encrypted_is_read() {
    // `printf 'Hello from age' | age -r age1zwlyl6h2… | base64`, by age 1.1.1.
    let file = base64::engine::general_purpose::STANDARD
        .decode(concat!(
            "YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IFgyNTUxOSBQYUo4amM1TllsQkFmeEovYkFTVForVzhJUUNzWWIwMndOYjBYVlNsM21v",
            "CitXY0hwekt6aitFSXc0Wk1idzltZ0NESDR3d0ZTK0VpNlNsZDMrK2l6K3MKLS0tIFdpM3RuTlJSN1VrK0VnaDY1aWFIMzYzR0dU",
            "T3FNUi9tcnQxd0xTSVpvVTgKRY6qhz3SOXDUAuO7V6tos6MOvBOef1h3/BXxA4MgMOOBFMMVfhE0F209mYRXiA==",
        ))
        .unwrap();
    let (identities, recipient) = pair();
    assert_eq!(decrypted(&file, &identities).unwrap(), b"Hello from age");
    let known = "age1zwlyl6h27gzv0lfntr7fcqrjrzqazap8sy5zylkxwneh7llf0dksu37mwt";
    assert_eq!(known.parse::<Recipient>().unwrap(), recipient);
}

#[test]
fn truncated_or_changed_file_is_refused() {
    let (identities, recipient) = pair();
    let file = encrypted(&vec![7; CHUNK + 100], &[recipient]);
    for cut in [0, 10, 60, 150, 200, file.len() - 1, file.len() - 116, file.len() - 117] {
        assert!(decrypted(&file[..cut], &identities).is_err(), "cut at {cut}");
    }
    for at in (0..file.len()).step_by(97).chain(0..250) {
        let mut changed = file.clone();
        changed[at] ^= 1;
        assert!(decrypted(&changed, &identities).is_err(), "octet {at}");
    }
    let longer = [file.as_slice(), b"x"].concat();
    assert!(decrypted(&longer, &identities).is_err());
}

#[test]
fn recipients_and_identities_are_told_from_anything_else() {
    assert!("age1".parse::<Recipient>().is_err());
    assert!("age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p".parse::<Recipient>().is_ok());
    assert!("age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8q".parse::<Recipient>().is_err());
    assert_eq!(Identity::parse_file("# nothing\n").unwrap_err(), WrongKey::Identity);
    assert_eq!(format!("{:?}", pair().0), "[Identity(…)]");
}
