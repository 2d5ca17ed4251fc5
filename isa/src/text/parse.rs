//! Assembly text to instructions.
//!
//! A line is read in three steps: the mnemonic picks rows of the table (its suffix narrows them), the operands and
//! modifiers are read without knowing the row, then each row tries to take them in its own order and types; the
//! shortest encoding that fits wins. When none fits, the row that came furthest explains why.

use crate::encode::encoder::{Choice, EncodeError, Form, try_row};
use crate::model::codes::inline_code;
use crate::model::table::{self, FAKE16, Kind, Operand as Field, Over, Role, Row, Style, TRUE16, WAVE32, WAVE64, word};
use crate::text::constants::{constant, half_bits, literal};
use crate::text::lex::{Cursor, ParseError, Resolve, Result, Value};
use crate::text::modifiers::{self, Given};
use crate::text::register_text::{is_register_ahead, plain_register, register, registers, usual_register};
use crate::text::syntax_parse as special;
use crate::{Half, Inst, ModName, Mode, Operand, Raw, Reg, Regs, Target, Type};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::OnceLock;

/// What an instruction's text may refer to.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Where it will run.
    pub target: Target,
    /// Wave size and register halves.
    pub mode: Mode,
    /// Symbols.
    pub resolve: Resolve<'a>,
    /// Offset of the instruction in its section.
    pub pc: i64,
    /// What belongs in a literal that holds a placeholder.
    pub patch: &'a Patch,
}

/// A literal that is filled in after parsing.
#[derive(Default)]
pub struct Patch {
    /// The number that belongs there, or is to be added to a symbol.
    pub number: Cell<Option<i64>>,
    /// The literal is to have 64 bits.
    pub wide: Cell<bool>,
}

/// Stands in a literal for what is not known yet, or must not become an inline constant.
pub const PLACEHOLDER: u64 = 0x7eab_cd01;

/// Hashes short names: a multiplication for each eight bytes.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }
    fn write_u8(&mut self, _: u8) {}
}

type Names = HashMap<&'static str, Vec<u16>, BuildHasherDefault<NameHasher>>;

/// Rows by mnemonic, per target, the shortest encodings first.
static BY_NAME: [OnceLock<Names>; 64] = [const { OnceLock::new() }; 64];

fn by_name(target: Target) -> &'static Names {
    BY_NAME[target.index().min(63)].get_or_init(|| {
        let table = table::table(target);
        let mut out = Names::default();
        for (i, r) in table.rows.iter().enumerate() {
            out.entry(r.mnemonic()).or_default().push(i as u16);
        }
        for list in out.values_mut() {
            list.sort_by_key(|&i| table.rows[usize::from(i)].bytes);
        }
        out
    })
}

/// Parses one instruction without symbols.
pub fn parse(target: Target, mode: Mode, text: &str) -> std::result::Result<Raw, ParseError> {
    parse_with(&Context { target, mode, resolve: &|_| None, pc: 0, patch: &Patch::default() }, text)
}

/// Parses one instruction.
pub fn parse_with(cx: &Context, text: &str) -> std::result::Result<Raw, ParseError> {
    let mut c = Cursor::new(text, cx.resolve);
    c.skip();
    let start = c.at;
    let name = c.take_word();
    let lower = if name.bytes().any(|c| c.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    };
    let name = &*lower;
    let pair = name.starts_with("v_dual") && text.contains("::");
    let (rows, form) = match find(cx.target, name) {
        Some(x) => x,
        None if pair => (&[][..], Form::Any),
        None => return Err(ParseError { column: start, message: unknown(cx.target, name) }),
    };
    if pair {
        return dual(cx, c, name);
    }
    let mut given = Parts::default();
    read(cx, &mut c, rows, &mut given)?;
    choose(cx, rows, form, &given, text, start)
}

