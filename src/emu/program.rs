//! Machine code decoded once into micro-operations.
//!
//! The whole executable segment is swept linearly. Where bytes are no instruction, one dword becomes an
//! illegal-instruction operation and the sweep goes on behind it, so that data and padding between functions do no
//! harm. Branch targets are resolved to operation indices afterwards; computed jumps look their address up in a table
//! with one entry per dword.

use super::builder::Builder;
use super::exec::{flow, lane, valu};
use super::lanes::{Host, Rows, Ty};
use super::sem::{self, Form};
use super::strict::{Facts, facts};
use super::wave::{Batch, Kind, Quirks, Run, SINK, Src, UOp};
use crate::codeobj::Family;
use barewave_isa::action::{Action, Cross};
use barewave_isa::matrix::MatrixOp;
use barewave_isa::{Decoder, Mode, Op, Pipe, Quirk, Raw, Target};
use std::sync::{Arc, OnceLock};

/// Decoded code of one executable segment, for one wave size.
pub struct Program {
    /// Device address of its first byte.
    pub base: u64,
    /// The operations, in order of address.
    pub ops: Vec<UOp>,
    /// What they were decoded from.
    pub raws: Vec<Option<Raw>>,
    /// Operation that starts at each dword, or `u32::MAX`.
    index: Vec<u32>,
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

/// Rows behind the registers, for handlers.
const SPARE_ROWS: usize = 1;

/// Facts that decoding needs.
#[derive(Clone, Copy)]
pub struct Machine {
    /// The target.
    pub target: Target,
    /// Its generation.
    pub family: Family,
    /// Host instruction set for kernels.
    pub host: Host,
    /// VGPR rows, after which AGPR rows follow.
    pub vgprs: u32,
    /// AGPR rows.
    pub agprs: u32,
}

impl Machine {
    /// The machine of a target on this host.
    pub fn new(target: Target) -> Option<Machine> {
        let info = target.info();
        let family = Family::of_mach(info.elf_mach)?;
        let (vgprs, agprs) = (info.max_vgprs.max(256), info.max_agprs);
        Some(Machine { target, family, host: Host::detect(), vgprs, agprs })
    }
    /// Rows of a register file.
    pub fn rows(&self) -> usize {
        (self.vgprs + self.agprs) as usize + SPARE_ROWS
    }
    /// Element offset of a row that no register uses.
    pub fn spare(&self, lanes: usize) -> u32 {
        (self.rows() - SPARE_ROWS) as u32 * lanes as u32
    }
    /// Generation details for handlers.
    pub fn quirks(&self) -> Quirks {
        let info = self.target.info();
        Quirks {
            half_crossbar: info.has(Quirk::HalfCrossbar),
            resource: info.resource,
            flat_scratch_sizes: info.has(Quirk::FlatScratchSizes),
            fnuz: info.fnuz,
            fixed_modes: !info.has(Quirk::IeeeMode),
            flat_scratch_hwregs: info.has(Quirk::FlatScratchHwregs),
        }
    }
}

impl Program {
    /// What strict mode asks about each operation.
    pub fn facts(&self) -> Arc<Vec<Option<Facts>>> {
        let make = || {
            let of = |r: &Option<Raw>| facts(self.target, r.as_ref()?.inst(), self.lanes);
            Arc::new(self.raws.iter().map(of).collect())
        };
        self.facts.get_or_init(make).clone()
    }

    /// Decodes `bytes`, which are loaded at device address `base`.
    pub fn decode(m: &Machine, wave32: bool, base: u64, bytes: &[u8]) -> Program {
        let lanes = if wave32 { 32 } else { 64 };
        let true16 = m.target.info().true16;
        let decoder = Decoder::new(m.target, Mode { wave64: !wave32, true16 });
        let mut p = Program {
            base,
            ops: Vec::new(),
            raws: Vec::new(),
            index: vec![u32::MAX; bytes.len() / 4 + 1],
            lanes,
            multiply_adds: valu::handlers(m.host).multiply_adds,
            facts: OnceLock::new(),
            target: m.target,
        };
        let mut at = 0;
        let mut indexed = false;
        while at + 4 <= bytes.len() {
            p.index[at / 4] = p.ops.len() as u32;
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
                    b.build().unwrap_or_else(|e| b.refuse(e))
                }
                None => blank(flow::illegal, at as u32, len as u8),
            };
            if indexed && op.types != [Ty::None; 4] {
                op.inner = Some(op.run);
                op.run = lane::indexed;
                op.batch = 0;
            }
            p.ops.push(op);
            p.raws.push(raw);
            at += len;
        }
        // Falling off the end is a fault too.
        p.index[bytes.len() / 4] = p.ops.len() as u32;
        p.ops.push(blank(flow::illegal, bytes.len() as u32, 4));
        p.raws.push(None);
        for i in (0..p.ops.len() - 1).rev() {
            if p.ops[i].batch > 0 {
                p.ops[i].batch = p.ops[i + 1].batch.saturating_add(1).min(MAX_BATCH);
            }
        }
        for i in 0..p.ops.len() {
            if p.ops[i].src[1].kind == Kind::None && p.ops[i].access.flags == BRANCH {
                let target = p.ops[i].src[1].value;
                p.ops[i].imm = p.index_of(target).map_or(flow::NOWHERE, |t| t as i64);
            }
        }
        p
    }

    /// Operation at a device address.
    pub fn index_of(&self, addr: u64) -> Option<usize> {
        let offset = addr.checked_sub(self.base).filter(|o| o % 4 == 0)?;
        self.index.get(usize::try_from(offset / 4).ok()?).copied().filter(|&i| i != u32::MAX).map(|i| i as usize)
    }

    /// True when the operation is a vector instruction (of the ALU, memory, LDS or export).
    pub fn is_vector(&self, ip: usize) -> bool {
        let info = self.raws.get(ip).copied().flatten().and_then(|r| self.target.op(r.op()));
        info.is_some_and(|i| !matches!(i.pipe, Pipe::Salu | Pipe::Smem | Pipe::Branch))
    }

    /// Mnemonic of the instruction at a byte offset.
    pub fn name_at(&self, pc: u32) -> String {
        self.raw_at(pc).map_or(String::from("?"), |r| r.mnemonic().to_owned())
    }

    /// Text of the instruction at a byte offset, empty when there is none.
    pub fn text_at(&self, pc: u32) -> String {
        self.raw_at(pc).map_or(String::new(), |r| r.to_string())
    }

    fn raw_at(&self, pc: u32) -> Option<Raw> {
        let i = *self.index.get(pc as usize / 4)?;
        *self.raws.get(i as usize)?
    }
}

/// `access.flags` of branches, until their targets are resolved.
pub const BRANCH: u16 = 1 << 14;

unsafe fn none(_: *mut u32, _: *const u32, _: *const u32, _: *const u32, _: u64, _: &Rows) -> u64 {
    0
}

/// An operation without operands.
pub fn blank(run: Run, pc: u32, len: u8) -> UOp {
    UOp {
        run,
        kernel: none,
        rows: valu::rows(&[Src::default(); 4], 64),
        batch: 0,
        src: [Src::default(); 4],
        dst: SINK,
        dst2: SINK,
        imm: 0,
        pc,
        len,
        n: 0,
        form: Form::Map,
        float: false,
        types: [Ty::None; 4],
        access: Default::default(),
        ext: None,
        matrix: None,
        dual: None,
        inner: None,
        round: None,
        convert: None,
        typed: None,
    }
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
