//! `targets.isa` to the static `TARGETS` and `MACHINES` and the `Target::GFX...` constants.

use super::schema::{Layout, Quirk, Resource};
use super::text::{Line, Result};
use std::{collections::BTreeMap, fmt::Write};

/// A word and where it stands.
#[derive(Clone)]
pub struct Word {
    pub value: String,
    line: Line,
}

/// One target after inheritance.
pub struct Target {
    pub name: String,
    pub parent: Option<String>,
    pub words: BTreeMap<String, Word>,
    quirks: Vec<Quirk>,
    /// What products have otherwise: name, facts.
    products: Vec<(String, Vec<(&'static str, f64)>)>,
    /// Where the target begins.
    line: Line,
}

/// A processor that has no table of its own.
struct Machine {
    name: String,
    mach: u64,
    /// Whose facts about code objects hold.
    like: usize,
    /// Its tables serve too.
    decodes: bool,
}

/// All that the file says.
#[derive(Default)]
pub struct Targets {
    pub list: Vec<Target>,
    machines: Vec<Machine>,
}

/// Reads the target file.
pub fn parse(lines: &[Line]) -> Result<Targets> {
    let mut out = Targets::default();
    for line in lines {
        if let Some(rest) = line.text.strip_prefix("target ") {
            let target = target(line, rest, &out.list)?;
            out.list.push(target);
        } else if let Some(rest) = line.text.strip_prefix("product ") {
            product(line, rest, &mut out.list)?;
        } else if let Some(rest) = line.text.strip_prefix("machine ") {
            let machine = machine(line, rest, &out.list)?;
            out.machines.push(machine);
        } else {
            facts(line, &line.text, &mut out.list)?;
        }
    }
    Ok(out)
}

/// `NAME [: PARENT] [word ..]`
fn target(line: &Line, rest: &str, list: &[Target]) -> Result<Target> {
    let mut words = rest.split_whitespace();
    let name = words.next().ok_or_else(|| line.fail(rest, "expected a name"))?;
    if list.iter().any(|t| t.name == name) {
        return Err(line.fail(name, "a second target of this name"));
    }
    let mut new = Target {
        name: name.to_string(),
        parent: None,
        words: BTreeMap::new(),
        quirks: Vec::new(),
        products: Vec::new(),
        line: line.clone(),
    };
    let mut words = words.peekable();
    if words.next_if_eq(&":").is_some() {
        let parent = words.next().ok_or_else(|| line.fail(rest, "expected a parent behind `:`"))?;
        let from = list.iter().find(|t| t.name == parent).ok_or_else(|| line.fail(parent, "no such target above"))?;
        new.parent = Some(parent.to_string());
        new.words = from.words.clone();
        new.quirks = from.quirks.clone();
    }
    let mut one = [new];
    for word in words {
        fact(line, word, &mut one[0])?;
    }
    let [new] = one;
    Ok(new)
}

fn facts(line: &Line, text: &str, list: &mut [Target]) -> Result<()> {
    for word in text.split_whitespace() {
        let target = list.last_mut().ok_or_else(|| line.fail(word, "before the first `target`"))?;
        fact(line, word, target)?;
    }
    Ok(())
}

/// `key=value`, `+quirk` or `-quirk`.
fn fact(line: &Line, word: &str, target: &mut Target) -> Result<()> {
    let quirk = |name: &str| Quirk::of(name).ok_or_else(|| line.fail(word, "no such quirk"));
    if let Some(name) = word.strip_prefix('+') {
        let q = quirk(name)?;
        if target.quirks.contains(&q) {
            return Err(line.fail(word, "the target has this quirk already"));
        }
        target.quirks.push(q);
    } else if let Some(name) = word.strip_prefix('-') {
        let q = quirk(name)?;
        let at = target.quirks.iter().position(|x| *x == q);
        target.quirks.remove(at.ok_or_else(|| line.fail(word, "the parent does not have this quirk"))?);
    } else {
        let (key, value) =
            word.split_once('=').ok_or_else(|| line.fail(word, "expected key=value, +quirk or -quirk"))?;
        if !FIELDS.iter().any(|(k, ..)| *k == key) && !OTHERS.contains(&key) {
            return Err(line.fail(word, "no such fact"));
        }
        target.words.insert(key.to_string(), Word { value: value.to_string(), line: line.clone() });
    }
    Ok(())
}

/// Facts that products may have otherwise than their target.
const OF_PRODUCTS: [&str; 8] =
    ["cus", "shader_engines", "dies", "boost_mhz", "dram_gbs", "dram_share", "mall_mib", "l2_mib"];

/// `NAME,.. : TARGET FACT=NUMBER ..`
fn product(line: &Line, rest: &str, list: &mut [Target]) -> Result<()> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [names, ":", of, facts @ ..] = &words[..] else {
        return Err(line.fail(rest, "expected `product NAME,.. : TARGET FACT=NUMBER ..`"));
    };
    let target = list.iter_mut().find(|t| t.name == *of).ok_or_else(|| line.fail(of, "no such target above"))?;
    let mut read = Vec::new();
    for fact in facts {
        let parts = fact.split_once('=').and_then(|(key, value)| {
            let key = OF_PRODUCTS.into_iter().find(|k| *k == key)?;
            Some((key, value.parse().ok().filter(|v| *v >= 0.0 && *v < 1e6)?))
        });
        read.push(parts.ok_or_else(|| {
            line.fail(fact, &format!("expected one of {} with a number behind `=`", OF_PRODUCTS.join(", ")))
        })?);
    }
    for name in names.split(',') {
        if !target.get("products")?.value.split(',').any(|known| known == name) {
            return Err(line.fail(name, "not among the target's `products=`"));
        }
        if target.products.iter().any(|p| p.0 == name) {
            return Err(line.fail(name, "a second line of this product"));
        }
        target.products.push((name.to_string(), read.clone()));
    }
    Ok(())
}

/// `NAME MACH : TARGET [facts]`
fn machine(line: &Line, rest: &str, list: &[Target]) -> Result<Machine> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let (name, mach, like, decodes) = match words[..] {
        [name, mach, ":", like] => (name, mach, like, true),
        [name, mach, ":", like, "facts"] => (name, mach, like, false),
        _ => return Err(line.fail(rest, "expected `machine NAME NUMBER : TARGET [facts]`")),
    };
    let at = list.iter().position(|t| t.name == like).ok_or_else(|| line.fail(like, "no such target above"))?;
    Ok(Machine { name: name.to_string(), mach: line.hex(mach.trim_start_matches("0x"))?, like: at, decodes })
}