/// Rows of a mnemonic and the form its suffix asks for.
fn find(target: Target, name: &str) -> Option<(&'static [u16], Form)> {
    let map = by_name(target);
    // most vector instructions come with a suffix
    for (suffix, form) in [("_e32", Form::E32), ("_e64", Form::E64)] {
        if let Some(base) = name.strip_suffix(suffix)
            && let Some(rows) = map.get(base)
        {
            return Some((rows.as_slice(), form));
        }
    }
    if let Some(rows) = map.get(name) {
        return Some((rows.as_slice(), Form::Any));
    }
    for (suffix, form) in [
        ("_e64_dpp", Form::E64Dpp),
        ("_e32", Form::E32),
        ("_e64", Form::E64),
        ("_sdwa", Form::Sdwa),
        ("_dpp", Form::Dpp),
    ] {
        if let Some(base) = name.strip_suffix(suffix)
            && let Some(rows) = map.get(base)
        {
            return Some((rows.as_slice(), form));
        }
    }
    for (suffix, form) in
        [("", Form::Any), ("_e64_dpp", Form::E64Dpp), ("_e32", Form::E32), ("_e64", Form::E64), ("_dpp", Form::Dpp)]
    {
        if let Some(base) = name.strip_suffix(suffix)
            && let Some(own) = crate::text::alias::own_name(target, base)
        {
            return map.get(own).map(|r| (r.as_slice(), form));
        }
    }
    None
}

/// The message for a mnemonic that the target lacks.
fn unknown(target: Target, name: &str) -> String {
    let base = ["_e64_dpp", "_e32", "_e64", "_sdwa", "_dpp"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name);
    let half = |t: Target| by_name(t).keys().any(|k| k.split_once(" :: ").is_some_and(|(x, _)| x == base));
    let exists = |t: Target| by_name(t).contains_key(base) || base.starts_with("v_dual_") && half(t);
    if exists(target) {
        return format!("`{name}` is the first half of a pair: write the second behind `::`");
    }
    let elsewhere: Vec<&str> = Target::all().filter(|t| exists(*t)).map(|t| t.info().name).collect();
    if !elsewhere.is_empty() {
        return format!("`{name}` does not exist on {target}; it does on {}", elsewhere.join(", "));
    }
    // names of much other length are not near
    let far = 3.max(base.len() / 4);
    let candidates = by_name(target).keys().filter(|k| k.len().abs_diff(base.len()) <= far);
    let near = candidates.map(|k| (crate::model::target::distance(base, k), *k)).min();
    match near {
        Some((d, k)) if d <= far => format!("unknown instruction `{name}`; did you mean `{k}`?"),
        _ => format!("unknown instruction `{name}`"),
    }
}

/// An operand as written.
#[derive(Clone, Debug)]
pub(crate) struct Arg {
    pub at: usize,
    pub what: What,
    pub neg: bool,
    pub abs: bool,
    pub sext: bool,
    pub lit: bool,
    /// `lit64(..)`
    pub lit64: bool,
}

/// What an operand is.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Regs(Regs),
    Off,
    /// `[v1, v[2:3]]` of an image instruction.
    List(SmallVec<[Regs; 5]>),
    Value(Value),
    /// A notation that gives the whole field: `hwreg(..)`, `vmcnt(0)`, `sendmsg(..)`.
    Field(u64),
    AttrChan(u64, u64),
}

/// Everything after the mnemonic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub args: SmallVec<[Arg; 6]>,
    pub mods: SmallVec<[(usize, Given); 4]>,
}

fn has_operands(target: Target, rows: &[u16]) -> bool {
    let row = rows.first().and_then(|&i| table::table(target).rows.get(usize::from(i)));
    row.is_some_and(|r| r.shape().operands.iter().any(|o| o.role != Role::Mod))
}

