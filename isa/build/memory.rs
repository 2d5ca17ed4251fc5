//! Memory encodings: addressing modes, returning atomics and loads to LDS of one row.

use super::expand::{Context, Encoding, Frame, Shape, implicit};
use super::formats::{Field, Format, Piece, all_bits, segments};
use super::operand::{Operand, unused, width};
use super::rows::Row;
use super::schema::{FieldKind, Kind, Role, flag};
use super::text::{Fail, Result};
use std::collections::BTreeSet;

/// An encoding of the row in the making.
struct Case<'a> {
    row: &'a Row,
    target: &'a str,
    /// Name of the format.
    name: &'a str,
    format: &'a Format,
    /// The form of an atomic: returning or not.
    returns: Option<bool>,
    /// A load to LDS, or the short form of a tensor copy.
    short: bool,
    srcs: Vec<String>,
    operands: Vec<Operand>,
    used: BTreeSet<String>,
    words: BTreeSet<String>,
    fixed: u128,
    mask: u128,
}

/// The encodings of a row in a memory format.
pub fn expand(op: &str, row: &Row, cx: &Context, frame: &Frame) -> Result<Vec<Encoding>> {
    let has = |w: &str| row.sig.words.iter().any(|x| x == w);
    let forms: &[(Option<bool>, bool)] = match frame.name {
        "TENSOR" => &[(None, false), (None, true)],
        _ if has("atomic") => &[(Some(false), false), (Some(true), false)],
        _ if has("lds") => &[(None, false), (None, true)],
        _ => &[(None, false)],
    };
    let mut out = Vec::new();
    for &(returns, short) in forms {
        let mut c = Case {
            row,
            target: cx.target,
            name: frame.name,
            format: &frame.format,
            returns,
            short,
            srcs: row.sig.srcs.clone(),
            operands: Vec::new(),
            used: BTreeSet::new(),
            words: BTreeSet::new(),
            fixed: frame.fixed,
            mask: frame.mask,
        };
        c.destinations()?;
        if c.name == "TENSOR" && short {
            c.few_dimensions()?;
        }
        for s in c.srcs.clone() {
            c.source(&s)?;
        }
        let modifiers = c.modifiers()?;
        for m in modifiers {
            c.modifier(m);
        }
        c.demands()?;
        if let Some(ret) = returns {
            c.words.insert(if ret { "ret" } else { "noret" }.into());
        }
        let (format, bytes) = (frame.name.to_string(), frame.format.bytes);
        out.push(Encoding {
            op: op.to_string(),
            mnemonic: row.mnemonic.clone(),
            shape: Shape { format, bytes, operands: c.operands, words: c.words, image: None },
            fixed: c.fixed,
            mask: c.mask,
            variant: implicit(row),
        });
    }
    Ok(out)
}