/// How the text of a fact becomes a value of `TargetInfo`.
#[derive(Clone, Copy)]
enum As {
    Number,
    Flag,
    Words,
    Name,
    Text,
    Layout,
    Resource,
    Waits,
    Counters,
    Pieces,
    Padding,
}

/// Facts that are fields of `TargetInfo`: word, field, form.
#[rustfmt::skip]
const FIELDS: &[(&str, &str, As)] = &[
    ("code", "code_name", As::Text),
    ("products", "products", As::Words),
    ("mach", "elf_mach", As::Number),
    ("features", "elf_features", As::Number),
    ("generic_version", "generic_version", As::Number),
    ("generic", "generic", As::Name),
    ("wave", "wave_size", As::Number),
    ("both", "wave32_and_64", As::Flag),
    ("vgprs", "vgprs_per_simd", As::Number),
    ("granule", "vgpr_granule", As::Number),
    ("max_vgprs", "max_vgprs", As::Number),
    ("agprs", "max_agprs", As::Number),
    ("unified", "unified_agprs", As::Flag),
    ("sgprs", "max_sgprs", As::Number),
    ("sgpr_file", "sgprs_per_simd", As::Number),
    ("barriers", "barriers", As::Number),
    ("waves", "max_waves", As::Number),
    ("cus", "cus", As::Number),
    ("simds", "simds", As::Number),
    ("lds", "lds_bytes", As::Number),
    ("lds_granule", "lds_granule", As::Number),
    ("bus", "constant_bus", As::Number),
    ("vop3_literal", "vop3_literal", As::Flag),
    ("true16", "true16", As::Flag),
    ("architected_sgprs", "architected_sgprs", As::Flag),
    ("architected_scratch", "architected_flat_scratch", As::Flag),
    ("packed_ids", "packed_workitem_ids", As::Flag),
    ("waits", "waits", As::Waits),
    ("counters", "counters", As::Counters),
    ("waitcnt", "waitcnt", As::Pieces),
    ("interlocked", "interlocked", As::Flag),
    ("tuple_align", "vgpr_tuple_align", As::Number),
    ("buffer_word3", "raw_buffer_word3", As::Number),
    ("scratch_word3", "scratch_buffer_word3", As::Number),
    ("device_load", "device_load", As::Number),
    ("device_store", "device_store", As::Number),
    ("device_atomic", "device_atomic", As::Number),
    ("resource", "resource", As::Resource),
    ("init_sgprs", "min_preloaded_sgprs", As::Number),
    ("user_sgprs", "max_user_sgprs", As::Number),
    ("user_sgpr_field", "user_sgpr_field", As::Number),
    ("desc_vgprs", "descriptor_vgprs", As::Number),
    ("desc_vgprs32", "descriptor_vgprs32", As::Number),
    ("icache", "icache_line", As::Number),
    ("inst_pref", "max_inst_pref", As::Number),
    ("padding", "code_padding", As::Padding),
    ("dpp_sgpr", "dpp_scalar_src1", As::Flag),
    ("fnuz", "fnuz", As::Flag),
    ("wmma", "wmma", As::Layout),
];

