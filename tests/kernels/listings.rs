//! What listings say of a product's tile is so: behind a matrix instruction that says `C[row,column] += A[row,k] B[k,column]` the
//! registers of its factors hold what the last instructions that wrote them say they brought, in every round of the loop.

use crate::support::build::{Builder, int};
use crate::support::drawn;
use barewave::graph::{Options, fuse};
use barewave::kernels::lower;
use barewave::mir::{Function, MInst, Note, Opnd, Term};
use barewave::passes::listing::listing;
use barewave::passes::{Machine, compile};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::{Pipe, Reg, Target};
use std::collections::HashMap;

/// The first kernel of a product.
fn product(target: &str, dtype: DType, [m, n, k]: [usize; 3], turned: [bool; 2]) -> Machine {
    let mut b = Builder::new(17, 1);
    let names = [([m, k], turned[0]), ([k, n], turned[1])].map(|([rows, columns], turned)| {
        let shape = if turned { [columns, rows] } else { [rows, columns] };
        b.input_of(HostTensor::from_f64(dtype, &shape, &vec![0.0; rows * columns]))
    });
    let [a, x] = turned.map(|t| int(t.into()));
    let out = b.node("FusedMatMul", &[&names[0], &names[1]], &[("transA", a), ("transB", x)]);
    b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
    b.output(&out);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let target = Target::parse(target).unwrap();
    let kernels = lower(&graph, &graph.steps[0], target, &Default::default(), "product").unwrap();
    compile(kernels[0].function.clone()).unwrap()
}

fn registers(operands: &[Opnd]) -> Vec<Reg> {
    operands.iter().filter_map(|o| if let Opnd::P(r) = o { Some(*r) } else { None }).flat_map(|r| r.iter()).collect()
}

fn pipe(f: &Function, i: &MInst) -> Option<Pipe> {
    i.info(f.target).map(|info| info.pipe)
}

/// Instructions in the order of their execution, the rounds of loops twice.
fn executed(f: &Function) -> impl Iterator<Item = &MInst> {
    let loops = |name: &str| if name.ends_with("_steady") { 2 } else { 1 };
    f.blocks.iter().flat_map(move |b| (0..loops(&b.name)).flat_map(|_| &b.insts))
}

/// Checks a kernel; gives how many factors of products were found in registers that a load or a read from LDS has written.
fn check(m: &Machine, what: &str) -> usize {
    let f = &m.function;
    let (mut brought, mut found): (HashMap<Reg, (Note, usize)>, usize) = (HashMap::new(), 0);
    for i in executed(f) {
        let is_product = pipe(f, i) == Some(Pipe::Matrix) && i.note.of == Some(Term::C);
        for factor in if is_product { &i.srcs[..2] } else { &[] } {
            let own = registers(&[*factor]);
            let Some((note, dword)) = own.first().and_then(|r| brought.get(r)) else { continue };
            let (product, shown) = (i.note, f.inst_text(i));
            let beside = match note.of {
                Some(Term::A) => i32::from(product.row) - i32::from(note.row),
                Some(Term::B) => i32::from(product.column) - i32::from(note.column),
                _ => panic!("{what}: {shown} multiplies what {note} brought"),
            };
            // A load has neighbours side by side.
            assert!((0..=*dword as i32).contains(&beside), "{what}: {shown} after {note}");
            // What it multiplies is within what was brought: 16 bytes of each of up to four groups of lanes.
            let behind = i32::from(product.k) - i32::from(note.k);
            assert!((0..64).contains(&behind), "{what}: {shown} after {note}");
            found += 1;
        }
        let moves = matches!(pipe(f, i), Some(Pipe::Lds | Pipe::Vmem)) && i.note.of.is_some();
        for (n, r) in registers(&i.dsts).into_iter().enumerate() {
            match moves {
                true => brought.insert(r, (i.note, n)),
                false => brought.remove(&r),
            };
        }
    }
    found
}

/// Products of every way in which operands come to matrix instructions: through LDS and registers, transposed by loads, straight to LDS, and
/// without LDS where waves share the depth.
#[test]
fn elements_are_those_that_listings_name() {
    for target in ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"] {
        for dtype in [DType::F16, DType::BF16, DType::F32] {
            for turned in [[false, false], [false, true], [true, false], [true, true]] {
                for extents in [[512, 512, 512], [2048, 2048, 1024], [16, 1024, 2048], [100, 90, 70]] {
                    let what = format!("{target} {dtype} {extents:?} {turned:?}");
                    if !drawn(&format!("listing {what}")) {
                        continue;
                    }
                    let machine = product(target, dtype, extents, turned);
                    let found = check(&machine, &what);
                    let multiplies = machine.function.blocks.iter().flat_map(|b| &b.insts);
                    let products = multiplies.filter(|i| pipe(&machine.function, i) == Some(Pipe::Matrix)).count();
                    // Of some types factors pass the ALU on their way.
                    assert!(found >= products || extents[0] < 512, "{what}: {found} of {products}");
                }
            }
        }
    }
}

/// A pipelined loop says which stages stand beside each other, and each of its instructions in which one it is.
#[test]
fn stages_are_marked() {
    for target in ["gfx906", "gfx942", "gfx1030", "gfx1201"] {
        let text = listing(&product(target, DType::F16, [1024, 1024, 1024], [false, false]));
        let about = text.lines().find(|l| l.contains("stage 0 of iteration n, 1 of iteration n - 1"));
        let about = about.unwrap_or_else(|| panic!("{target}: no stages in\n{text}"));
        for stage in 0..about.matches("of iteration").count() {
            assert!(text.contains(&format!("; stage {stage}")), "{target}: no stage {stage} in\n{text}");
        }
        for element in ["A[0,0]", "B[0,0]"] {
            assert!(text.contains(&format!("; stage 0: {element}")), "{target}: no load of {element} in\n{text}");
        }
    }
}
