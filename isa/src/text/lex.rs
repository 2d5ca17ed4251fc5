//! Words, numbers and expressions of assembly text.

use smallvec::SmallVec;

/// A position in the line and what is wrong there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// Column, from 0.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "column {}: {}", self.column + 1, self.message)
    }
}

impl std::error::Error for ParseError {}

pub(crate) type Result<T> = std::result::Result<T, ParseError>;

/// The value of an expression.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Value {
    /// The number, or the offset in its section.
    pub number: i64,
    /// The bits of the number are of a floating constant (f64).
    pub float: bool,
    /// What the number is counted from.
    pub base: Base,
    /// The statement's size was settled before the number was known: constants take a literal.
    pub late: bool,
}

/// What a value is counted from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Base {
    /// Nothing: a plain number.
    #[default]
    None,
    /// The start of the current section.
    Here,
    /// A symbol that is not placed yet; the number is added to its address.
    Linked,
    /// The same, less the start of the current section.
    Relative,
}

impl Value {
    /// A plain integer.
    pub const fn int(number: i64) -> Value {
        Value { number, float: false, base: Base::None, late: false }
    }
    /// An address in the current section.
    pub const fn address(number: i64) -> Value {
        Value { number, float: false, base: Base::Here, late: false }
    }
    /// A floating constant.
    pub fn float(x: f64) -> Value {
        Value { number: x.to_bits() as i64, float: true, base: Base::None, late: false }
    }
}

/// Numbers in brackets.
pub(crate) type List = SmallVec<[i64; 4]>;

/// Looks up a symbol.
pub type Resolve<'a> = &'a dyn Fn(&str) -> Option<Value>;

/// A cursor over one line.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub text: &'a str,
    pub at: usize,
    pub resolve: Resolve<'a>,
    /// `|` ends the operand: it closes an absolute value.
    pub in_abs: bool,
    depth: u8,
}