/// Facts that other parts of the generator read.
const OTHERS: &[&str] = &["codes", "vop1_in_vop3"];

impl Target {
    /// The word of a fact, which every target must have.
    pub fn get(&self, key: &str) -> Result<&Word> {
        self.words.get(key).ok_or_else(|| self.line.fail(&self.name, &format!("lacks {key}=")))
    }

    /// A fact that is yes or no.
    pub fn flag(&self, key: &str) -> Result<bool> {
        self.get(key)?.flag()
    }

    /// A fact that is a hexadecimal number.
    pub fn hex(&self, key: &str) -> Result<u64> {
        let word = self.get(key)?;
        word.line.hex(&word.value)
    }
}

impl Word {
    fn fail(&self, what: &str) -> super::text::Fail {
        self.line.fail(&self.value, what)
    }

    fn flag(&self) -> Result<bool> {
        match self.value.as_str() {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(self.fail("expected yes or no")),
        }
    }

    /// A decimal number, or a hexadecimal one behind `0x`.
    fn number(&self, text: &str) -> Result<u32> {
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| self.fail("expected a number"))
    }

    /// The value as Rust.
    fn code(&self, form: As) -> Result<String> {
        let text = self.value.as_str();
        Ok(match form {
            As::Number => self.number(text)?.to_string(),
            As::Flag => self.flag()?.to_string(),
            As::Text => format!("{text:?}"),
            As::Name if text == "none" => "None".to_string(),
            As::Name => format!("Some({text:?})"),
            As::Words if text == "none" => "&[]".to_string(),
            As::Words => format!("&{:?}", text.split(',').collect::<Vec<_>>()),
            As::Layout if text == "none" => "None".to_string(),
            As::Layout => {
                let layout = Layout::of(text).ok_or_else(|| self.fail("expected none, wmma11 or wmma12"))?;
                format!("Some({})", layout.code())
            }
            As::Resource => {
                Resource::of(text).ok_or_else(|| self.fail("expected gfx8, gfx10 or gfx11"))?.code().to_string()
            }
            As::Waits => match text {
                "waitcnt" => "WaitScheme::Waitcnt".to_string(),
                "vscnt" => "WaitScheme::WaitcntVscnt".to_string(),
                "split" => "WaitScheme::Split".to_string(),
                _ => return Err(self.fail("expected waitcnt, vscnt or split")),
            },
            As::Counters => self.counters()?,
            As::Pieces => self.pieces()?,
            As::Padding => self.padding()?,
        })
    }

    /// `vm` as Rust.
    fn counter(&self, name: &str) -> Result<String> {
        let (first, rest) = name.split_at_checked(1).ok_or_else(|| self.fail("expected a counter's name"))?;
        Ok(format!("Counter::{}{rest}", first.to_ascii_uppercase()))
    }

    /// `name:largest,..`
    fn counters(&self) -> Result<String> {
        let mut out = String::new();
        for c in self.value.split(',') {
            let (name, max) = c.split_once(':').ok_or_else(|| self.fail("expected counter:max,.."))?;
            let (counter, max) = (self.counter(name)?, self.number(max)?);
            let _ = write!(out, "CounterInfo {{ counter: {counter}, max: {max} }}, ");
        }
        Ok(format!("&[{out}]"))
    }

    /// `name:first+bits/first+bits,..`
    fn pieces(&self) -> Result<String> {
        let mut out = String::new();
        for c in self.value.split(',') {
            let (name, places) = c.split_once(':').ok_or_else(|| self.fail("expected counter:first bit+bits,.."))?;
            let _ = write!(out, "({}, &[", self.counter(name)?);
            for place in places.split('/') {
                let (first, bits) = place.split_once('+').ok_or_else(|| self.fail("expected first bit+bits"))?;
                let _ = write!(out, "({}, {}), ", self.number(first)?, self.number(bits)?);
            }
            out.push_str("]), ");
        }
        Ok(format!("&[{out}]"))
    }

    /// `none`, or an instruction and how many lines of the instruction cache it fills behind the code.
    fn padding(&self) -> Result<String> {
        if self.value == "none" {
            return Ok("None".to_string());
        }
        let (what, lines) =
            self.value.split_once(':').ok_or_else(|| self.fail("expected none, nop:N or code_end:N"))?;
        let word: u32 = match what {
            "nop" => 0xbf80_0000,
            "code_end" => 0xbf9f_0000,
            _ => return Err(self.fail("expected none, nop:N or code_end:N")),
        };
        Ok(format!("Some(({word:#x}, {}))", self.number(lines)?))
    }
}

