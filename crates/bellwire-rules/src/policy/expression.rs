//! Arithmetic over `retried`, as in QStash's `retryDelay`: parsed and checked once, evaluated for each retry.
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = unary { ("*" | "/") unary }
//! unary   = "-" unary | primary
//! primary = number | "retried" | function "(" sum { "," sum } ")" | "(" sum ")"
//! number  = digits [ "." digits ] | "." digits
//! ```
//!
//! This code exists because no crate fits: `meval` and `fasteval` had their last release in 2018 and 2020, and `evalexpr` is
//! under the AGPL. `exmex` is maintained, but has no functions of three arguments and hardly any positions of errors.
//!
//! No input can loop, overflow the stack or allocate without bound. The text has at most 256 octets and 32 levels, and becomes a
//! flat list of operations that is not longer than the text.

/// Maximum length of an expression in bytes.
const LENGTH_MAX: usize = 256;
/// Maximum nesting of parentheses, functions and signs.
const DEPTH_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {position}: {what}")]
pub struct ExpressionError {
    /// Position in characters, from 1.
    pub position: usize,
    pub what: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operation {
    Number(f64),
    Retried,
    Negate,
    Add,
    Subtract,
    Multiply,
    Divide,
    Call(Function, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Pow,
    Sqrt,
    Abs,
    Exp,
    Floor,
    Ceil,
    Round,
    Min,
    Max,
}

impl Function {
    const ALL: [(&'static str, Function); 9] = [
        ("pow", Function::Pow),
        ("sqrt", Function::Sqrt),
        ("abs", Function::Abs),
        ("exp", Function::Exp),
        ("floor", Function::Floor),
        ("ceil", Function::Ceil),
        ("round", Function::Round),
        ("min", Function::Min),
        ("max", Function::Max),
    ];

    fn takes(self, arguments: usize) -> bool {
        match self {
            Function::Pow => arguments == 2,
            Function::Min | Function::Max => arguments >= 1,
            _ => arguments == 1,
        }
    }

    fn of(self, arguments: &[f64]) -> f64 {
        // `f64::min` would drop a NaN, but a wrong part makes the whole expression wrong.
        let fold = |pick: fn(f64, f64) -> f64| {
            arguments.iter().copied().reduce(|a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, b) })
        };
        match (self, arguments) {
            (Function::Pow, [base, exponent]) => base.powf(*exponent),
            (Function::Sqrt, [x]) => x.sqrt(),
            (Function::Abs, [x]) => x.abs(),
            (Function::Exp, [x]) => x.exp(),
            (Function::Floor, [x]) => x.floor(),
            (Function::Ceil, [x]) => x.ceil(),
            (Function::Round, [x]) => x.round(),
            (Function::Min, _) => fold(f64::min).unwrap_or(f64::NAN),
            (Function::Max, _) => fold(f64::max).unwrap_or(f64::NAN),
            _ => f64::NAN,
        }
    }
}

/// Parsed expression: a list of operations in the order of evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    operations: Vec<Operation>,
}

impl Expression {
    /// Parses and checks an expression.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let mut parser = Parser { text, at: 0, depth: 0, operations: Vec::new() };
        if text.len() > LENGTH_MAX {
            return Err(parser.error(format!("longer than {LENGTH_MAX} octets")));
        }
        parser.sum()?;
        match parser.peek() {
            None => Ok(Self { operations: parser.operations }),
            Some(_) => Err(parser.unexpected("an operator or the end")),
        }
    }

    /// Evaluates the expression for a number of retries so far. The result may be negative, infinite or NaN.
    pub fn value(&self, retried: u32) -> f64 {
        let mut stack: Vec<f64> = Vec::with_capacity(self.operations.len());
        for operation in &self.operations {
            let taken = match operation {
                Operation::Number(_) | Operation::Retried => 0,
                Operation::Negate => 1,
                Operation::Add | Operation::Subtract | Operation::Multiply | Operation::Divide => 2,
                Operation::Call(_, arguments) => *arguments,
            };
            let rest = stack.len().saturating_sub(taken);
            let result = match (operation, &stack[rest..]) {
                (Operation::Number(number), _) => *number,
                (Operation::Retried, _) => f64::from(retried),
                (Operation::Negate, [x]) => -x,
                (Operation::Add, [a, b]) => a + b,
                (Operation::Subtract, [a, b]) => a - b,
                (Operation::Multiply, [a, b]) => a * b,
                (Operation::Divide, [a, b]) => a / b,
                (Operation::Call(function, _), arguments) => function.of(arguments),
                _ => f64::NAN, // the parser leaves every operation its numbers
            };
            stack.truncate(rest);
            stack.push(result);
        }
        stack.pop().unwrap_or(f64::NAN)
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Position of the next byte.
    at: usize,
    depth: usize,
    operations: Vec<Operation>,
}

