//! webpush
