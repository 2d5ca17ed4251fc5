//! Machine code decoded once into micro-operations.
//!
//! The whole executable segment is swept linearly. Where bytes are no instruction, one dword becomes an
//! illegal-instruction operation and the sweep goes on behind it, so that data and padding between functions do no
//! harm. Branch targets are resolved to operation indices afterwards; computed jumps look their address up in a table
//! with one entry per dword.

use super::builder::Builder;
use super::code::Code;
use super::exec::{barrier, flow, lane, valu};
use super::lanes::Ty;
use super::machine::Machine;
use super::sem;
use super::spin;
use super::strict::facts::{Facts, facts};
use super::uop::{BRANCH, WAITS, blank};
use super::uop::{Batch, Kind, UOp};
use super::vopd;
use barewave_isa::action::{Action, Cross, Flow, Sync};
use barewave_isa::matrix::MatrixOp;
use barewave_isa::{Decoder, Mode, Op, Pipe, Raw, Target};
use std::sync::{Arc, OnceLock};

/// Decoded code of one executable segment, for one wave size.
pub struct Program {
    /// Its instructions by address.
    pub code: Code,
    /// The operations, in order of address.
    pub ops: Vec<UOp>,
    /// Lanes of a wave.
    pub lanes: usize,
    /// Executes runs of multiply-adds (`UOp::batch`).
    pub multiply_adds: Batch,
    /// What strict mode asks about each operation, made for the first launch that does.
    facts: OnceLock<Arc<Vec<Option<Facts>>>>,
    target: Target,
}

/// Longest run of operations executed in one call.
const MAX_BATCH: u16 = 1 << 10;

impl Program {
    /// What strict mode asks about each operation.
    pub fn facts(&self) -> Arc<Vec<Option<Facts>>> {
        let make = || {
            let of = |r: &Option<Raw>| facts(self.target, r.as_ref()?.inst(), self.lanes);
            Arc::new(self.code.raws.iter().map(of).collect())
        };
        self.facts.get_or_init(make).clone()
    }

    /// Decodes `bytes`, which are loaded at device address `base`.
    pub fn decode(m: &Machine, wave32: bool, base: u64, bytes: &[u8]) -> Program {
        let lanes = if wave32 { 32 } else { 64 };
        let true16 = m.target.info().true16;
        let decoder = Decoder::new(m.target, Mode { wave64: !wave32, true16 });
        let mut p = Program {
            code: Code { base, raws: Vec::new(), index: vec![u32::MAX; bytes.len() / 4 + 1] },
            ops: Vec::new(),
            lanes,
            multiply_adds: valu::handlers(m.host).multiply_adds,
            facts: OnceLock::new(),
            target: m.target,
        };
        let mut at = 0;
        let mut indexed = false;
        while at + 4 <= bytes.len() {
            p.code.index[at / 4] = p.ops.len() as u32;
            let raw = decoder.decode(&bytes[at..]).filter(|r| r.len() >= 4 && r.len() % 4 == 0);
            let len = raw.map_or(4, |r| r.len());
            let mut op = match raw {
                Some(r) => {
                    match r.op().action() {
                        Action::Cross(Cross::SetGprIdxOn) => indexed = true,
                        Action::Cross(Cross::SetGprIdxOff) => indexed = false,
                        _ => {}
                    }
                    let b = Builder { m, lanes, raw: r, inst: r.inst(), pc: at as u32, base };
                    let built = match r.op().action() {
                        Action::Pair(..) => vopd::lower(&b, m.spare(lanes)),
                        _ => b.build(),
                    };
                    built.unwrap_or_else(|e| b.refuse(e))
                }
                None => blank(flow::illegal, at as u32, len as u8),
            };
            if indexed && op.types != [Ty::None; 4] {
                op.inner = Some(op.run);
                op.run = lane::indexed;
                op.batch = 0;
            }
            p.ops.push(op);
            p.code.raws.push(raw);
            at += len;
        }
        // Falling off the end is a fault too.
        p.code.index[bytes.len() / 4] = p.ops.len() as u32;
        p.ops.push(blank(flow::illegal, bytes.len() as u32, 4));
        p.code.raws.push(None);
        for i in (0..p.ops.len() - 1).rev() {
            if p.ops[i].batch > 0 {
                p.ops[i].batch = p.ops[i + 1].batch.saturating_add(1).min(MAX_BATCH);
            }
        }
        for i in 0..p.ops.len() {
            if p.ops[i].src[1].kind == Kind::None && p.ops[i].access.flags == BRANCH {
                let target = p.ops[i].src[1].value;
                let target = p.code.index_of(target);
                p.ops[i].imm = target.map_or(flow::NOWHERE, |t| t as i64);
                if target.is_some_and(|t| t <= i && spin::leaves(m.target, lanes, &p.code.raws[t..=i]).is_some()) {
                    p.ops[i].access.flags |= WAITS;
                    p.ops[i].dst2 = target.map_or(0, |t| i - t + 1) as u32;
                }
            }
        }
        p
    }

    /// True when the operation is a vector instruction (of the ALU, memory, LDS or export).
    pub fn is_vector(&self, ip: usize) -> bool {
        let info = self.code.raws.get(ip).copied().flatten().and_then(|r| self.target.op(r.op()));
        info.is_some_and(|i| !matches!(i.pipe, Pipe::Salu | Pipe::Smem | Pipe::Branch))
    }

    fn action(&self, ip: usize) -> Option<&'static Action> {
        self.code.raws.get(ip)?.as_ref().map(|r| r.op().action())
    }

    /// True when executing the operation changes nothing: waits and hints.
    pub fn is_idle(&self, ip: usize) -> bool {
        matches!(self.action(ip), Some(Action::Flow(Flow::Nothing)))
    }

    /// True when the operation does nothing but meet the other waves of the workgroup, or tell them of it.
    pub fn is_meeting(&self, ip: usize) -> bool {
        match self.action(ip) {
            Some(Action::Sync(Sync::Barrier)) => true,
            Some(Action::Sync(Sync::BarrierSignal | Sync::BarrierWait)) => barrier::is_of_workgroup(&self.ops[ip]),
            _ => false,
        }
    }
}

/// True when the instruction that `bytes` begin with has a handler for its operands and modifiers; `None` where none is
/// encoded there, or the target is not emulated.
pub fn executes(target: Target, wave32: bool, bytes: &[u8]) -> Option<bool> {
    let program = Program::decode(&Machine::new(target)?, wave32, 0, bytes);
    program.code.raws.first()?.as_ref()?;
    Some(program.ops[0].run as *const () != flow::unimplemented as *const ())
}

/// True when an operation has a handler.
pub fn implements(target: Target, op: Op) -> bool {
    match op.action() {
        Action::Pair(Some(x), Some(y)) => [*x, *y].iter().all(|half| sem::of(*half, false).is_some()),
        Action::Pair(..) | Action::Graphics | Action::Later => false,
        Action::Memory(m) => m.modelled,
        Action::Matrix(_) => MatrixOp::of(target, op, target.info().wave_size as usize).is_some(),
        _ => true,
    }
}