fn read(cx: &Context, c: &mut Cursor, rows: &[u16], out: &mut Parts) -> Result<()> {
    let table = table::table(cx.target);
    let style = rows
        .first()
        .and_then(|&i| table.rows.get(usize::from(i)))
        .and_then(|r| r.shape().operands.iter().find(|o| !matches!(o.style, Style::None)))
        .map_or(Style::None, |o| o.style);
    let image = rows.first().and_then(|&i| table.rows.get(usize::from(i))).is_some_and(|r| r.shape().image.is_some());
    let (args, mods) = (out.args.len(), out.mods.len());
    let mut expect = false;
    loop {
        if c.done() || (c.rest().starts_with("::") && !expect) {
            break;
        }
        let at = c.at;
        c.skip();
        let plain = out.mods.len() == mods && (expect || out.args.len() == args) && plain_register(c);
        // a register where operands are still to come, otherwise a cache policy
        let scc = !plain && out.args.len() == args && c.word() == "scc" && has_operands(cx.target, rows);
        if !plain && !scc && (!expect || out.mods.len() != mods || modifiers::starts(c)) {
            if let Some(m) = modifiers::modifier(cx.target, c)? {
                out.mods.push((at, m));
                c.eat(",");
                expect = false;
                continue;
            }
            if out.mods.len() != mods {
                // typed buffers put the format before the last operand
                out.args.push(arg(cx, c, style, image)?);
                c.eat(",");
                continue;
            }
        }
        if !plain && out.args.len() != args && !expect {
            // a comma may be missing before what can only be an operand
            let word = c.word();
            let operand = word.is_empty()
                || is_register_ahead(c.rest())
                || word.starts_with(|x: char| x.is_ascii_digit())
                || matches!(word, "off" | "neg" | "abs" | "sext");
            if !operand {
                return c.fail(format!("`{word}` is no modifier here"));
            }
        }
        out.args.push(arg(cx, c, style, image)?);
        expect = c.eat(",");
    }
    Ok(())
}

fn arg(cx: &Context, c: &mut Cursor, style: Style, image: bool) -> Result<Arg> {
    c.skip();
    let mut out = Arg { at: c.at, what: What::Off, neg: false, abs: false, sext: false, lit: false, lit64: false };
    if !image && let Some(regs) = usual_register(c) {
        out.what = What::Regs(regs);
        return Ok(out);
    }
    let closes = wrapped(c, &mut out);
    if style != Style::None
        && let Some(field) = special::field(cx.target, style, c)?
    {
        out.what = field;
    } else if image && c.rest().starts_with('[') {
        let list = registers(c)?;
        out.what = if let [one] = list[..] { What::Regs(one) } else { What::List(list) };
    } else if let Some(regs) = register(c)? {
        out.what = What::Regs(regs);
    } else if c.peek() == b'o' && c.eat_word("off") {
        out.what = What::Off;
    } else {
        c.in_abs = out.abs;
        let v = c.expression();
        c.in_abs = false;
        out.what = What::Value(v?);
    }
    for close in closes.iter().rev() {
        c.expect(close)?;
    }
    Ok(out)
}

/// Takes `-`, `|`, `neg(`, `abs(`, `sext(`, `lit(` and returns what must close them.
fn wrapped(c: &mut Cursor, out: &mut Arg) -> SmallVec<[&'static str; 3]> {
    let mut closes = SmallVec::new();
    loop {
        c.skip();
        if !matches!(c.peek(), b'-' | b'|' | b'n' | b'a' | b's' | b'l') {
            return closes;
        }
        let rest = c.rest();
        let word = c.word();
        if rest.starts_with('-')
            && !rest[1..].trim_start().starts_with(|x: char| x.is_ascii_digit() || x == '(' || x == '.')
            && is_register_ahead(&rest[1..])
        {
            c.at += 1;
            out.neg = true;
        } else if rest.starts_with('|') && !out.abs {
            c.at += 1;
            out.abs = true;
            closes.push("|");
        } else if let Some((word, which)) = [("neg", 0), ("abs", 1), ("sext", 2), ("lit64", 4), ("lit", 3)]
            .iter()
            .find(|(w, _)| word == *w && rest[w.len()..].trim_start().starts_with('('))
        {
            c.at += word.len();
            c.eat("(");
            match which {
                0 => out.neg = true,
                1 => out.abs = true,
                2 => out.sext = true,
                which => {
                    out.lit = true;
                    out.lit64 = *which == 4;
                }
            }
            closes.push(")");
        } else {
            return closes;
        }
    }
}

/// True when the row is of the form that the suffix asked for.
fn form_fits(row: &Row, form: Form, dpp: bool, sdwa: bool) -> bool {
    let s = row.shape();
    match form {
        Form::Any => match s.over {
            Over::None => !dpp && !sdwa,
            Over::Dpp | Over::Dpp8 => dpp,
            Over::Sdwa => sdwa,
        },
        _ => crate::encode::encoder::form_fits(row, form),
    }
}

