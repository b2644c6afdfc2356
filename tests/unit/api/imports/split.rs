//! Unit tests of `src/api/imports/split.rs`, which includes them.

use super::*;

/// Lines and texts of a file that comes in pieces of that size.
fn split(format: ImportFormat, file: &str, piece: usize) -> Result<Vec<(i64, i64, String)>, NoFile> {
    let mut splitter = Splitter::new(format, 1);
    let mut records = Vec::new();
    for octets in file.as_bytes().chunks(piece) {
        splitter.feed(Bytes::copy_from_slice(octets));
        while let Some(record) = splitter.next()? {
            records.push(record);
        }
    }
    records.extend(splitter.finish()?);
    let text = |octets: Option<Vec<u8>>| octets.map_or("too long".to_owned(), |o| String::from_utf8(o).unwrap());
    Ok(records.into_iter().map(|record| (record.line, record.end, text(record.octets))).collect())
}

#[test]
fn records_keep_their_line_numbers() {
    let records = |of: &[(i64, i64, &str)]| of.iter().map(|(a, b, text)| (*a, *b, (*text).to_owned())).collect();
    for (format, file, expected) in [
        (ImportFormat::Ndjson, "", vec![]),
        (ImportFormat::Ndjson, "{}\n\n {\"a\": \"\\\"\"}\n", vec![(1, 1, "{}"), (3, 3, " {\"a\": \"\\\"\"}")]),
        (ImportFormat::Ndjson, "{}\r\n{}", vec![(1, 1, "{}\r"), (2, 2, "{}")]),
        (ImportFormat::Csv, "a,b\r1,\"x\ry\"\r\r2,3", vec![(1, 1, "a,b\r"), (2, 2, "1,\"x\ry\"\r"), (4, 4, "2,3")]),
        (ImportFormat::Json, " {\"a\": {}}\n{} ", vec![(1, 1, "{\"a\": {}}"), (2, 2, "{}")]),
        (ImportFormat::Csv, "a,b\n1,\"x\ny\"\n2,3\n", vec![(1, 1, "a,b"), (2, 3, "1,\"x\ny\""), (4, 4, "2,3")]),
        (
            ImportFormat::Csv,
            "a\n\"x\"\"\n\"\n5\" b\nc\n",
            vec![(1, 1, "a"), (2, 3, "\"x\"\"\n\""), (4, 4, "5\" b"), (5, 5, "c")],
        ),
        (ImportFormat::Json, " [ ] \n", vec![]),
        (
            ImportFormat::Json,
            "[{\"a\": \"],[\\\"\"},\n {\"b\": [1, {}]}]",
            vec![(1, 1, "{\"a\": \"],[\\\"\"}"), (2, 2, "{\"b\": [1, {}]}")],
        ),
    ] {
        for piece in [1, 2, 7, 1_000] {
            let found = split(format, file, piece);
            assert_eq!(found, Ok(records(&expected)), "{file:?} in pieces of {piece}");
        }
    }
}

#[test]
fn what_is_no_array_is_refused() {
    for (file, why) in [
        ("{", NoFile::NoEnd),
        ("x", NoFile::NoArray),
        ("", NoFile::NoArray),
        ("[{}", NoFile::NoEnd),
        ("[{}] x", NoFile::More),
    ] {
        assert_eq!(split(ImportFormat::Json, file, 3), Err(why), "{file}");
    }
}

#[test]
fn endless_record_takes_bounded_memory() {
    let mut splitter = Splitter::new(ImportFormat::Csv, 1);
    splitter.feed(Bytes::from_static(b"\""));
    assert_eq!(splitter.next(), Ok(None));
    for _ in 0..100 {
        splitter.feed(vec![b'x'; 10_000].into());
        assert_eq!(splitter.next(), Ok(None));
    }
    assert!(splitter.record.capacity() <= 2 * RECORD_MAX);
    let last = splitter.finish().unwrap().unwrap();
    assert_eq!(last.octets, None);
}
