//! Text form of the machine IR; [`parse`] reads back what `Display` prints.
//!
//! ```text
//! kernel @relu target gfx942 workgroup 256 lds 0 kernarg 16 scratch 0
//! preload kernarg %0 workgroup_id_x %1 workitem_id %2
//! regs %0:s2 %1:s1 %2:v1 %3:v4.f32
//! loop loop_1 loop_1 counter %4 step 1 limit 32 pipeline stated carried %3
//! block entry_0 fixed ; reads four elements
//!   where group 1 before group 2
//!   %3 = buffer_load_dwordx4 %2, %5, 0 {offset=16 offen=1}
//!   %3[0] = v_max_f32 0, %3[0]
//!   s_cbranch_scc1 @loop_1
//! ```
//! Generic operations are written with a `g.` prefix and their type (`g.add.i32`, `g.cvt.f32.f16`), target instructions by the name that is the same on all targets.
//! Behind ` ; ` stands the instruction's [`Note`].

use super::*;
use barewave_isa::{Half, ModName, Reg, RegFile};
use std::fmt::{self, Display, Write};

struct Text<'a>(&'a Function, Opnd);

impl Display for Text<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Opnd::V(p) if p.first == 0 && p.len == self.0.vreg(p.reg).dwords => write!(out, "%{}", p.reg.0),
            Opnd::V(Part { reg, first, len: 1 }) => write!(out, "%{}[{first}]", reg.0),
            Opnd::V(Part { reg, first, len }) => write!(out, "%{}[{first}:{}]", reg.0, first + len - 1),
            Opnd::P(r) => write!(out, "{r}"),
            Opnd::Imm(x) if x < 0x10000 => write!(out, "{x}"),
            Opnd::Imm(x) => write!(out, "0x{x:x}"),
            Opnd::Off => out.write_str("off"),
            Opnd::Block(b) => write!(out, "@{}", self.0.blocks[b.0 as usize].name),
        }
    }
}

impl Function {
    /// One instruction as text.
    pub fn inst_text(&self, inst: &MInst) -> String {
        let mut s = String::new();
        let list = |s: &mut String, ops: &[Opnd]| {
            for (i, o) in ops.iter().enumerate() {
                let _ = write!(s, "{}{}", if i > 0 { ", " } else { "" }, Text(self, *o));
            }
        };
        if !inst.dsts.is_empty() {
            list(&mut s, &inst.dsts);
            s.push_str(" = ");
        }
        match inst.code {
            Code::Isa(op) => s.push_str(op.name()),
            Code::Gen(g) => {
                let _ = write!(s, "g.{g}");
            }
        }
        if !inst.srcs.is_empty() {
            s.push(' ');
            list(&mut s, &inst.srcs);
        }
        if !inst.mods.is_empty() {
            let mods: Vec<String> = inst.mods.iter().map(|(n, v)| format!("{}={v}", n.name())).collect();
            let _ = write!(s, " {{{}}}", mods.join(" "));
        }
        let _ = write!(s, "{}", inst.space);
        if inst.stage > 0 {
            let _ = write!(s, " stage {}", inst.stage);
        }
        if inst.group != Group::default() {
            let _ = write!(s, " group {}", inst.group.0);
        }
        if !inst.note.is_empty() {
            let _ = write!(s, " ; {}", inst.note);
        }
        s
    }
}

impl Function {
    fn write_loop(&self, l: &Loop, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |b: BlockId| self.blocks.get(b.0 as usize).map_or("?", |b| b.name.as_str());
        write!(out, "loop {} {} counter %{} ", name(l.header), name(l.latch), l.counter.0)?;
        write!(out, "step {} limit {}", l.step, Text(self, l.limit))?;
        match l.pipeline {
            Pipeline::Off => {}
            Pipeline::Stated => out.write_str(" pipeline stated")?,
            Pipeline::Modulo(n) => write!(out, " pipeline modulo {n}")?,
        }
        if l.overrun {
            out.write_str(" overrun")?;
        }
        if l.in_turns {
            out.write_str(" in_turns")?;
        }
        if !l.carried.is_empty() {
            out.write_str(" carried")?;
        }
        for v in &l.carried {
            write!(out, " %{}", v.0)?;
        }
        writeln!(out)
    }
}