fn choose(cx: &Context, rows: &[u16], form: Form, parts: &Parts, text: &str, start: usize) -> Result<Raw> {
    let table = table::table(cx.target);
    let reject = if cx.mode.true16 { FAKE16 } else { TRUE16 } | if cx.mode.wave64 { WAVE32 } else { WAVE64 };
    let given = parts.mods.iter().fold(0u64, |m, (_, g)| m | 1 << g.name as u32);
    let has = |names: &[ModName]| names.iter().any(|n| given >> *n as u32 & 1 == 1);
    let dpp = has(&[ModName::DppCtrl, ModName::Dpp8, ModName::RowMask, ModName::BankMask]);
    let dpp8 = has(&[ModName::Dpp8]);
    let sdwa = has(&[ModName::DstSel, ModName::DstUnused, ModName::Src0Sel, ModName::Src1Sel, ModName::Sext]);
    let mut choice = Choice::default();
    // encodings that only serve where no other fits come last
    for spare in [false, true] {
        if choice.found.is_some() {
            break;
        }
        for &i in rows {
            let Some(row) = table.rows.get(usize::from(i)) else { continue };
            if row.variant & reject != 0 || !form_fits(row, form, dpp, sdwa) || row.shape().has(word::SPARE) != spare {
                continue;
            }
            let other_dpp = match row.shape().over {
                Over::Dpp8 => !dpp8,
                Over::Dpp => dpp8,
                _ => false,
            };
            if other_dpp {
                continue;
            }
            if !choice.wants(row) {
                continue;
            }
            choice.add(fill(cx, row, parts).and_then(|inst| {
                try_row(cx.target, cx.mode, i, row, &inst)
                    .and_then(|raw| crate::text::legal::check(cx.target, row, &inst).map(|()| raw).map_err(|e| (99, e)))
                    .map_err(|(p, e)| (p, locate(&e, row, parts, text)))
            }));
        }
    }
    match choice.result() {
        Some(outcome) => outcome,
        None => {
            let asked = match form {
                Form::Sdwa => "SDWA",
                Form::Dpp | Form::E64Dpp => "DPP",
                Form::E32 => "short (_e32)",
                Form::E64 => "long (_e64)",
                Form::Any if sdwa => "SDWA",
                Form::Any if dpp => "DPP",
                Form::Any => "plain",
            };
            let message = format!("the instruction has no {asked} encoding on {}", cx.target);
            Err(ParseError { column: start, message })
        }
    }
}

/// Puts an encoder's complaint under the operand it speaks of.
fn locate(e: &EncodeError, row: &Row, parts: &Parts, text: &str) -> ParseError {
    let column = match e {
        EncodeError::Operand { operand, .. } => {
            let visible = row
                .shape()
                .operands
                .iter()
                .filter(|o| matches!(o.role, Role::Dst | Role::Src) && o.style != Style::AttrChan);
            visible.zip(&parts.args).find(|(o, _)| o.name == *operand).map(|(_, a)| a.at)
        }
        EncodeError::Modifier { modifier, .. } => {
            parts.mods.iter().find(|(_, m)| m.name == *modifier).map(|(at, _)| *at)
        }
        _ => None,
    };
    let start = text.len() - text.trim_start().len();
    if let EncodeError::Modifier { modifier, .. } = e
        && let Some(at) = column
    {
        let written = text.get(at..).and_then(|t| t.split([':', ' ', ',']).next()).unwrap_or("the modifier");
        let field = row.shape().operands.iter().find(|o| o.role == Role::Mod && o.modifier == *modifier);
        let message = match field {
            Some(o) if o.kind == Kind::ModifierSigned => {
                format!(
                    "`{written}` has no such value here; its field holds {} to {}",
                    -(o.max() as i64 / 2) - 1,
                    o.max() / 2
                )
            }
            Some(o) => format!("`{written}` has no such value here; its field holds 0 to {}", o.max()),
            None => format!("`{written}` does not exist in this encoding"),
        };
        return ParseError { column: at, message };
    }
    let message = e.to_string();
    let message = message.split_once(": ").map_or(message.clone(), |(_, m)| m.to_string());
    ParseError { column: column.unwrap_or(start), message }
}

