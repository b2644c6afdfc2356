//! Statements: the checked macros of sqlx, with a statement's parameters in tuples and rows given by column.
//!
//! A statement is written as `macro!(executor, result, sql, rows, |row| (columns), (parameters), …)`. The result is a type to read
//! rows as, `scalar` for a single value, or left out for an anonymous record. Rows to write or look for become one array for each
//! column, for `unnest`; these arrays are the first parameters, and the types of their elements are those of the closure. The
//! statement casts them, because sqlx checks no array with nulls or ids.

/// A statement without its execution, for all that the macros below do not cover.
macro_rules! query {
    (scalar, $($statement:tt)+) => { bound!(query_scalar [] $($statement)+) };
    ($result:path, $($statement:tt)+) => { bound!(query_as [$result,] $($statement)+) };
    ($($statement:tt)+) => { bound!(query [] $($statement)+) };
}

/// Calls a macro of sqlx with the columns and parameters of a statement.
macro_rules! bound {
    ($macro:ident [$($result:tt)*] $sql:literal $(+ $more:literal)*, $rows:expr, |$row:pat_param| ($($column:expr),+ $(,)?) $(, ($($parameter:expr),* $(,)?))*) => {
        sqlx::$macro!(
            $($result)* $sql $(+ $more)*,
            $(&$rows.iter().map(|#[allow(unused_variables)] $row| $column).collect::<Vec<_>>() as _,)+
            $($($parameter,)*)*
        )
    };
    ($macro:ident [$($result:tt)*] $sql:literal $(+ $more:literal)* $(, ($($parameter:expr),* $(,)?))*) => {
        sqlx::$macro!($($result)* $sql $(+ $more)*, $($($parameter,)*)*)
    };
}

/// Executes a statement.
macro_rules! execute {
    ($executor:expr, $($statement:tt)+) => { query!($($statement)+).execute($executor).await.map(drop) };
}

/// Executes a statement, and returns the number of rows that it changed.
macro_rules! rows_affected {
    ($executor:expr, $($statement:tt)+) => { query!($($statement)+).execute($executor).await.map(|done| done.rows_affected()) };
}

/// Returns all rows of a statement.
macro_rules! fetch_all {
    ($executor:expr, $($statement:tt)+) => { query!($($statement)+).fetch_all($executor).await };
}

/// Returns the one row of a statement.
macro_rules! fetch_one {
    ($executor:expr, $($statement:tt)+) => { query!($($statement)+).fetch_one($executor).await };
}

/// Returns the first row of a statement, if there is one.
macro_rules! fetch_optional {
    ($executor:expr, $($statement:tt)+) => { query!($($statement)+).fetch_optional($executor).await };
}