type Parsing = Result<(), ExpressionError>;

impl<'a> Parser<'a> {
    fn sum(&mut self) -> Parsing {
        self.product()?;
        loop {
            let operation = match self.peek() {
                Some('+') => Operation::Add,
                Some('-') => Operation::Subtract,
                _ => return Ok(()),
            };
            self.at += 1;
            self.product()?;
            self.operations.push(operation);
        }
    }

    fn product(&mut self) -> Parsing {
        self.unary()?;
        loop {
            let operation = match self.peek() {
                Some('*') => Operation::Multiply,
                Some('/') => Operation::Divide,
                _ => return Ok(()),
            };
            self.at += 1;
            self.unary()?;
            self.operations.push(operation);
        }
    }

    /// Parses a unary expression. Counts the nesting here, because each recursion passes this function.
    fn unary(&mut self) -> Parsing {
        let next = self.peek();
        if self.depth == DEPTH_MAX {
            return Err(self.error(format!("nested deeper than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        if next == Some('-') {
            self.at += 1;
            self.unary()?;
            self.operations.push(Operation::Negate);
        } else {
            self.primary(next)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn primary(&mut self, next: Option<char>) -> Parsing {
        match next {
            Some('(') => {
                self.at += 1;
                self.sum()?;
                self.expect(')', "')'")
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.name(),
            _ => Err(self.unexpected("a number, 'retried', a function, '-' or '('")),
        }
    }

    fn number(&mut self) -> Parsing {
        let word = self.word(|c| c.is_ascii_digit() || c == '.');
        // Rust also accepts "5.", which no other dialect needs. A second point, or a point alone, is an error.
        let parsed = word.parse().ok().filter(|_| !word.ends_with('.'));
        let number = parsed.ok_or_else(|| self.error(format!("'{word}' is not a number")))?;
        self.at += word.len();
        self.operations.push(Operation::Number(number));
        Ok(())
    }

    fn name(&mut self) -> Parsing {
        let start = self.at;
        let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
        if name == "retried" {
            self.at += name.len();
            self.operations.push(Operation::Retried);
            return Ok(());
        }
        let Some((_, function)) = Function::ALL.into_iter().find(|(known, _)| *known == name) else {
            let known = Function::ALL.map(|(known, _)| known).join(", ");
            return Err(self.error(format!("unknown name '{name}'; known are retried, {known}")));
        };
        self.at += name.len();
        self.expect('(', "'(' after a function's name")?;
        let mut arguments = 0;
        if self.peek() != Some(')') {
            self.sum()?;
            arguments = 1;
            while self.peek() == Some(',') {
                self.at += 1;
                self.sum()?;
                arguments += 1;
            }
        }
        self.expect(')', "',' or ')'")?;
        if !function.takes(arguments) {
            self.at = start;
            return Err(self.error(format!("'{name}' does not take {arguments} arguments")));
        }
        self.operations.push(Operation::Call(function, arguments));
        Ok(())
    }

    /// Returns the next character that is not white space, without consuming it.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn word(&self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.text[self.at..];
        &rest[..rest.find(|c| !belongs(c)).unwrap_or(rest.len())]
    }

    fn expect(&mut self, wanted: char, named: &str) -> Parsing {
        if self.peek() != Some(wanted) {
            return Err(self.unexpected(named));
        }
        self.at += wanted.len_utf8();
        Ok(())
    }

    fn unexpected(&mut self, wanted: &str) -> ExpressionError {
        match self.peek() {
            Some(found) => self.error(format!("expected {wanted}, found '{}'", found.escape_debug())),
            None => self.error(format!("expected {wanted}, found the end")),
        }
    }

    fn error(&self, what: String) -> ExpressionError {
        ExpressionError { position: self.text[..self.at].chars().count() + 1, what }
    }
}