impl Display for Function {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "kernel @{} target {} workgroup {} lds {} kernarg {} scratch {}",
            self.name,
            self.target.info().name,
            self.workgroup_size,
            self.lds_bytes,
            self.kernarg_bytes,
            self.scratch_bytes
        )?;
        if let Some(n) = self.workgroups {
            write!(out, " workgroups {n}")?;
        }
        writeln!(out)?;
        if !self.comment.is_empty() {
            writeln!(out, "; {}", self.comment)?;
        }
        out.write_str("preload")?;
        if let Some(v) = self.preloads.kernarg {
            write!(out, " kernarg %{}", v.0)?;
        }
        for (v, dim) in self.preloads.workgroup_id.iter().zip(["x", "y", "z"]) {
            if let Some(v) = v {
                write!(out, " workgroup_id_{dim} %{}", v.0)?;
            }
        }
        if let Some(v) = self.preloads.workitem_id {
            write!(out, " workitem_id %{}", v.0)?;
        }
        if let Some([desc, wave]) = self.preloads.scratch {
            write!(out, " scratch %{} scratch_offset %{}", desc.0, wave.0)?;
        }
        for (i, v) in self.vregs.iter().enumerate() {
            if i % 12 == 0 {
                out.write_str("\nregs")?;
            }
            let class = match v.class {
                RegClass::V => 'v',
                RegClass::A => 'a',
                RegClass::S => 's',
            };
            write!(out, " %{i}:{class}{}", v.dwords)?;
            if v.ty != Type::B32 {
                write!(out, ".{}", v.ty.name())?;
            }
        }
        writeln!(out)?;
        for l in &self.loops {
            self.write_loop(l, out)?;
        }
        for b in &self.blocks {
            write!(out, "block {}", b.name)?;
            if b.order == Order::Fixed {
                out.write_str(" fixed")?;
            }
            if !b.comment.is_empty() {
                write!(out, " ; {}", b.comment)?;
            }
            writeln!(out)?;
            for c in &b.constraints {
                writeln!(out, "  where {c}")?;
            }
            for i in &b.insts {
                writeln!(out, "  {}", self.inst_text(i))?;
            }
        }
        Ok(())
    }
}

