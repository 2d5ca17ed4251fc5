//! The table generator: what adding a target takes, and what mistakes are reported as.

#[path = "../build/mod.rs"]
mod generator;

use generator::text::Sources;
use generator::{Output, generate};
use std::path::Path;

fn tables() -> (Sources, String) {
    generator::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tables")).expect("the tables")
}

/// What is made of the tables with a file more.
fn with(section: &str, text: &str) -> Result<Output, String> {
    let (mut sources, latency) = tables();
    sources.add(section, "more.isa", text);
    generate(&sources, &latency).map_err(|e| e.to_string())
}

/// Where each target's rows stand, and how many there are.
fn ranges(output: &Output) -> Vec<(usize, usize)> {
    let (_, list) = output.text.split_once("TARGET_ROWS: &[(usize, usize)] = &[").expect("the ranges");
    let (list, _) = list.split_once("];").expect("their end");
    let number = |n: &str| n.trim_matches(['(', ')', ' ']).parse::<usize>().expect("a number");
    let pairs = list.split("), ").map(|p| p.split_once(", ").expect("a pair"));
    pairs.map(|(a, b)| (number(a), number(b))).collect()
}

/// A sibling of a target is one line.
#[test]
fn a_sibling_takes_one_line() {
    let made = with("targets", "target gfx1202 : gfx1201 code=navi45 products=rx9050 mach=0x7e").unwrap();
    assert!(made.text.contains("pub const GFX1202: Target"));
    let info =
        "TargetInfo { name: \"gfx1202\", parent: Some(\"gfx1201\"), code_name: \"navi45\", products: &[\"rx9050\"]";
    assert!(made.text.contains(info));
    let all = ranges(&made);
    let sibling = all.last().expect("targets");
    assert_eq!(all.iter().filter(|r| r == &sibling).count(), 4, "the rows of gfx1200, gfx1201 and gfx12-generic");
}

/// A generation is one file: its facts, formats, and what it adds to rows, moves and takes away.
#[test]
fn a_generation_takes_one_file() {
    let (mut sources, latency) = tables();
    let before = ranges(&generate(&sources, &latency).unwrap());
    let text = "
[targets]
target gfx1300 : gfx1200
  code=rdna5 products=none mach=0x7e lds=131072 -round_robin
[formats]
format VOPC gfx1300 4
  31:25=3d      op 24:17
  src1 16:9 VH?   src0 8:0 SRC?
[rows]
v_add_f32 | gfx1300 VOP2=3f VOP3 DPP DPP8 DPP3
v_sub_f32 | gfx1300 -
v_frob_f32  f32 <- f32 : clamp omod ; float rcp_f32 | gfx1300 VOP1=7d VOP3 DPP DPP8 DPP3
[properties]
class trans gfx1300 : v_frob_f32
[hazards]
frob | gfx1300 | op:v_frob_f32 | writes>reads | valu | 2 | nop
[names]
hwreg gfx1300 60=FROB
";
    sources.add_generation("gfx1300.isa", text).unwrap();
    let made = generate(&sources, &latency).unwrap();
    assert!(made.text.contains("pub const GFX1300: Target") && made.text.contains("pub const V_FROB_F32: Op"));
    assert!(made.text.contains("name: \"frob\"") && made.text.contains("(60, \"FROB\")"));
    let new = ranges(&made);
    assert_eq!(new.len(), before.len() + 1);
    let parent = made.text.split("pub const GFX1200: Target = Target::of(").nth(1).and_then(|t| t.split(')').next());
    let parent: usize = parent.and_then(|n| n.parse().ok()).expect("the number of gfx1200");
    // six rows of the new operation came, the six of v_sub_f32 went
    assert_eq!(new[new.len() - 1].1, before[parent].1);
    assert!(new[new.len() - 1].0 + 4 * new[new.len() - 1].1 <= made.rows.len());
    // nobody else has changed
    assert!(new.iter().zip(&before).all(|(a, b)| a.1 == b.1));
}

