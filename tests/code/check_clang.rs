//! `barewave check` finds nothing in what clang compiles, without optimisation and with, for any target.

use crate::support::clang::{available, compile};
use barewave::codeobj::ElfFile;
use barewave::verify;
use barewave_isa::{Op, Target};
use rayon::prelude::*;

const KERNELS: &str = include_str!("kernels.cl");

const TARGETS: [&str; 16] = [
    "gfx803", "gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1030", "gfx1031", "gfx1100",
    "gfx1102", "gfx1150", "gfx1151", "gfx1200", "gfx1201",
];

/// One of each family, for the levels between which clang's code differs least.
const FAMILIES: [&str; 4] = ["gfx906", "gfx942", "gfx1030", "gfx1100"];

/// Waves of 64 where 32 are the rule; optimised.
const WAVE64: &str = "-mwavefrontsize64";

/// What of the kernels' matrix and dot instructions a target has.
fn features(t: Target) -> Vec<&'static str> {
    let has = |name: &str| Op::by_name(name).is_some_and(|op| t.has(op));
    [
        ("v_mfma_f32_16x16x16_f16", "-DHAS_MFMA"),
        ("v_mfma_i32_16x16x32_i8", "-DHAS_MFMA_942"),
        ("v_mfma_f64_16x16x4_f64", "-DHAS_MFMA_F64"),
        ("v_dot2_f32_f16", "-DHAS_DOT"),
        ("v_wmma_f32_16x16x16_f16", if t.info().architected_sgprs { "-DHAS_WMMA12" } else { "-DHAS_WMMA11" }),
    ]
    .into_iter()
    .filter(|f| has(f.0))
    .map(|f| f.1)
    .collect()
}

#[test]
fn nothing_is_found_in_clangs_code() {
    if !available() {
        return;
    }
    let usual = |t: &&'static str| ["-O0", "-O2"].map(|level| (*t, level));
    let other = |t: &&'static str| ["-O1", "-O3"].map(|level| (*t, level));
    let mut jobs: Vec<(&str, &str)> = TARGETS.iter().flat_map(usual).collect();
    jobs.extend(FAMILIES.iter().flat_map(other));
    let narrow = |t: &&&str| Target::parse(t).is_ok_and(|t| t.info().wave_size == 32);
    jobs.extend(TARGETS.iter().filter(narrow).flat_map(|t| [(*t, WAVE64)]));
    let failures: Vec<String> = jobs
        .par_iter()
        .flat_map(|&(name, level)| {
            let t = Target::parse(name).unwrap();
            let mut flags = features(t);
            flags.push(level);
            if level == WAVE64 {
                flags.push("-O2");
                flags.retain(|f| !f.contains("WMMA"));
            }
            let elf = compile(t, KERNELS, &flags);
            let file = ElfFile::parse(&elf).unwrap();
            let reports = verify::check(&file, &elf, None, &verify::Options::default()).unwrap();
            assert!(reports.len() >= 60, "{name} has {} kernels", reports.len());
            let mut out = Vec::new();
            for r in &reports {
                assert!(r.instructions > 0, "{name} {}", r.name);
                out.extend(r.findings.list.iter().map(|f| format!("{name} {level} {}: {f}", r.name)));
            }
            out
        })
        .collect();
    assert!(failures.is_empty(), "{} findings:\n{}", failures.len(), failures.join("\n"));
}