/// What is wrong with a line of machine IR.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Malformed {
    #[error("'{word}' is not {what}")]
    Not { word: String, what: &'static str },
    #[error("no {kind} '{name}'")]
    Unknown { kind: &'static str, name: String },
    #[error("{0}")]
    Lacks(&'static str),
    #[error("the line lacks {0}, or a value for it")]
    LacksKey(String),
    #[error("{key}: {why}")]
    Number { key: String, why: std::num::ParseIntError },
    #[error("a conversion names both types: cvt.f32.f16")]
    Conversion,
    #[error("{0} names one type: {0}.f32")]
    Untyped(&'static str),
    #[error("{op} is not defined on {ty}")]
    Undefined { op: &'static str, ty: &'static str },
    #[error("expected the declaration of %{0}")]
    Declaration(usize),
    #[error("{part} is more than the {dwords} dwords of {whole}")]
    Beyond { part: String, dwords: u8, whole: String },
}

impl Malformed {
    /// A word that is not what should stand there.
    pub(super) fn not(word: &str, what: &'static str) -> Malformed {
        Malformed::Not { word: word.trim().to_string(), what }
    }
    /// A name of nothing.
    pub(super) fn unknown(kind: &'static str, name: &str) -> Malformed {
        Malformed::Unknown { kind, name: name.to_string() }
    }
}

/// Text that is not machine IR.
#[derive(Debug, thiserror::Error)]
#[error("machine IR line {line}: {what}")]
pub struct ParseError {
    /// Line number from 1.
    pub line: usize,
    /// What is wrong.
    pub what: Malformed,
}

/// Reads one kernel.
pub fn parse(text: &str) -> Result<Function, ParseError> {
    let mut f: Option<Function> = None;
    let names: Vec<&str> = text
        .lines()
        .filter_map(|l| l.strip_prefix("block "))
        .map(|l| l.split_whitespace().next().unwrap_or(""))
        .collect();
    for (n, line) in text.lines().enumerate() {
        let err = |what: Malformed| ParseError { line: n + 1, what };
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(&first) = words.first() else { continue };
        if first == "kernel" {
            f = Some(parse_header(&words).map_err(err)?);
            continue;
        }
        let Some(f) = &mut f else { return Err(err(Malformed::Lacks("expected a kernel line first"))) };
        match first {
            ";" => f.comment = line.trim_start_matches("; ").to_string(),
            "preload" => parse_preloads(f, &words[1..]).map_err(err)?,
            "regs" => {
                for w in &words[1..] {
                    parse_reg_decl(f, w).map_err(err)?;
                }
            }
            "loop" => {
                let l = parse_loop(f, &names, &words).map_err(err)?;
                f.loops.push(l);
            }
            "block" => {
                let (head, comment) = line.split_once(" ; ").unwrap_or((line, ""));
                let mut words = head.split_whitespace().skip(1);
                f.blocks.push(Block {
                    name: words.next().ok_or_else(|| err(Malformed::Lacks("a block needs a name")))?.to_string(),
                    order: match words.next() {
                        None => Order::Free,
                        Some("fixed") => Order::Fixed,
                        Some(w) => return Err(err(Malformed::not(w, "an order of a block: fixed, or nothing"))),
                    },
                    constraints: Vec::new(),
                    comment: comment.to_string(),
                    insts: Vec::new(),
                });
            }
            "where" => {
                let text = line.trim().trim_start_matches("where ");
                let c = Constraint::parse(text).map_err(err)?;
                f.blocks
                    .last_mut()
                    .ok_or_else(|| err(Malformed::Lacks("expected a block line first")))?
                    .constraints
                    .push(c);
            }
            _ => {
                let inst = parse_inst(f, &names, line).map_err(err)?;
                let block = f.blocks.last_mut().ok_or_else(|| err(Malformed::Lacks("expected a block line first")))?;
                block.insts.push(inst);
            }
        }
    }
    f.ok_or(ParseError { line: 1, what: Malformed::Lacks("no kernel line") })
}

fn parse_header(words: &[&str]) -> Result<Function, Malformed> {
    let name = words.get(1).and_then(|w| w.strip_prefix('@')).ok_or(Malformed::Lacks("kernel needs a @name"))?;
    let field = |key: &str| -> Result<&str, Malformed> {
        let at = words.iter().position(|w| *w == key).ok_or_else(|| Malformed::LacksKey(key.to_string()))?;
        words.get(at + 1).copied().ok_or_else(|| Malformed::LacksKey(key.to_string()))
    };
    let number = |key: &str| field(key)?.parse::<u32>().map_err(|why| Malformed::Number { key: key.to_string(), why });
    let mut b = Builder::new(
        Target::parse(field("target")?).map_err(|_| {
            Malformed::unknown("target", words.iter().skip_while(|w| **w != "target").nth(1).unwrap_or(&""))
        })?,
        name,
        number("workgroup")?,
    );
    let f = b.function();
    f.blocks.clear();
    f.lds_bytes = number("lds")?;
    f.kernarg_bytes = number("kernarg")?;
    f.scratch_bytes = number("scratch")?;
    f.workgroups = words.contains(&"workgroups").then(|| number("workgroups")).transpose()?;
    Ok(f.clone())
}

/// `loop header latch counter %5 step 1 limit 32 pipeline stated overrun carried %7 %8`
fn parse_loop(f: &Function, blocks: &[&str], words: &[&str]) -> Result<Loop, Malformed> {
    let block = |i: usize| {
        let name = words.get(i).ok_or(Malformed::Lacks("a loop names its first and last block"))?;
        let at = blocks.iter().position(|b| b == name).ok_or_else(|| Malformed::unknown("block", name))?;
        Ok::<BlockId, Malformed>(BlockId(at as u32))
    };
    let after = |key: &str| {
        let at = words.iter().position(|w| *w == key)?;
        words.get(at + 1).copied()
    };
    let need = |key: &str| after(key).ok_or_else(|| Malformed::LacksKey(key.to_string()));
    let carried = words.iter().position(|w| *w == "carried").map_or(&[][..], |at| &words[at + 1..]);
    Ok(Loop {
        header: block(1)?,
        latch: block(2)?,
        counter: vreg_number(need("counter")?)?,
        step: need("step")?.parse().map_err(|why| Malformed::Number { key: "step".into(), why })?,
        limit: parse_operand(f, blocks, need("limit")?)?,
        carried: carried.iter().map(|w| vreg_number(w)).collect::<Result<_, _>>()?,
        pipeline: match after("pipeline") {
            None => Pipeline::Off,
            Some("stated") => Pipeline::Stated,
            Some("modulo") => {
                let at = words.iter().position(|w| *w == "modulo").and_then(|at| words.get(at + 1));
                Pipeline::Modulo(
                    at.and_then(|n| n.parse().ok()).ok_or(Malformed::Lacks("modulo needs the most stages"))?,
                )
            }
            Some(w) => return Err(Malformed::not(w, "a way to pipeline: stated, or modulo 3")),
        },
        overrun: words.contains(&"overrun"),
        in_turns: words.contains(&"in_turns"),
    })
}

fn vreg_number(w: &str) -> Result<VReg, Malformed> {
    let n = w.strip_prefix('%').and_then(|n| n.parse().ok());
    n.map(VReg).ok_or_else(|| Malformed::not(w, "a virtual register"))
}

fn parse_preloads(f: &mut Function, words: &[&str]) -> Result<(), Malformed> {
    for pair in words.chunks(2) {
        let [key, reg] = pair else { return Err(Malformed::Lacks("preloads come in pairs")) };
        let v = Some(vreg_number(reg)?);
        match *key {
            "kernarg" => f.preloads.kernarg = v,
            "workgroup_id_x" => f.preloads.workgroup_id[0] = v,
            "workgroup_id_y" => f.preloads.workgroup_id[1] = v,
            "workgroup_id_z" => f.preloads.workgroup_id[2] = v,
            "workitem_id" => f.preloads.workitem_id = v,
            "scratch" => f.preloads.scratch = Some([vreg_number(reg)?; 2]),
            "scratch_offset" => match &mut f.preloads.scratch {
                Some([_, wave]) => *wave = vreg_number(reg)?,
                None => return Err(Malformed::Lacks("scratch_offset follows scratch")),
            },
            k => return Err(Malformed::unknown("preload", k)),
        }
    }
    Ok(())
}

fn parse_reg_decl(f: &mut Function, w: &str) -> Result<(), Malformed> {
    let bad = || Malformed::not(w, "a register declaration like %3:v4 or %3:v2.f64");
    let (number, kind) = w.split_once(':').ok_or_else(bad)?;
    let class = match kind.get(..1) {
        Some("v") => RegClass::V,
        Some("a") => RegClass::A,
        Some("s") => RegClass::S,
        _ => return Err(bad()),
    };
    let (dwords, ty) = match kind[1..].split_once('.') {
        Some((n, t)) => (n, Type::by_name(t).ok_or_else(|| Malformed::unknown("type", t))?),
        None => (&kind[1..], Type::B32),
    };
    let dwords: u8 = dwords.parse().ok().filter(|n| (1..=32).contains(n)).ok_or_else(bad)?;
    if vreg_number(number)?.0 as usize != f.vregs.len() {
        return Err(Malformed::Declaration(f.vregs.len()));
    }
    f.new_typed(class, dwords, ty);
    Ok(())
}

fn parse_inst(f: &Function, blocks: &[&str], line: &str) -> Result<MInst, Malformed> {
    let (line, note) = match line.split_once(" ; ") {
        Some((l, note)) => (l, Note::parse(note)?),
        None => (line, Note::default()),
    };
    let (line, group) = match line.rsplit_once(" group ") {
        Some((l, g)) => (l, Group(g.trim().parse().map_err(|_| Malformed::not(g, "a group"))?)),
        None => (line, Group::default()),
    };
    let (line, stage) = match line.rsplit_once(" stage ") {
        Some((l, s)) => (l, s.trim().parse().map_err(|_| Malformed::not(s, "a stage"))?),
        None => (line, 0),
    };
    let (line, space) = match line.split_once(" in ") {
        Some((l, s)) => (l, Space::parse(s)?),
        None => (line, Space::default()),
    };
    let (body, mods_text) = match line.split_once(" {") {
        Some((b, m)) => (b, m.strip_suffix('}').ok_or(Malformed::Lacks("modifiers end with }"))?),
        None => (line, ""),
    };
    let (dsts, rest) = body.split_once(" = ").unwrap_or(("", body));
    let rest = rest.trim();
    // The name of a pair is those of its halves.
    let from = rest.find(" :: ").map_or(0, |at| at + " :: ".len());
    let (name, srcs) = match rest[from..].find(' ') {
        Some(end) => (&rest[..from + end], &rest[from + end + 1..]),
        None => (rest, ""),
    };
    let code = match name.strip_prefix("g.") {
        Some(g) => Code::Gen(Generic::by_name(g)?),
        None => Code::Isa(Op::by_name(name).ok_or_else(|| Malformed::unknown("instruction", name))?),
    };
    let list = |text: &str| -> Result<SmallVec<[Opnd; 4]>, Malformed> {
        text.split(", ").map(str::trim).filter(|w| !w.is_empty()).map(|w| parse_operand(f, blocks, w)).collect()
    };
    let mut mods = Mods::new();
    for m in mods_text.split_whitespace() {
        let (k, v) = m.split_once('=').ok_or_else(|| Malformed::not(m, "name=value"))?;
        let name = ModName::by_name(k).ok_or_else(|| Malformed::unknown("modifier", k))?;
        mods.set(name, v.parse().map_err(|_| Malformed::not(v, "a number"))?);
    }
    let (dsts, srcs) = (list(dsts)?.into_iter().collect(), list(srcs)?);
    Ok(MInst { code, dsts, srcs, mods, space, stage, group, note })
}

fn parse_operand(f: &Function, blocks: &[&str], w: &str) -> Result<Opnd, Malformed> {
    let bad = || Malformed::not(w, "an operand");
    if let Some(name) = w.strip_prefix('@') {
        let b = blocks.iter().position(|b| *b == name).ok_or_else(|| Malformed::unknown("block", name))?;
        return Ok(Opnd::Block(BlockId(b as u32)));
    }
    if w == "off" {
        return Ok(Opnd::Off);
    }
    let (stem, range) = match w.split_once('[') {
        Some((s, r)) => {
            let r = r.strip_suffix(']').ok_or_else(bad)?;
            let (a, b) = r.split_once(':').unwrap_or((r, r));
            let (a, b): (u16, u16) = (a.parse().map_err(|_| bad())?, b.parse().map_err(|_| bad())?);
            if b < a || b - a >= 32 {
                return Err(bad());
            }
            (s, Some((a, b - a + 1)))
        }
        None => (w, None),
    };
    if stem.starts_with('%') {
        let v = vreg_number(stem)?;
        let dwords = f.vregs.get(v.0 as usize).ok_or_else(|| Malformed::not(stem, "declared"))?.dwords;
        let (first, len) = range.unwrap_or((0, dwords as u16));
        if first + len > dwords as u16 {
            return Err(Malformed::Beyond { part: w.to_string(), dwords, whole: stem.to_string() });
        }
        return Ok(Opnd::V(Part { reg: v, first: first as u8, len: len as u8 }));
    }
    if let Some(hex) = w.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).map(Opnd::Imm).map_err(|_| bad());
    }
    if let Ok(x) = w.parse() {
        return Ok(Opnd::Imm(x));
    }
    physical(stem, range).map(Opnd::P).ok_or_else(bad)
}

/// `v7`, `v[4:7]`, `vcc`, ...
fn physical(stem: &str, range: Option<(u16, u16)>) -> Option<Regs> {
    for (prefix, first, count) in
        [("v", Reg::V0, 1024), ("a", Reg::A0, 256), ("s", Reg::S0, 128), ("ttmp", Reg::TTMP0, 16)]
    {
        let Some(n) = stem.strip_prefix(prefix) else { continue };
        let (at, len) = match range {
            Some(r) if n.is_empty() => r,
            None => (n.parse::<u16>().ok().filter(|_| !n.is_empty()).unwrap_or(u16::MAX), 1),
            _ => continue,
        };
        if at < count {
            return Some(Regs { first: first.offset(at), dwords: len as u8, half: Half::Full });
        }
    }
    let special = (Reg::VCC_LO.0..Reg::COUNT as u16).map(Reg).filter(|r| r.file() == RegFile::Special);
    special.flat_map(|r| [Regs::new(r, 1), Regs::new(r, 2)]).find(|r| r.to_string() == stem)
}
