//! Rules for template texts, checked on the syntax tree before compilation.
//!
//! Fuel limits the number of steps, not their cost: `"x" * 100000000` is one step, and a text joined to itself thirty times has
//! a gigabyte. So nothing is allowed that makes a text or list grow: no `~`, no captured blocks, no lists and objects except
//! constants, and `+` and `*` only between numbers. The output is then as long as its parts, and limited by the filters and the
//! written text.

use std::collections::HashSet;

use minijinja::machinery::{self, Span, ast};
use minijinja::syntax::SyntaxConfig;

use super::fault::Position;
use super::language::{FILTERS, NUMERIC, TESTS};
use super::person::{OF_MESSAGE, OF_RECIPIENT};

/// Maximum bytes of a template text.
pub(super) const SOURCE_MAX: usize = 4_096;
/// Maximum nesting of expressions and blocks.
const DEPTH_MAX: usize = 32;

/// Whether a text contains expressions.
pub(super) fn is_template(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|opening| text.contains(opening))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct GrammarResult {
    pub is_personal: bool,
    /// Whether the text is exactly one value of `data`.
    pub is_data_alone: bool,
}

/// Parses a text. The error lists the faults of all its expressions, with their positions.
pub(super) fn read(source: &str) -> Result<GrammarResult, Vec<String>> {
    if source.len() > SOURCE_MAX {
        return Err(vec![format!("may have at most {SOURCE_MAX} octets")]);
    }
    let tree = machinery::parse(source, "", SyntaxConfig::default()).map_err(|error| {
        let at = Position::of(source, error.range().map_or(0, |range| range.start));
        vec![at.complain(error.detail().unwrap_or("this is no template"))]
    })?;
    let ast::Stmt::Template(template) = &tree else { return Err(vec!["is no template".into()]) };
    let mut reader = GrammarReader { source, set: HashSet::new(), depth: 0, is_personal: false, faults: Vec::new() };
    reader.block(&template.children);
    if !reader.faults.is_empty() {
        return Err(reader.faults);
    }
    let is_data_alone = match template.children.as_slice() {
        [ast::Stmt::EmitExpr(only)] => root(&only.expr) == Some("data"),
        _ => false,
    };
    Ok(GrammarResult { is_personal: reader.is_personal, is_data_alone })
}

/// Returns the variable at the beginning of a path such as `data.order.link`. `None`: not a path.
fn root<'a>(expression: &ast::Expr<'a>) -> Option<&'a str> {
    match expression {
        ast::Expr::Var(variable) => Some(variable.id),
        ast::Expr::GetAttr(part) => root(&part.expr),
        _ => None,
    }
}

struct GrammarReader<'a> {
    source: &'a str,
    set: HashSet<&'a str>,
    depth: usize,
    is_personal: bool,
    faults: Vec<String>,
}

type GrammarCheck = Result<(), String>;

impl<'a> GrammarReader<'a> {
    fn refuse(&self, span: Span, what: &str) -> GrammarCheck {
        Err(Position::of(self.source, span.start_offset as usize).complain(what))
    }

    /// Checks one more level of nesting.
    fn nested(&mut self, span: Span, inner: impl FnOnce(&mut Self) -> GrammarCheck) -> GrammarCheck {
        if self.depth >= DEPTH_MAX {
            return self.refuse(span, "is nested too deep");
        }
        self.depth += 1;
        let checked = inner(self);
        self.depth -= 1;
        checked
    }