/// The instruction that a row makes of the arguments.
fn fill(cx: &Context, row: &Row, parts: &Parts) -> std::result::Result<Inst, (u32, ParseError)> {
    let shape = row.shape();
    let mut inst = Inst { op: row.op, dsts: SmallVec::new(), srcs: SmallVec::new(), mods: crate::Mods::new() };
    let mut args = parts.args.iter();
    let mut bits = [(ModName::Neg, 0i32), (ModName::Abs, 0), (ModName::Sext, 0), (ModName::Other, 0)];
    let mut progress = 0;
    let mut chan = 0;
    let takes_signs = row.mods >> ModName::Neg as u32 & 1 == 1 || row.variant & table::DPP8 != 0;
    let visible = shape.shown().iter().filter(|o| o.style != Style::AttrChan).count();
    let fixed = shape.shown().iter().filter(|o| o.kind == Kind::FixedVcc).count();
    // a pair whose constant takes a sign has a longer form
    let pair = shape.format == "VOPD";
    // vcc where the encoding leaves no choice need not be written
    let silent_vcc = fixed > 0 && parts.args.len() + fixed == visible;
    for &o in shape.shown() {
        if o.kind == Kind::FixedVcc && silent_vcc {
            let vcc = Operand::Regs(crate::encode::decode::vcc(cx.mode));
            if o.role == Role::Dst {
                inst.dsts.push(vcc)
            } else {
                inst.srcs.push(vcc)
            }
            continue;
        }
        // operands that text leaves out
        if o.kind == Kind::FixedVcc && shape.format.starts_with("VOPD") {
            inst.srcs.push(Operand::Regs(crate::encode::decode::vcc(cx.mode)));
            continue;
        }
        if o.style == Style::AttrChan {
            inst.srcs.push(Operand::Imm(chan));
            continue;
        }
        let Some(a) = args.next() else {
            match (o.style, o.kind) {
                (Style::Endpgm, _) | (_, Kind::SmemOffset) => inst.srcs.push(Operand::Imm(0)),
                (_, Kind::FixedVcc) if o.role == Role::Src => {
                    inst.srcs.push(Operand::Regs(crate::encode::decode::vcc(cx.mode)))
                }
                (_, Kind::FlatSaddr) => inst.srcs.push(Operand::Off),
                _ => {
                    let end = parts.args.last().map_or(0, |a| a.at + 1);
                    return Err((
                        progress,
                        ParseError { column: end, message: format!("too few operands: expected {}", o.name) },
                    ));
                }
            }
            continue;
        };
        progress += 1;
        if let What::List(list) = &a.what {
            if o.kind != Kind::ImageList {
                let message = format!("{} takes no list of registers in this encoding", o.name);
                return Err((progress, ParseError { column: a.at, message }));
            }
            inst.srcs.extend(list.iter().map(|r| Operand::Regs(*r)));
            continue;
        }
        let x = match &a.what {
            What::Regs(r) if r.half == Half::Lo && row.variant & FAKE16 != 0 && o.bits == 16 => {
                Operand::Regs(Regs { half: Half::Full, ..*r })
            }
            What::Regs(r) => Operand::Regs(fit(cx, o, *r)),
            What::Off | What::List(_) => Operand::Off,
            What::Field(v) => Operand::Imm(*v),
            What::AttrChan(at, c) => {
                chan = *c;
                Operand::Imm(*at)
            }
            What::Value(v)
                if v.float && matches!(o.ty, Type::I16 | Type::U16 | Type::B16) && o.source_index().is_some() =>
            {
                // an inline floating constant keeps its code although the operand is an integer; others have 32 bits
                let s = o.source_index().unwrap_or(0);
                let x = f64::from_bits(v.number as u64);
                let half = u64::from(half_bits(x));
                if a.lit || inline_code(half, Type::F16, 16).is_none_or(|c| c < 240) && half != 0 {
                    bits[3].1 |= 1 << s;
                    Operand::Imm(u64::from((x as f32).to_bits()))
                } else {
                    bits[3].1 |= 256 << s;
                    Operand::Imm(half)
                }
            }
            What::Value(v) if (a.neg || a.abs) && !takes_signs && !pair && (o.ty != Type::F64 || v.float) => {
                let x =
                    constant(cx, o, *v).map_err(|e| (progress, ParseError { column: a.at, message: e.to_string() }))?;
                let top = 1u64 << (crate::model::codes::constant_bits(o.ty, o.bits) - 1);
                let x = if a.abs { x & !top } else { x };
                let x = if a.neg { x ^ top } else { x };
                Operand::Imm(x)
            }
            // of 16-bit integers only numbers with a sign are the negative inline constants
            What::Value(v)
                if matches!(o.ty, Type::I16 | Type::U16 | Type::B16)
                    && o.source_index().is_some()
                    && !v.float
                    && (0xfff0..=0xffff).contains(&v.number) =>
            {
                bits[3].1 |= 1 << o.source_index().unwrap_or(0);
                Operand::Imm(v.number as u64)
            }
            What::Value(v)
                if (a.neg || a.abs)
                    && o.ty == Type::F64
                    && !v.float
                    && !v.late
                    && inline_code(v.number as u64, o.ty, o.bits).is_none() =>
            {
                let message = "an integer that becomes a literal of 64 bits takes no sign".into();
                return Err((progress, ParseError { column: a.at, message }));
            }
            What::Value(v) => Operand::Imm(
                literal(cx, row, o, a, *v)
                    .map_err(|e| (progress, ParseError { column: a.at, message: e.to_string() }))?,
            ),
        };
        let source = o.source_index();
        let folded = matches!(a.what, What::Value(v) if o.ty != Type::F64 || v.float) && !takes_signs && !pair;
        let signs = [a.neg && !folded, a.abs && !folded, a.sext, a.lit];
        for (i, _) in signs.iter().enumerate().filter(|s| *s.1) {
            if !(i == 3 && matches!(o.style, Style::K32 | Style::K16 | Style::K64)) {
                let Some(s) = source.filter(|_| o.role == Role::Src) else {
                    return Err((
                        progress,
                        ParseError { column: a.at, message: format!("{} takes no modifier", o.name) },
                    ));
                };
                bits[i].1 |= 1 << s;
            }
        }
        match o.role {
            Role::Dst => inst.dsts.push(x),
            _ => inst.srcs.push(x),
        }
    }
    if let Some(a) = args.next() {
        return Err((progress, ParseError { column: a.at, message: "too many operands".into() }));
    }
    for (name, v) in bits {
        if v != 0 {
            inst.mods.set(name, v);
        }
    }
    modifiers::apply(cx.target, row, parts, &mut inst).map_err(|e| (progress, e))?;
    Ok(inst)
}

