//! COPY in Postgres's binary format: the fastest way to write many rows, used for outcomes only.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

/// Microseconds between the epochs of Unix and Postgres (2000-01-01).
const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;

/// Collects rows and sends them in one COPY. Fields are written in the order of the statement's columns.
pub struct Rows {
    buffer: Vec<u8>,
    columns: i16,
}

impl Rows {
    /// Creates an empty buffer for rows of this many columns, with capacity for `rows` of about 100 bytes.
    pub fn new(columns: i16, rows: usize) -> Self {
        let mut buffer = Vec::with_capacity(32 + rows * 100);
        buffer.extend_from_slice(b"PGCOPY\n\xff\r\n\0");
        buffer.extend_from_slice(&[0; 8]); // no flags, no header extension
        Self { buffer, columns }
    }

    /// Begins a row. Write exactly the announced number of fields.
    pub fn row(&mut self) -> CopyRow<'_> {
        self.buffer.extend_from_slice(&self.columns.to_be_bytes());
        CopyRow(&mut self.buffer)
    }

    /// Sends all rows. `statement` is `COPY table (columns) FROM STDIN (FORMAT binary)`.
    pub async fn send(mut self, connection: &mut PgConnection, statement: &str) -> sqlx::Result<()> {
        self.buffer.extend_from_slice(&(-1i16).to_be_bytes());
        let mut copy = connection.copy_in_raw(statement).await?;
        match copy.send(self.buffer).await {
            Ok(_) => copy.finish().await.map(drop),
            Err(error) => {
                // The connection may be gone as well; the first error is the one that tells why.
                let _ = copy.abort("sending failed").await;
                Err(error)
            }
        }
    }
}

/// A row that is being written.
pub struct CopyRow<'a>(&'a mut Vec<u8>);

impl CopyRow<'_> {
    fn field(&mut self, octets: &[u8]) -> &mut Self {
        let length = i32::try_from(octets.len()).expect("fields are far below 2 GiB");
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(octets);
        self
    }

    fn null(&mut self) -> &mut Self {
        self.0.extend_from_slice(&(-1i32).to_be_bytes());
        self
    }

    /// Writes a value of type `bytea`.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.field(value)
    }

    /// Writes a value of type `uuid`.
    pub fn uuid(&mut self, value: Uuid) -> &mut Self {
        self.field(value.as_bytes())
    }

    /// Writes a value of type `boolean`.
    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.field(&[u8::from(value)])
    }

    /// Writes a value of type `smallint`.
    pub fn smallint(&mut self, value: i16) -> &mut Self {
        self.field(&value.to_be_bytes())
    }

    /// Writes a value of type `smallint`, or null.
    pub fn smallint_or_null(&mut self, value: Option<i16>) -> &mut Self {
        match value {
            Some(value) => self.smallint(value),
            None => self.null(),
        }
    }

    /// Writes a value of type `integer`.
    pub fn integer(&mut self, value: i32) -> &mut Self {
        self.field(&value.to_be_bytes())
    }

    /// Writes a value of type `integer`, or null.
    pub fn integer_or_null(&mut self, value: Option<i32>) -> &mut Self {
        match value {
            Some(value) => self.integer(value),
            None => self.null(),
        }
    }

    /// Writes a value of type `timestamptz`.
    pub fn timestamp(&mut self, value: DateTime<Utc>) -> &mut Self {
        self.field(&(value.timestamp_micros() - POSTGRES_EPOCH_MICROS).to_be_bytes())
    }

    /// Writes a value of type `timestamptz`, or null.
    pub fn timestamp_or_null(&mut self, value: Option<DateTime<Utc>>) -> &mut Self {
        match value {
            Some(value) => self.timestamp(value),
            None => self.null(),
        }
    }

    /// Writes a value of type `jsonb`.
    pub fn json(&mut self, value: &Value) -> &mut Self {
        const VERSION: u8 = 1;
        let mut octets = vec![VERSION];
        serde_json::to_writer(&mut octets, value).expect("a value is written to memory");
        self.field(&octets)
    }

    /// Writes a value of type `text[]`.
    pub fn texts(&mut self, values: &[String]) -> &mut Self {
        const TEXT: i32 = 25;
        let length = |octets: usize| i32::try_from(octets).expect("fields are far below 2 GiB");
        // Dimensions, whether there are nulls, of what; of the dimension, how many there are, and the number of the first.
        let header = match values.len() {
            0 => vec![0, 0, TEXT],
            n => vec![1, 0, TEXT, length(n), 1],
        };
        let mut octets: Vec<u8> = header.into_iter().flat_map(i32::to_be_bytes).collect();
        for value in values {
            octets.extend_from_slice(&length(value.len()).to_be_bytes());
            octets.extend_from_slice(value.as_bytes());
        }
        self.field(&octets)
    }

    /// Writes a value of type `text`, or null. The caller has removed NUL, which Postgres refuses.
    pub fn text_or_null(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.field(value.as_bytes()),
            None => self.null(),
        }
    }
}