    /// Checks each statement, and stores the faults.
    fn block(&mut self, statements: &[ast::Stmt<'a>]) {
        for statement in statements {
            let checked = self.statement(statement);
            self.faults.extend(checked.err());
        }
    }

    fn statement(&mut self, statement: &ast::Stmt<'a>) -> GrammarCheck {
        const ONLY: &str = "only `if`, `for` and `set` are known here, and `{{ … }}`";
        match statement {
            ast::Stmt::EmitRaw(_) => Ok(()),
            ast::Stmt::EmitExpr(it) => self.expression(&it.expr),
            ast::Stmt::IfCond(it) => {
                self.expression(&it.expr)?;
                self.nested(it.span(), |inner| {
                    inner.block(&it.true_body);
                    inner.block(&it.false_body);
                    Ok(())
                })
            }
            ast::Stmt::ForLoop(it) if it.recursive => self.refuse(it.span(), "a loop cannot be `recursive` here"),
            ast::Stmt::ForLoop(it) => {
                self.expression(&it.iter)?;
                self.target(&it.target)?;
                self.set.insert("loop");
                self.nested(it.span(), |inner| {
                    it.filter_expr.iter().try_for_each(|filter| inner.expression(filter))?;
                    inner.block(&it.body);
                    inner.block(&it.else_body);
                    Ok(())
                })
            }
            ast::Stmt::Set(it) => {
                self.target(&it.target)?; // before its value, so that a fault there is the only one
                self.expression(&it.expr)
            }
            ast::Stmt::Template(it) => self.refuse(it.span(), ONLY),
            ast::Stmt::WithBlock(it) => self.refuse(it.span(), ONLY),
            ast::Stmt::SetBlock(it) => self.refuse(it.span(), "`set` takes a value here: `{% set name = … %}`"),
            ast::Stmt::AutoEscape(it) => self.refuse(it.span(), ONLY),
            ast::Stmt::FilterBlock(it) => self.refuse(it.span(), ONLY),
            ast::Stmt::Do(it) => self.refuse(it.span(), ONLY),
        }
    }

    /// Checks the target of an assignment: one name, or several.
    fn target(&mut self, target: &ast::Expr<'a>) -> GrammarCheck {
        match target {
            ast::Expr::Var(name) if [&OF_RECIPIENT[..], &OF_MESSAGE, &["loop"]].concat().contains(&name.id) => {
                self.refuse(name.span(), &format!("`{}` has its meaning and cannot be set", name.id))
            }
            ast::Expr::Var(name) => {
                self.set.insert(name.id);
                Ok(())
            }
            ast::Expr::Tuple(names) if names.items.iter().all(|name| matches!(name, ast::Expr::Var(_))) => {
                names.items.iter().try_for_each(|name| self.target(name))
            }
            other => self.refuse(other.span(), "only a plain name can be set"),
        }
    }

    fn expression(&mut self, expression: &ast::Expr<'a>) -> GrammarCheck {
        self.nested(expression.span(), |inner| inner.expression_here(expression))
    }

    fn expression_here(&mut self, expression: &ast::Expr<'a>) -> GrammarCheck {
        match expression {
            ast::Expr::Var(it) => self.variable(it.id, it.span()),
            ast::Expr::Const(_) => Ok(()),
            ast::Expr::UnaryOp(it) => self.expression(&it.expr),
            ast::Expr::BinOp(it) => {
                self.expression(&it.left)?;
                self.expression(&it.right)?;
                self.operator(it)
            }
            ast::Expr::Compare(it) => {
                self.expression(&it.expr)?;
                it.ops.iter().try_for_each(|op| self.expression(&op.expr))
            }
            ast::Expr::IfExpr(it) => {
                self.expression(&it.test_expr)?;
                self.expression(&it.true_expr)?;
                it.false_expr.iter().try_for_each(|other| self.expression(other))
            }
            ast::Expr::Filter(it) => self.filter(it),
            ast::Expr::Test(it) => {
                if !TESTS.contains(&it.name) || !it.args.is_empty() {
                    return self.refuse(it.span(), &format!("tests are {}", quoted(&TESTS)));
                }
                self.expression(&it.expr)
            }
            ast::Expr::GetAttr(it) => self.expression(&it.expr),
            ast::Expr::GetItem(it) => {
                self.expression(&it.expr)?;
                self.expression(&it.subscript_expr)
            }
            ast::Expr::Slice(it) => {
                self.expression(&it.expr)?;
                [&it.start, &it.stop, &it.step].into_iter().flatten().try_for_each(|bound| self.expression(bound))
            }
            ast::Expr::List(it) if it.items.iter().all(|item| matches!(item, ast::Expr::Const(_))) => Ok(()),
            ast::Expr::Tuple(it) if it.items.iter().all(|item| matches!(item, ast::Expr::Const(_))) => Ok(()),
            ast::Expr::List(_) | ast::Expr::Tuple(_) => {
                self.refuse(expression.span(), "a list may hold only texts and numbers that stand here")
            }
            ast::Expr::Map(it) => self.refuse(it.span(), "objects cannot be made here: give them in `data`"),
            ast::Expr::Call(it) => {
                self.refuse(it.span(), "there are no functions here; filters are written behind `|`")
            }
        }
    }

    fn variable(&mut self, name: &str, span: Span) -> GrammarCheck {
        if self.set.contains(name) || OF_MESSAGE.contains(&name) {
            return Ok(());
        }
        if OF_RECIPIENT.contains(&name) {
            self.is_personal = true;
            return Ok(());
        }
        let known = [&OF_RECIPIENT[..], &OF_MESSAGE].concat();
        self.refuse(span, &format!("`{name}` is not defined; known are {}", quoted(&known)))
    }

    fn operator(&self, it: &ast::Spanned<ast::BinOp<'a>>) -> GrammarCheck {
        match it.op {
            ast::BinOpKind::Concat => {
                self.refuse(it.span(), "`~` is not known here: write the parts one behind the other")
            }
            ast::BinOpKind::Add | ast::BinOpKind::Mul if !(is_number(&it.left) && is_number(&it.right)) => {
                self.refuse(it.span(), "`+` and `*` are for numbers: make sure of both sides by `| int` or `| float`")
            }
            _ => Ok(()),
        }
    }

    fn filter(&mut self, it: &ast::Spanned<ast::Filter<'a>>) -> GrammarCheck {
        if !FILTERS.contains(&it.name) {
            return self.refuse(it.span(), &format!("`{}` is no filter; there are {}", it.name, quoted(&FILTERS)));
        }
        it.expr.iter().try_for_each(|value| self.expression(value))?;
        it.args.iter().try_for_each(|argument| match argument {
            ast::CallArg::Pos(value) => self.expression(value),
            _ => self.refuse(it.span(), "filters take plain values, without names"),
        })
    }
}

/// Whether an allowed expression is certainly a number.
fn is_number(expression: &ast::Expr<'_>) -> bool {
    match expression {
        ast::Expr::Const(it) => it.value.is_number(),
        ast::Expr::UnaryOp(it) => matches!(it.op, ast::UnaryOpKind::Neg) && is_number(&it.expr),
        ast::Expr::BinOp(it) => {
            use ast::BinOpKind::{Add, Div, FloorDiv, Mul, Pow, Rem, Sub};
            matches!(it.op, Add | Sub | Mul | Div | FloorDiv | Rem | Pow)
        }
        ast::Expr::IfExpr(it) => is_number(&it.true_expr) && it.false_expr.as_ref().is_some_and(is_number),
        ast::Expr::Filter(it) => NUMERIC.contains(&it.name),
        ast::Expr::GetAttr(it) => {
            matches!(&it.expr, ast::Expr::Var(name) if name.id == "loop")
                && ["index", "index0", "revindex", "revindex0", "length", "depth", "depth0"].contains(&it.name)
        }
        _ => false,
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
