//! Hints of compiled kernels say what is so: what `s_delay_alu` names is there, at that distance, and makes a register
//! that the instruction reads; what `s_clause` counts are loads or stores side by side.
//!
//! All is read from the bytes.

use barewave::passes::Machine;
use barewave_isa::{
    AluDelay, AluDelays, ClauseKind, Decoder, Flags, Inst, Mode, OpInfo, Operand, Pipe, Reg, Target, op,
};

/// Hints of a kernel.
#[derive(Clone, Copy, Default, Debug)]
pub struct Hints {
    /// Results that instructions are told to wait for.
    pub delays: usize,
    /// Instructions in clauses.
    pub in_clauses: usize,
}

fn decoded(target: Target, code: &[u8]) -> Vec<Inst> {
    let decoder = Decoder::new(target, Mode::of(target));
    let (mut at, mut out) = (0, Vec::new());
    while at < code.len() {
        let raw = decoder.decode(&code[at..]).unwrap();
        out.push(raw.inst());
        at += raw.len();
    }
    out
}

fn registers(list: &[Operand]) -> Vec<Reg> {
    list.iter().filter_map(|o| o.regs()).flat_map(|r| r.iter()).collect()
}

/// Registers that an instruction reads, those of a destination that it changes included.
fn read(info: &OpInfo, i: &Inst) -> Vec<Reg> {
    let tied = i.dsts.iter().zip(info.dsts).filter(|(_, slot)| slot.read).map(|(o, _)| *o);
    registers(&i.srcs.iter().copied().chain(tied).collect::<Vec<_>>())
}

fn transcendental(info: &OpInfo) -> bool {
    info.pipe == Pipe::Trans || info.flags.has(Flags::TRANS)
}

fn vector(info: &OpInfo) -> bool {
    matches!(info.pipe, Pipe::Valu | Pipe::Matrix) && !transcendental(info)
}

/// Checks a kernel, and tells how many hints it has.
pub fn check(m: &Machine) -> Hints {
    let target = m.function.target;
    let code = decoded(target, &m.emitted.code);
    let info = |i: &Inst| target.op(i.op).unwrap();
    let mut found = Hints::default();
    for (at, inst) in code.iter().enumerate() {
        let Some(Operand::Imm(said)) = inst.srcs.first().copied() else { continue };
        match inst.op {
            op::S_DELAY_ALU => {
                let said = AluDelays::of_immediate(said).unwrap();
                assert_ne!(said.first, AluDelay::Nothing);
                let skip = usize::from(said.skip);
                for (subject, delay) in [(at + 1, said.first), (at + 1 + skip, said.second)] {
                    if delay != AluDelay::Nothing {
                        names_a_result(target, &code, subject, delay);
                        found.delays += 1;
                    }
                }
                assert!(code[at..=at + 1 + skip].iter().all(|i| !info(i).flags.has(Flags::BRANCH)));
            }
            op::S_CLAUSE => {
                let all = &code[at + 1..at + 2 + said as usize];
                assert!((2..=target.longest_clause()).contains(&all.len()));
                let kind = target.clause_kind(all[0].op);
                assert!(matches!(kind, Some(ClauseKind::Scalar | ClauseKind::Memory(_))));
                for i in all {
                    assert_eq!(target.clause_kind(i.op), kind, "{}", info(i).name);
                    assert_eq!(info(i).flags.has(Flags::STORE), info(&all[0]).flags.has(Flags::STORE));
                }
                found.in_clauses += all.len();
            }
            _ => {}
        }
    }
    found
}

/// The result that instruction `subject` is told to wait for is one that it reads.
fn names_a_result(target: Target, code: &[Inst], subject: usize, delay: AluDelay) {
    let info = |i: usize| target.op(code[i].op).unwrap();
    let who = format!("{target}: {delay:?} of instruction {subject}, {}", info(subject).name);
    let read = read(info(subject), &code[subject]);
    let (mut left, counted): (u8, fn(&OpInfo) -> bool) = match delay {
        AluDelay::Vector(n) => (n, vector),
        AluDelay::Trans(n) => (n, transcendental),
        AluDelay::Scalar(_) => (1, |i| i.pipe == Pipe::Salu),
        AluDelay::Accumulator | AluDelay::Nothing => panic!("{who}: never said"),
    };
    let mut overwritten: Vec<Reg> = Vec::new();
    for i in (0..subject).rev() {
        let written = registers(&code[i].dsts);
        if counted(info(i)) {
            left -= 1;
            let makes = |r: &Reg| written.contains(r) && !overwritten.contains(r);
            if left == 0 && read.iter().any(makes) {
                return;
            }
            // clocks are told of a scalar result, not how many instructions back it is
            left += u8::from(left == 0 && matches!(delay, AluDelay::Scalar(_)));
            assert!(left > 0, "{who}: {} makes nothing that it reads", info(i).name);
        }
        overwritten.extend(written);
    }
    panic!("{who}: there is nothing so far back");
}
