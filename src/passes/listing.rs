//! A compiled kernel as assembly text: header, labels, comments that name the source operators.

use super::Machine;
use super::emit::lower_inst;
use crate::mir::{Function, MInst, Note, Opnd};
use barewave_isa::Pipe;
use std::fmt::Write;

/// The column behind which notes stand, from an instruction's first on.
const NOTES: usize = 68;

/// The kernel in LLVM's assembly syntax. Lines that start with `;` are comments.
pub fn listing(m: &Machine) -> String {
    let f = &m.function;
    let u = &m.usage;
    let mut out = String::new();
    let _ = writeln!(out, "; {}", f.comment);
    let _ = writeln!(
        out,
        "; {}: {} instructions, {} bytes, {} VGPRs, {} AGPRs, {} SGPRs, {} bytes of LDS, {} workitems",
        f.target.info().name,
        m.emitted.insts,
        m.emitted.code.len(),
        u.vgprs,
        u.agprs,
        u.sgprs,
        f.lds_bytes,
        f.workgroup_size
    );
    if f.blocks.iter().flat_map(|b| &b.insts).any(|i| i.note.of.is_some()) {
        let _ = writeln!(out, "; A[m,k], B[k,n], C[m,n]: an element of the workgroup's tile, that of its first lane");
    }
    let _ = writeln!(out, "\t.globl\t{0}\n\t.p2align\t8\n\t.type\t{0},@function\n{0}:", f.name);
    for (b, block) in f.blocks.iter().enumerate() {
        if !block.comment.is_empty() {
            let _ = writeln!(out, "\t; {}", block.comment);
        }
        if b > 0 {
            let _ = writeln!(out, "{}:", label(f, b));
        }
        for inst in &block.insts {
            let (text, note) = (text(f, inst), note(f, inst));
            let _ = match note.is_empty() {
                true => writeln!(out, "\t{text}"),
                false => writeln!(out, "\t{text:NOTES$} ; {note}"),
            };
        }
    }
    let _ = writeln!(out, ".L{0}_func_end:\n\t.size\t{0}, .L{0}_func_end-{0}\n", f.name);
    out
}

fn label(f: &Function, block: usize) -> String {
    format!(".L{}_{}", f.name, f.blocks[block].name)
}

/// What is said of an instruction: of elements only by those that move or multiply them.
fn note(f: &Function, inst: &MInst) -> Note {
    let acts = inst.info(f.target).is_some_and(|i| matches!(i.pipe, Pipe::Lds | Pipe::Vmem | Pipe::Matrix));
    if acts { inst.note } else { Note { of: None, ..inst.note } }
}

/// One instruction; branches name their labels.
fn text(f: &Function, inst: &MInst) -> String {
    let target = inst.srcs.iter().find_map(|s| if let Opnd::Block(b) = s { Some(b.0 as usize) } else { None });
    if let (Some(b), Some(info)) = (target, inst.info(f.target)) {
        return format!("{} {}", info.name, label(f, b));
    }
    match lower_inst(inst, |_| 0) {
        Some(i) => i.display(f.target).to_string(),
        None => f.inst_text(inst),
    }
}
