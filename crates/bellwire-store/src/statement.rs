//! Statements: sqlx's checked macros, with parameters in tuples and rows given by column.
//!
//! A statement is written as `macro!(executor, result, sql, group, …)`. The result is a type to read rows as, `scalar` for a
//! single value, or omitted for an anonymous record. A group is a tuple of parameters, or rows with closures that list their
//! columns: `rows, |row| (row.id, row.at)`. Each column becomes an array, for `unnest`. The statement casts arrays with ids or
//! nulls, whose type sqlx does not check. A statement that tests look for begins with its name in a comment: `/* settle_batch */`.

/// Builds a statement without executing it, for uses that the macros below do not cover.
macro_rules! query {
    (scalar, $($statement:tt)+) => { bound!(@ query_scalar [] $($statement)+) };
    ($result:path, $($statement:tt)+) => { bound!(@ query_as [$result,] $($statement)+) };
    ($($statement:tt)+) => { bound!(@ query [] $($statement)+) };
}

/// Calls a macro of sqlx with the parameters of a statement, collected group by group.
macro_rules! bound {
    (@ $macro:ident [$($result:tt)*] $sql:literal $(+ $more:literal)* $(, $($groups:tt)+)?) => {
        bound!($macro [$($result)* $sql $(+ $more)*] $(, $($groups)+)?)
    };
    ($macro:ident [$($done:tt)+], ($($parameter:expr),* $(,)?) $($groups:tt)*) => {
        bound!($macro [$($done)+ $(, $parameter)*] $($groups)*)
    };
    ($macro:ident [$($done:tt)+], $rows:expr, |$row:pat_param| ($($column:expr),+ $(,)?), |$next:pat_param| $($groups:tt)+) => {
        bound!(
            $macro [$($done)+ $(, &$rows.iter().map(|#[allow(unused_variables)] $row| $column).collect::<Vec<_>>() as _)+],
            $rows, |$next| $($groups)+
        )
    };
    ($macro:ident [$($done:tt)+], $rows:expr, |$row:pat_param| ($($column:expr),+ $(,)?) $($groups:tt)*) => {
        bound!(
            $macro [$($done)+ $(, &$rows.iter().map(|#[allow(unused_variables)] $row| $column).collect::<Vec<_>>() as _)+]
            $($groups)*
        )
    };
    ($macro:ident [$($done:tt)+] $(,)?) => { sqlx::$macro!($($done)+) };
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

/// Returns the single row of a statement. Fails if there is none.
macro_rules! fetch_one {
    ($executor:expr, $($statement:tt)+) => { query!($($statement)+).fetch_one($executor).await };
}

/// Returns the first row of a statement, if there is one.
macro_rules! fetch_optional {
    ($executor:expr, $($statement:tt)+) => { query!($($statement)+).fetch_optional($executor).await };
}