impl Case<'_> {
    fn has(&self, word: &str) -> bool {
        self.row.sig.words.iter().any(|w| w == word)
    }

    fn takes(&self, source: &str) -> bool {
        self.srcs.iter().any(|s| s == source)
    }

    fn fail(&self, word: &str, what: &str) -> Fail {
        self.row.fail(word, what)
    }

    fn is_buffer(&self) -> bool {
        matches!(self.name, "MUBUF" | "MTBUF")
    }

    fn need(&self, field: &str) -> Result<&Field> {
        let missing = || self.fail(field, &format!("{} has no such field on {}", self.name, self.target));
        self.format.fields.get(field).ok_or_else(missing)
    }

    /// An operand in a field; `kind` where it is not the field's.
    fn add(&mut self, field: &str, role: Role, kind: Option<Kind>, ty: &str, bits: u16, flags: u16) -> Result<()> {
        let (pieces, kind) = match (self.format.fields.get(field), kind) {
            (Some(x), kind) => (segments(&x.pieces), kind.unwrap_or(x.kind.kind())),
            (None, Some(kind)) => (Vec::new(), kind),
            (None, None) => return Err(self.need(field).err().unwrap_or_else(|| self.fail(field, "no such field"))),
        };
        self.used.insert(field.to_string());
        self.operands.push(Operand { name: field.to_string(), role, kind, ty: ty.to_string(), bits, flags, pieces });
        Ok(())
    }

    /// Bits that other operands depend on.
    fn aux(&mut self, name: &str, pieces: Vec<(u8, u8, u8)>) {
        self.used.insert(name.to_string());
        self.operands.push(Operand::bits(name, Role::Aux, Kind::Aux, pieces));
    }

    /// A field whose bits are all ones.
    fn ones(&mut self, field: &str) -> Result<()> {
        let bits = all_bits(&self.need(field)?.pieces);
        self.fixed |= bits;
        self.mask |= bits;
        self.used.insert(field.to_string());
        Ok(())
    }

    fn destinations(&mut self) -> Result<()> {
        let returning = self.returns == Some(true);
        if returning && self.is_buffer() {
            // the data register receives the old value
            let data = self.srcs.remove(0);
            let (_, ty) = data.split_once(':').ok_or_else(|| self.fail(&data, "expected vdata:type"))?;
            return self.add("vdata", Role::Dst, None, ty, width(ty), flag::READ);
        }
        for d in &self.row.sig.dsts {
            let (field, ty) = d.split_once(':').ok_or_else(|| self.fail(d, "expected field:type"))?;
            if self.short || self.returns == Some(false) {
                continue;
            }
            let scalar = self.name == "SMEM";
            let read = ty.ends_with('+') || scalar && returning;
            let ty = ty.trim_end_matches('+');
            let field = if scalar { "sdata" } else { field };
            self.add(field, Role::Dst, None, ty, width(ty), if read { flag::READ } else { 0 })?;
        }
        if self.name == "SMEM" && returning {
            self.srcs.remove(0);
        }
        Ok(())
    }

    /// Tensors of one or two dimensions: the last two groups of the descriptor are absent.
    fn few_dimensions(&mut self) -> Result<()> {
        const NULL: u128 = 0x7c;
        let absent = self.srcs.split_off(2.min(self.srcs.len()));
        for s in absent {
            let name = s.split_once(':').map_or(s.as_str(), |(name, _)| name);
            let at = self.need(name)?.pieces[0];
            self.fixed |= NULL << at.lo;
            self.mask |= all_bits(&[at]);
            self.used.insert(name.to_string());
        }
        Ok(())
    }

    fn source(&mut self, s: &str) -> Result<()> {
        use Role::Src;
        let (field, ty) = s.split_once(':').unwrap_or((s, "b32"));
        match (self.name, field) {
            ("MUBUF" | "MTBUF", "vaddr") => self.add("vaddr", Src, Some(Kind::BufferAddr), "b32", 32, 0),
            ("MUBUF" | "MTBUF", "srsrc") => self.add("srsrc", Src, None, "b128", 128, flag::SCALAR_ONLY),
            ("MUBUF" | "MTBUF", "soffset") => {
                self.add("soffset", Src, None, "b32", 32, flag::SCALAR_ONLY | flag::NO_LITERAL)
            }
            ("GLOBAL", "vaddr") => self.add("vaddr", Src, Some(Kind::GlobalAddr), "b64", 64, 0),
            ("GLOBAL", "saddr") if !s.contains(':') => self.add("saddr", Src, Some(Kind::GlobalSaddr), "b64", 64, 0),
            ("SCRATCH", "vaddr") => self.add("vaddr", Src, Some(Kind::ScratchAddr), "b32", 32, 0),
            ("SCRATCH", "saddr") => self.add("saddr", Src, Some(Kind::ScratchSaddr), "b32", 32, 0),
            ("FLAT", "vaddr") => {
                let kind = self.takes("saddr").then_some(Kind::GlobalAddr);
                self.add("vaddr", Src, kind, "b64", 64, 0)
            }
            ("FLAT", "saddr") => self.add("saddr", Src, Some(Kind::FlatSaddr), "b64", 64, 0),
            ("SMEM", "soff") => self.scalar_offset(),
            ("SMEM", "offset") => {
                self.mask |= self.not_negative();
                self.add("offset", Src, None, ty, width(ty), 0)
            }
            ("SMEM", "sdata") if ty == "i8" => self.scalar_number(),
            ("DS", "addr") => self.add("addr", Src, None, "b32", 32, 0),
            _ => self.add(field, Src, None, ty, width(ty), 0),
        }
    }

    /// The offset of a scalar access: a constant, a register or both.
    fn scalar_offset(&mut self) -> Result<()> {
        self.mask |= self.not_negative();
        self.add("offset", Role::Src, Some(Kind::SmemOffset), "b32", 32, 0)?;
        for n in ["imm", "soffen", "soffset"] {
            if let Some(x) = self.format.fields.get(n) {
                self.aux(n, x.pieces.first().map(|p| (p.lo, p.len, 0)).into_iter().collect());
            }
        }
        Ok(())
    }

    /// A number in the place of data.
    fn scalar_number(&mut self) -> Result<()> {
        self.add("sdata", Role::Src, Some(Kind::Imm), "i8", 8, 0)?;
        // five bits of the field hold a number, the others are clear
        if let (true, Some(o)) = (self.has("imm5"), self.operands.last_mut())
            && let Some((lo, len, _)) = o.pieces.first_mut()
        {
            self.mask |= ((1u128 << (*len - 5)) - 1) << (*lo + 5);
            *len = 5;
        }
        Ok(())
    }

    /// The sign of the 24-bit offset of a scalar load: a buffer's is not negative.
    fn not_negative(&self) -> u128 {
        let offset = self.format.fields.get("offset").and_then(|o| o.pieces.first());
        let wide = offset.filter(|p| p.len == 24 && self.takes("sbase:b128"));
        wide.map_or(0, |p| 1 << (p.lo + p.len - 1))
    }

    /// Modifiers in the order in which LLVM prints them; fields that are no modifiers here are settled.
    fn modifiers(&mut self) -> Result<Vec<&'static str>> {
        let mut mods = Vec::new();
        match self.name {
            "DS" => self.lds_modifiers(&mut mods)?,
            "MUBUF" | "MTBUF" => self.buffer_modifiers(&mut mods)?,
            "SMEM" if self.has("cpol") => mods.push("cpol"),
            "SMEM" => {}
            "TENSOR" => mods.extend(["r128", "cpol"]),
            _ => {
                if !self.has("nooffset") {
                    mods.push("offset");
                }
                mods.push("cpol");
                if self.short && self.format.fields.contains_key("lds") {
                    self.ones("lds")?;
                    self.words.insert("lds".into());
                }
                if let Some(x) = self.format.fields.get("sve") {
                    self.aux("sve", x.pieces.iter().map(|p| (p.lo, p.len, 0)).collect());
                }
            }
        }
        Ok(mods)
    }

    fn lds_modifiers(&mut self, mods: &mut Vec<&'static str>) -> Result<()> {
        if self.has("offset2") {
            mods.extend(["offset0", "offset1"]);
        } else if self.has("offset") || self.has("swz") {
            mods.push("offset");
        } else {
            self.mask |= all_bits(&self.need("offset")?.pieces);
        }
        if self.has("gds") {
            mods.push("gds");
        } else if self.has("gdsonly") {
            self.ones("gds")?;
            self.words.insert("gdsonly".into());
        }
        if self.has("swz") {
            self.words.insert("swz".into());
        }
        self.used.extend(["offset", "offset0", "offset1"].map(String::from));
        Ok(())
    }

    fn buffer_modifiers(&mut self, mods: &mut Vec<&'static str>) -> Result<()> {
        if self.takes("srsrc") {
            if self.name == "MTBUF" {
                mods.push("format");
            }
            if self.takes("vaddr") {
                mods.extend(["idxen", "offen"]);
            }
            mods.extend(["offset", "cpol"]);
        } else if self.has("cpol") {
            mods.push("cpol");
        } else if let Some(x) = self.format.fields.get("cpol") {
            // cache control ignores slc, and most operations of it only that
            self.used.insert("cpol".into());
            let any = self.has("anypolicy");
            let checked = x.pieces.iter().enumerate().filter(|(i, _)| *i != 1 && !any);
            self.mask |= all_bits(&checked.map(|p| *p.1).collect::<Vec<_>>());
        }
        if self.has("tfe") && !self.short {
            mods.push("tfe");
        }
        if (self.short || self.has("ldsonly")) && self.format.fields.contains_key("lds") {
            self.ones("lds")?;
            self.words.insert("lds".into());
        }
        Ok(())
    }

    fn modifier(&mut self, m: &str) {
        let Some(x) = self.format.fields.get(m) else { return };
        let mut shift = 0;
        let mut pieces = Vec::new();
        // the second policy bit means nothing to cache control
        let control = self.is_buffer() && m == "cpol" && !self.takes("srsrc");
        for (i, p) in x.pieces.iter().enumerate() {
            if p.len > 0 && !(control && i == 1) {
                if m == "cpol" && (i == 0 && self.has("noglc") || i == 4 && self.has("nosc1")) {
                    self.mask |= all_bits(&[*p]);
                }
                // a returning atomic has the first policy bit set, the other form has it clear
                if let ("cpol", 0, Some(returns)) = (m, i, self.returns) {
                    let glc = all_bits(&[Piece { lo: p.lo, len: 1 }]);
                    self.mask |= glc;
                    self.fixed |= if returns { glc } else { 0 };
                }
                pieces.push((p.lo, p.len, shift));
            }
            shift += p.len.max(1);
        }
        let kind = if x.kind == FieldKind::I { Kind::ModifierSigned } else { Kind::Modifier };
        self.used.insert(m.to_string());
        self.operands.push(Operand::bits(m, Role::Mod, kind, pieces));
    }

    /// Bits that must have a value although no operand says so.
    fn demands(&mut self) -> Result<()> {
        let f = self.format;
        // bits that atomics must leave clear
        if let (Some(x), true) = (f.fields.get("atomiczero"), self.has("atomic")) {
            self.mask |= all_bits(&x.pieces);
        }
        // the bit that says AGPR says nothing without data
        for x in f.fields.values().filter(|x| x.kind == FieldKind::Va) {
            let acc = x.pieces.get(1..).map_or(0, all_bits);
            let used = self.operands.iter().flat_map(|o| &o.pieces).any(|p| acc >> p.0 & 1 == 1);
            if !used {
                self.mask |= acc;
            }
        }
        for list in self.row.sig.words.iter().filter_map(|w| w.strip_prefix("zero=")) {
            for n in list.split(',') {
                let bit: u32 = n.parse().map_err(|_| self.fail(n, "expected bit numbers"))?;
                self.mask |= 1u128.checked_shl(bit).ok_or_else(|| self.fail(n, "expected bits up to 127"))?;
            }
        }
        if let Some(x) = f.fields.get("saddr").filter(|_| !self.used.contains("saddr")) {
            // an address that is not there reads as `off`
            const OFF: u128 = 0x7c;
            self.fixed |= OFF << x.pieces[0].lo;
            self.mask |= all_bits(&x.pieces);
            self.used.insert("saddr".into());
        }
        let (ones, checked) =
            unused(f, &self.operands, |name| self.used.contains(name) || self.short && name == "vdst");
        self.fixed |= ones;
        self.mask |= checked;
        Ok(())
    }
}
