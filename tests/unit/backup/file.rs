//! Unit tests of `src/backup/file.rs`, which includes them.

use super::*;

fn key(n: u8) -> hmac::Context {
    hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &[n; 32]))
}

fn manifest() -> Manifest {
    Manifest {
        id: Uuid::nil(),
        began_at: Timestamp::from_timestamp(1_800_000_000, 0).unwrap(),
        program: "0.1.0".to_owned(),
        migration: 7,
        postgres: 150_018,
        pg_dump: 15,
        data_keys: Vec::new(),
    }
}

fn backup(archive: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    write(&mut file, &[], &manifest(), key(1), archive, || Ok(())).unwrap();
    file
}

fn read(file: Vec<u8>, mac: hmac::Context) -> Result<Vec<u8>, BackupFileError> {
    let mut archive = Vec::new();
    let backup = Backup::read(io::Cursor::new(file))?;
    assert_eq!(backup.manifest.pg_dump, 15);
    backup.copy(mac, &mut archive).map(|_| archive)
}

#[test]
fn what_was_written_is_read_and_nothing_else() {
    let archive: Vec<u8> = (0..BUFFER * 2 + 5).map(|n| n as u8).collect();
    assert_eq!(read(backup(&archive), key(1)).unwrap(), archive);
    assert_eq!(read(backup(b""), key(1)).unwrap(), b"");
    assert!(matches!(read(backup(b"x"), key(2)), Err(BackupFileError::Tampered)), "another master key");
    assert!(matches!(Backup::read(&b"PGDMP"[..]), Err(BackupFileError::Other)));
}

#[test]
fn truncated_or_changed_file_is_refused() {
    let file = backup(&[5; 1_000]);
    for cut in 0..file.len() {
        let cut_off =
            Backup::read(io::Cursor::new(file[..cut].to_vec())).and_then(|it| it.copy(key(1), &mut io::sink()));
        assert!(cut_off.is_err(), "cut at {cut}");
    }
    for at in 0..file.len() {
        let mut changed = file.clone();
        changed[at] ^= 1;
        let changed = Backup::read(io::Cursor::new(changed)).and_then(|it| it.copy(key(1), &mut io::sink()));
        assert!(changed.is_err(), "octet {at}");
    }
}

#[test]
fn interrupted_file_is_no_backup() {
    let mut file = Vec::new();
    let failed = write(&mut file, &[], &manifest(), key(1), &b"half"[..], || Err(io::Error::other("pg_dump failed")));
    assert_eq!(failed.unwrap_err().to_string(), "pg_dump failed");
    assert!(matches!(read(file, key(1)), Err(BackupFileError::Tampered)));
}