/// Registers that name a mask or an aperture take the width of the operand.
fn fit(cx: &Context, o: &Field, r: Regs) -> Regs {
    let want = o.bits.div_ceil(32).max(1) as u8;
    let aperture = (Reg::SHARED_BASE.0..=Reg::POPS_EXITING_WAVE_ID.0).contains(&r.first.0);
    if r.first == Reg::FLAT_SCRATCH_BASE_LO && want == 2 {
        return Regs { dwords: 2, ..r };
    }
    if aperture || matches!(r.first, Reg::NULL | Reg::SCC | Reg::VCCZ | Reg::EXECZ) {
        let dwords = if o.has(table::flag::MASK) { cx.mode.mask_dwords() } else { want };
        return Regs { dwords, ..r };
    }
    r
}

/// `v_dual_x .. :: v_dual_y ..`
fn dual(cx: &Context, mut c: Cursor, first: &str) -> Result<Raw> {
    let start = c.at - first.len();
    let mut parts = Parts::default();
    read(cx, &mut c, &[], &mut parts)?;
    c.expect("::")?;
    c.skip();
    let second = c.take_word().to_ascii_lowercase();
    // the text has destination and sources of X, then of Y; rows keep the same order
    read(cx, &mut c, &[], &mut parts)?;
    let name = format!("{first} :: {second}");
    let Some(rows) = by_name(cx.target).get(name.as_str()) else {
        return Err(ParseError { column: start, message: format!("`{name}` is no pair on {}", cx.target) });
    };
    choose(cx, rows, Form::Any, &parts, c.text, start)
}