/// Mistakes name file, line and column, the word and what is wrong with it.
#[test]
fn mistakes_are_found_where_they_stand() {
    let cases = [
        ("targets", "target gfx1 : gfx0", "more.isa:1:15: `gfx0`: no such target above"),
        ("targets", "target gfx1 : gfx900 mach=zz", "more.isa:1:27: `zz`: expected a number"),
        ("targets", "target gfx1 : gfx900\n  wave=64 vgpr=1", "more.isa:2:11: `vgpr=1`: no such fact"),
        ("targets", "target gfx1 : gfx900 +fast", "more.isa:1:22: `+fast`: no such quirk"),
        (
            "targets",
            "target gfx1 : gfx900 -wgp_mode",
            "more.isa:1:22: `-wgp_mode`: the parent does not have this quirk",
        ),
        (
            "targets",
            "product mi50 gfx906",
            "more.isa:1:9: `mi50 gfx906`: expected `product NAME,.. : TARGET FACT=NUMBER ..`",
        ),
        ("targets", "product mi50 : gfx1 cus=4", "more.isa:1:16: `gfx1`: no such target above"),
        ("targets", "product mi51 : gfx906 cus=4", "more.isa:1:9: `mi51`: not among the target's `products=`"),
        ("targets", "product mi50 : gfx906 cus=4", "more.isa:1:9: `mi50`: a second line of this product"),
        (
            "targets",
            "product mi60 : gfx906 wave=32",
            "more.isa:1:23: `wave=32`: expected one of cus, shader_engines, dies, boost_mhz, dram_gbs, dram_share, mall_mib, l2_mib with a number behind `=`",
        ),
        (
            "targets",
            "machine gfx1 0x7e gfx900",
            "more.isa:1:9: `gfx1 0x7e gfx900`: expected `machine NAME NUMBER : TARGET [facts]`",
        ),
        ("formats", "format F gfx900 4\n  op 8:0  dst 300:0 V", "more.isa:2:15: `300:0`: expected bits like 31:26"),
        ("formats", "format F gfx900 4\n  op 8:0  dst 7:0 Q", "more.isa:2:19: `Q`: no such kind of field"),
        ("formats", "format F gfx1 4", "more.isa:1:10: `gfx1`: no such target"),
        (
            "rows",
            "v_x f32 <- f32 | gfx900 VOP1=1",
            "more.isa:1:1: `v_x f32 <- f32`: expected `; meaning` behind operands and words",
        ),
        ("rows", "v_x f32 <- f32 ; frob | gfx900 VOP1=1", "more.isa:1:18: `frob`: no such class of meaning"),
        (
            "rows",
            "v_x f32 <- f32 ; load 4 | gfx900 VOP1=1",
            "more.isa:1:1: `v_x`: no such class of meaning, and no memory encoding",
        ),
        ("rows", "v_x f32 <- f32 ; compare lt f31 | gfx900 VOP1=1", "more.isa:1:29: `f31`: expected a type"),
        (
            "rows",
            "v_x f32 <- f32 : clap ; int | gfx900 VOP1=1",
            "more.isa:1:18: `clap`: no such word; README.md beside the tables lists them",
        ),
        ("rows", "v_x f32 <- f32 ; int | gfx900 VOP1=zz", "more.isa:1:36: `zz`: expected a number in hex"),
        ("rows", "v_x f32 <- f32 ; int | gfx900 VOP1=fff", "more.isa:1:36: `fff`: the opcode does not fit"),
        ("rows", "v_x f32 <- f32 ; int | gfx900 VOP9=1", "more.isa:1:31: `VOP9`: no such format for this target"),
        ("rows", "v_x f32 <- f32 ; int | gfx900 DPP", "more.isa:1:31: `DPP`: needs VOP1, VOP2 or VOPC in the row"),
        ("rows", "v_add_f32 | gfx900 -", "more.isa:1:1: `v_add_f32 | gfx900 -`: never"),
        ("rows", "v_add_f32 | gfx803 -", "more.isa:1:13: `gfx803`: the operation has a column for this target already"),
        ("rows", "v_x f32 f32 ; int | gfx900 VOP1=1", "more.isa:1:5: `f32 f32`: expected `destinations <- sources`"),
        ("vopd", "v_x v_dual_x f32 <- q | X gfx1100=3f", "more.isa:1:21: `q`: expected r, v, k, m or t"),
        ("properties", "prop frob : v_*", "more.isa:1:6: `frob`: no such property"),
        ("properties", "prop dot : v_frob*", "more.isa:1:12: `v_frob*`: matches no operation"),
        (
            "hazards",
            "x | gfx900 | valu | writes | valu | 1 | nop",
            "more.isa:1:21: `writes`: expected one of writes>reads",
        ),
        ("names", "hwreg gfx900 99999=X", "more.isa:1:14: `99999`: expected a number that fits"),
    ];
    for (section, text, want) in cases {
        match with(section, text) {
            Ok(_) => assert!(want.ends_with("never"), "{text}: no mistake"),
            Err(e) => assert!(e.starts_with(want), "{text}\n  {e}\n  {want}"),
        }
    }
}
