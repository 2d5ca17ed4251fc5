//! `targets.isa` to the static `TARGETS` array.

use crate::text::{Fail, Result, yes};
use std::{collections::BTreeMap, fmt::Write};

/// One target after inheritance.
pub struct Target {
    pub name: String,
    pub parent: Option<String>,
    pub words: BTreeMap<String, String>,
}

/// Reads the target file.
pub fn parse(file: &str, text: &str) -> Result<Vec<Target>> {
    let mut out: Vec<Target> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let at = |word: &str, what: &str| Fail::new(file, n + 1, word, what);
        let line = line.split('#').next().unwrap_or("").trim_end();
        let mut words = line.split_whitespace();
        if let Some(rest) = line.strip_prefix("target ") {
            let mut halves = rest.split(':').map(str::trim);
            let name = halves.next().unwrap_or("").to_string();
            let parent = halves.next().map(str::to_string);
            let words = match parent.as_deref() {
                None => BTreeMap::new(),
                Some(parent) => match out.iter().find(|t| t.name == parent) {
                    Some(t) => t.words.clone(),
                    None => return Err(at(parent, "no such target above")),
                },
            };
            out.push(Target { name, parent, words });
            continue;
        }
        for word in words.by_ref() {
            let (key, value) = word.split_once('=').ok_or_else(|| at(word, "expected key=value"))?;
            let target = out.last_mut().ok_or_else(|| at(word, "before the first `target`"))?;
            target.words.insert(key.to_string(), value.to_string());
        }
    }
    Ok(out)
}

/// Writes `static TARGETS: &[TargetInfo]` and the `Target::GFX...` constants.
pub fn emit(targets: &[Target], out: &mut String) -> Result<()> {
    out.push_str("pub(crate) static TARGETS: &[TargetInfo] = &[\n");
    for t in targets {
        let get = |key: &str| {
            t.words
                .get(key)
                .map(String::as_str)
                .ok_or_else(|| Fail::new("targets.isa", 0, &t.name, &format!("lacks {key}=")))
        };
        let flag = |key: &str| get(key).and_then(|v| yes("targets.isa", v));
        let products: Vec<String> = get("products")?.split(',').map(|p| format!("{p:?}")).collect();
        let mut counters = String::new();
        for c in get("counters")?.split(',') {
            let (name, max) =
                c.split_once(':').ok_or_else(|| Fail::new("targets.isa", 0, c, "expected counter:max"))?;
            let mut name = name.to_string();
            name[..1].make_ascii_uppercase();
            let _ = write!(counters, "CounterInfo {{ counter: Counter::{name}, max: {max} }}, ");
        }
        let waits = match get("waits")? {
            "waitcnt" => "Waitcnt",
            "vscnt" => "WaitcntVscnt",
            "split" => "Split",
            other => return Err(Fail::new("targets.isa", 0, other, "expected waitcnt, vscnt or split")),
        };
        let _ = writeln!(
            out,
            "TargetInfo {{ name: {:?}, code_name: {:?}, products: &[{}], elf_mach: {}, elf_features: {}, wave_size: {}, \
             wave32_and_64: {}, vgprs_per_simd: {}, vgpr_granule: {}, max_vgprs: {}, max_agprs: {}, unified_agprs: {}, \
             max_sgprs: {}, sgprs_per_simd: {}, barriers: {}, max_waves: {}, simds: {}, lds_bytes: {}, lds_granule: {}, constant_bus: {}, vop3_literal: {}, \
             architected_sgprs: {}, architected_flat_scratch: {}, packed_workitem_ids: {}, waits: WaitScheme::{waits}, \
             counters: &[{counters}], interlocked: {}, vgpr_tuple_align: {}, raw_buffer_word3: {}, min_preloaded_sgprs: {}, dpp_scalar_src1: {}, \
             fnuz: {} }},",
            t.name,
            get("code")?,
            products.join(", "),
            get("mach")?,
            get("features")?,
            get("wave")?,
            flag("both")?,
            get("vgprs")?,
            get("granule")?,
            get("max_vgprs")?,
            get("agprs")?,
            flag("unified")?,
            get("sgprs")?,
            get("sgpr_file")?,
            get("barriers")?,
            get("waves")?,
            get("simds")?,
            get("lds")?,
            get("lds_granule")?,
            get("bus")?,
            flag("vop3_literal")?,
            flag("architected_sgprs")?,
            flag("architected_scratch")?,
            flag("packed_ids")?,
            flag("interlocked")?,
            get("tuple_align")?,
            get("buffer_word3")?,
            get("init_sgprs")?,
            flag("dpp_sgpr")?,
            flag("fnuz")?,
        );
    }
    out.push_str("];\npub(crate) static TARGET_CODES: &[Codes] = &[");
    for t in targets {
        let mut name =
            t.words.get("codes").cloned().ok_or_else(|| Fail::new("targets.isa", 0, &t.name, "lacks codes="))?;
        name[..1].make_ascii_uppercase();
        let _ = write!(out, "Codes::{name}, ");
    }
    out.push_str("];\nimpl Target {\n");
    for (i, t) in targets.iter().enumerate() {
        let _ = writeln!(
            out,
            "/// {} ({}).\npub const {}: Target = Target({i});",
            t.name,
            t.words["code"],
            t.name.to_uppercase()
        );
    }
    out.push_str("}\n");
    Ok(())
}