/// Bytes of words.
static WORD: [bool; 256] = {
    let mut out = [false; 256];
    let mut c = 0;
    while c < 256 {
        out[c] = (c as u8).is_ascii_alphanumeric() || matches!(c as u8, b'_' | b'.' | b'$' | b'@');
        c += 1;
    }
    out
};

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str, resolve: Resolve<'a>) -> Cursor<'a> {
        Cursor { text, at: 0, resolve, in_abs: false, depth: 0 }
    }

    pub fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    pub fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(ParseError { column: self.at, message: message.into() })
    }

    /// The byte at the cursor; 0 at the end.
    #[inline]
    pub fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    #[inline]
    pub fn skip(&mut self) {
        while matches!(self.peek(), b' ' | b'\t') {
            self.at += 1;
        }
        // other white space is rare
        if !self.peek().is_ascii_graphic() && self.at < self.text.len() {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
        }
    }

    pub fn done(&mut self) -> bool {
        self.skip();
        self.at >= self.text.len()
    }

    #[inline]
    pub fn eat(&mut self, token: &str) -> bool {
        self.skip();
        let rest = self.text.as_bytes().get(self.at..).unwrap_or(&[]);
        if rest.starts_with(token.as_bytes()) {
            self.at += token.len();
            return true;
        }
        false
    }

    pub fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) { Ok(()) } else { self.fail(format!("expected `{token}`")) }
    }

    /// The word at the cursor without taking it.
    pub fn word(&mut self) -> &'a str {
        self.skip();
        let bytes = self.text.as_bytes();
        let mut end = self.at;
        while end < bytes.len() && WORD[usize::from(bytes[end])] {
            end += 1;
        }
        self.text.get(self.at..end).unwrap_or("")
    }

    /// Takes the word at the cursor.
    pub fn take_word(&mut self) -> &'a str {
        let w = self.word();
        self.at += w.len();
        w
    }

    /// Takes the word if it is this one.
    pub fn eat_word(&mut self, word: &str) -> bool {
        if self.word() == word {
            self.at += word.len();
            return true;
        }
        false
    }

    /// An integer expression.
    pub fn int(&mut self) -> Result<i64> {
        let start = self.at;
        let v = self.expression()?;
        if v.float {
            return Err(ParseError { column: start, message: "expected an integer".into() });
        }
        Ok(v.number)
    }

    /// `[a,b,..]`.
    pub fn int_list(&mut self) -> Result<List> {
        self.expect("[")?;
        let mut out = List::new();
        loop {
            out.push(self.int()?);
            if self.eat("]") {
                return Ok(out);
            }
            self.expect(",")?;
        }
    }

    pub fn expression(&mut self) -> Result<Value> {
        match self.usual_number() {
            Some(n) => Ok(Value::int(n)),
            None => self.binary(0),
        }
    }

    /// Takes `7` or `0x1f` where nothing is computed with it; anything else is left to [`Self::binary`].
    fn usual_number(&mut self) -> Option<i64> {
        self.skip();
        let b = self.text.as_bytes().get(self.at..)?;
        let hex = b.starts_with(b"0x");
        let (start, base) = if hex { (2, 16) } else { (0, 10) };
        let mut end = start;
        let mut n = 0i64;
        while let Some(digit) = b.get(end).and_then(|c| char::from(*c).to_digit(base)) {
            n = n << 4 | i64::from(digit);
            if !hex {
                n = (n >> 4) * 10 + i64::from(digit);
            }
            end += 1;
        }
        let plain = end > start && end - start < 15 && (hex || b[0] != b'0' || end == 1);
        let follows = b[end..].iter().position(|c| *c != b' ').unwrap_or(0);
        let next = b.get(end + follows).copied().unwrap_or(b',');
        let ends = matches!(next, b',' | b']' | b')') || follows > 0 && next.is_ascii_alphabetic();
        (plain && ends).then(|| {
            self.at += end;
            n
        })
    }

    fn operator(&mut self) -> Option<(&'static str, u8)> {
        self.skip();
        if !matches!(self.peek(), b'!'..=b'/' | b'<'..=b'>' | b'^' | b'|') {
            return None;
        }
        let r = self.rest();
        const OPS: [(&str, u8); 18] = [
            ("||", 1),
            ("&&", 2),
            ("==", 3),
            ("!=", 3),
            ("<=", 3),
            (">=", 3),
            ("<<", 6),
            (">>", 6),
            ("<", 3),
            (">", 3),
            ("|", 4),
            ("^", 4),
            ("&", 4),
            ("+", 5),
            ("-", 5),
            ("*", 6),
            ("/", 6),
            ("%", 6),
        ];
        let op = OPS.iter().find(|(o, _)| r.starts_with(o)).copied()?;
        (!(self.in_abs && op.0.starts_with('|'))).then_some(op)
    }

    fn binary(&mut self, min: u8) -> Result<Value> {
        let mut left = self.unary()?;
        while let Some((op, level)) = self.operator() {
            if level < min.max(1) {
                break;
            }
            self.at += op.len();
            let right = self.binary(level + 1)?;
            left = self.apply(op, left, right)?;
        }
        Ok(left)
    }

    fn apply(&self, op: &str, a: Value, b: Value) -> Result<Value> {
        if a.float || b.float {
            return self.fail("no arithmetic on floating constants");
        }
        let (x, y) = (a.number, b.number);
        let truth = |c: bool| if c { -1 } else { 0 };
        let number = match op {
            "+" => x.wrapping_add(y),
            "-" => x.wrapping_sub(y),
            "*" => x.wrapping_mul(y),
            "/" | "%" if y == 0 => return self.fail("division by zero"),
            "/" => x.wrapping_div(y),
            "%" => x.wrapping_rem(y),
            "<<" => x.checked_shl(y as u32).unwrap_or(0),
            ">>" => (x as u64).checked_shr(y as u32).unwrap_or(0) as i64,
            "&" => x & y,
            "|" => x | y,
            "^" => x ^ y,
            "==" => truth(x == y),
            "!=" => truth(x != y),
            "<" => truth(x < y),
            ">" => truth(x > y),
            "<=" => truth(x <= y),
            ">=" => truth(x >= y),
            "&&" => i64::from(x != 0 && y != 0),
            _ => i64::from(x != 0 || y != 0),
        };
        let base = match (op, a.base, b.base) {
            (_, base, Base::None) => base,
            ("-", Base::Here, Base::Here) => Base::None,
            ("-", Base::Linked, Base::Here) => Base::Relative,
            (_, Base::None, base) => base,
            (_, Base::Here, Base::Here) => Base::Here,
            _ => Base::Linked,
        };
        Ok(Value { number, float: false, base, late: a.late || b.late })
    }

    fn unary(&mut self) -> Result<Value> {
        if self.depth > 40 {
            return self.fail("expression nested too deeply");
        }
        self.depth += 1;
        let out = self.primary();
        self.depth -= 1;
        out
    }

    fn primary(&mut self) -> Result<Value> {
        if self.eat("-") {
            let v = self.unary()?;
            return Ok(if v.float {
                Value::float(-f64::from_bits(v.number as u64))
            } else {
                Value { number: v.number.wrapping_neg(), ..v }
            });
        }
        if self.eat("+") {
            return self.unary();
        }
        if self.eat("~") {
            let v = self.unary()?;
            return Ok(Value { number: !v.number, ..v });
        }
        if self.eat("!") {
            let v = self.unary()?;
            return Ok(Value::int(i64::from(v.number == 0)));
        }
        if self.eat("(") {
            let saved = std::mem::replace(&mut self.in_abs, false);
            let v = self.binary(0)?;
            self.in_abs = saved;
            self.expect(")")?;
            return Ok(v);
        }
        self.skip();
        let start = self.at;
        if self.rest().starts_with(|c: char| c.is_ascii_digit())
            || (self.rest().starts_with('.') && self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()))
        {
            return self.number();
        }
        let w = self.take_word();
        if w.is_empty() {
            return self.fail("expected an operand");
        }
        if self.rest().starts_with('(') && matches!(w, "max" | "or" | "alignto") {
            return self.call(w);
        }
        match (self.resolve)(w) {
            Some(v) => Ok(v),
            None => Err(ParseError { column: start, message: format!("`{w}` is not defined") }),
        }
    }

    /// `max(..)`, `or(..)`, `alignto(value, multiple)`.
    fn call(&mut self, name: &str) -> Result<Value> {
        let start = self.at;
        self.expect("(")?;
        let mut values = Vec::new();
        loop {
            values.push(self.binary(0)?);
            if self.eat(")") {
                break;
            }
            self.expect(",")?;
        }
        let mut result = values[0];
        for v in &values[1..] {
            result = Value {
                number: match name {
                    "max" => result.number.max(v.number),
                    "or" => result.number | v.number,
                    _ if v.number > 0 => {
                        result.number.div_euclid(v.number).wrapping_mul(v.number)
                            + if result.number.rem_euclid(v.number) > 0 { v.number } else { 0 }
                    }
                    _ => return Err(ParseError { column: start, message: "expected a positive multiple".into() }),
                },
                base: if v.base == Base::None { result.base } else { v.base },
                late: result.late || v.late,
                float: false,
            };
        }
        Ok(result)
    }

    fn number(&mut self) -> Result<Value> {
        let rest = self.rest();
        let b = rest.as_bytes();
        let hex = rest.starts_with("0x") || rest.starts_with("0X");
        let mut end = if hex { 2 } else { 0 };
        let mut float = false;
        while let Some(&c) = b.get(end) {
            let exponent = !hex
                && matches!(c, b'+' | b'-')
                && matches!(b[end - 1], b'e' | b'E')
                && float | true
                && end > 0
                && b[end - 1].is_ascii_alphabetic();
            if c == b'.' || (!hex && matches!(c, b'e' | b'E')) || (hex && matches!(c, b'p' | b'P')) {
                float = true;
            } else if !(c.is_ascii_alphanumeric() || exponent) {
                break;
            }
            end += 1;
        }
        let word = &rest[..end];
        let start = self.at;
        self.at += end;
        // `1b`, `2f`: the nearest label of that number before or after.
        if let Some(digits) = word.strip_suffix(['b', 'f'])
            && digits.bytes().all(|c| c.is_ascii_digit())
            && let Some(v) = (self.resolve)(word)
        {
            return Ok(v);
        }
        let bad = || ParseError { column: start, message: format!("`{word}` is no number") };
        if float && !hex {
            return word.parse::<f64>().map(Value::float).map_err(|_| bad());
        }
        let parsed = if hex {
            u64::from_str_radix(&word[2..], 16)
        } else if let Some(bits) = word.strip_prefix("0b") {
            u64::from_str_radix(bits, 2)
        } else if word.len() > 1 && word.starts_with('0') {
            u64::from_str_radix(&word[1..], 8)
        } else {
            word.parse()
        };
        parsed.map(|v| Value::int(v as i64)).map_err(|_| bad())
    }
}