impl Targets {
    /// Writes `TARGETS`, `MACHINES`, `TARGET_CODES` and the `Target::GFX...` constants.
    pub fn emit(&self, out: &mut String) -> Result<()> {
        out.push_str("pub(crate) static TARGETS: &[TargetInfo] = &[\n");
        for t in &self.list {
            let _ = write!(out, "TargetInfo {{ name: {:?}, parent: {:?}, ", t.name, t.parent);
            for (key, field, form) in FIELDS {
                let _ = write!(out, "{field}: {}, ", t.get(key)?.code(*form)?);
            }
            if let Some(generic) = t.words.get("generic").filter(|g| g.value != "none")
                && !self.list.iter().any(|t| t.name == generic.value)
            {
                return Err(generic.fail("no such target"));
            }
            let names = &t.get("products")?.value;
            let facts = names.split(',').map(|name| t.products.iter().find(|p| p.0 == name).map_or(&[][..], |p| &p.1));
            let _ = write!(out, "product_facts: &[{}], ", facts.map(|f| format!("&{f:?}, ")).collect::<String>());
            let quirks = t.quirks.iter().fold(0u64, |bits, q| bits | 1 << *q as u64);
            let _ = writeln!(out, "quirks: {quirks} }},");
        }
        out.push_str("];\npub(crate) static MACHINES: &[Machine] = &[\n");
        for m in &self.machines {
            let Machine { name, mach, like, decodes } = m;
            let _ = writeln!(
                out,
                "Machine {{ name: {name:?}, mach: {mach}, like: Target::of({like}), decodes: {decodes} }},"
            );
        }
        out.push_str("];\npub(crate) static TARGET_CODES: &[Codes] = &[");
        for t in &self.list {
            let codes = t.get("codes")?;
            let (first, rest) = codes.value.split_at_checked(1).ok_or_else(|| codes.fail("expected a map of codes"))?;
            let _ = write!(out, "Codes::{}{rest}, ", first.to_ascii_uppercase());
        }
        out.push_str("];\nimpl Target {\n");
        for (i, t) in self.list.iter().enumerate() {
            let name = t.name.to_uppercase().replace('-', "_");
            let _ = writeln!(
                out,
                "/// {} ({}).\npub const {name}: Target = Target::of({i});",
                t.name,
                t.get("code")?.value
            );
        }
        out.push_str("}\n");
        Ok(())
    }
}
