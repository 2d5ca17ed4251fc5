//! Matrix instructions: shapes, element types, and which lane, register and bits hold each element.
//!
//! [`MatrixOp::of`] describes an instruction of a target; [`Shape`] lists the places of all elements, as lanes of columns
//! and rows; a [`Fragment`] is the same mapping in the form that kernels compute with: (row, column) of an element as
//! a sum over the bits of its lane and of its position in the lane.

mod describe;
mod fragment;
mod layout;

pub use describe::describe;
pub use fragment::{Fragment, Step};
pub use layout::{Column, Shape};

pub use crate::model::schema::{Elem, Layout};

use crate::model::action::Action;
use crate::{Op, Target};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

impl Elem {
    /// Bits of an element.
    pub fn bits(self) -> u32 {
        match self {
            Elem::F64 => 64,
            Elem::F32 | Elem::Xf32 | Elem::I32 => 32,
            Elem::F16 | Elem::Bf16 => 16,
            Elem::Fp8 | Elem::Bf8 | Elem::I8 | Elem::U8 => 8,
            Elem::Fp6 | Elem::Bf6 => 6,
            Elem::Fp4 | Elem::I4 | Elem::U4 => 4,
        }
    }
    /// Types in the order of the numbers by which CBSZ and BLGP of f8f6f4 instructions name them.
    const FORMATS: [Elem; 5] = [Elem::Fp8, Elem::Bf8, Elem::Fp6, Elem::Bf6, Elem::Fp4];

    /// Type that CBSZ and BLGP of f8f6f4 instructions name by number.
    pub fn of_format(n: usize) -> Option<Elem> {
        Elem::FORMATS.get(n).copied()
    }
    /// The number by which CBSZ and BLGP name the type; none where they cannot.
    pub fn format(self) -> Option<i32> {
        (0..).zip(Elem::FORMATS).find(|(_, e)| *e == self).map(|(n, _)| n)
    }
}

/// A matrix instruction on a target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MatrixOp {
    /// Sizes and layout.
    pub shape: Shape,
    /// Type of A's elements. Of f8f6f4 instructions the modifiers name it; here it is the 8-bit one.
    pub a: Elem,
    /// Type of B's elements.
    pub b: Elem,
    /// Type of the elements of C and D.
    pub d: Elem,
}

/// Which operand of a matrix instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// Rows i, columns k (of a sparse A its stored elements).
    A,
    /// Rows k, columns j.
    B,
    /// Rows i, columns j: C and D.
    D,
}

impl MatrixOp {
    /// True for matrix products, on whatever target.
    pub fn is_matrix(op: Op) -> bool {
        matches!(op.action(), Action::Matrix(_))
    }

    /// The instruction as the target has it in waves of `lanes` lanes; `None` for other instructions, those that the target
    /// does not have, and gfx1250's WMMA, whose layouts are not known.
    pub fn of(target: Target, op: Op, lanes: usize) -> Option<MatrixOp> {
        let Action::Matrix(p) = op.action() else { return None };
        target.op(op)?;
        let layout = if p.mfma { Layout::Mfma } else { target.info().wmma? };
        let shape = Shape {
            layout,
            lanes,
            m: usize::from(p.m),
            n: usize::from(p.n),
            k: usize::from(p.k),
            blocks: usize::from(p.blocks),
            sparse: p.sparse,
            split8: p.formats,
        };
        Some(MatrixOp { shape, a: p.a, b: p.b, d: p.d })
    }

    /// The instruction with factors of types that its modifiers name: any two of f8f6f4's, integers of 4 bits with signs or without; the same
    /// where they name none, or not these.
    pub fn multiplying(self, a: Elem, b: Elem) -> MatrixOp {
        let nibbles = |e: Elem| matches!(e, Elem::I4 | Elem::U4);
        match (a.format(), b.format()) {
            (Some(_), Some(_)) if self.shape.split8 => MatrixOp { a, b, ..self },
            _ if [self.a, self.b, a, b].into_iter().all(nibbles) => MatrixOp { a, b, ..self },
            _ => self,
        }
    }

    /// Where an operand's elements are. Blocks follow one another along i (A, D) and j (B).
    pub fn fragment(&self, operand: Operand) -> Option<Fragment> {
        // Found out once: who compares ways to compute something asks again and again.
        static FOUND: RwLock<Option<HashMap<(MatrixOp, Operand), Option<Fragment>>>> = RwLock::new(None);
        let known = FOUND.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.as_ref().and_then(|map| map.get(&(*self, operand))) {
            return found.clone();
        }
        drop(known);
        let found = self.find(operand);
        let mut known = FOUND.write().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_default().insert((*self, operand), found.clone());
        found
    }

    fn find(&self, operand: Operand) -> Option<Fragment> {
        let s = &self.shape;
        let columns_of_a = if s.sparse { s.k / 2 } else { s.k };
        let (elem, runs, along, side) = match operand {
            Operand::A => (self.a, s.a(self.a), columns_of_a, s.m),
            Operand::B => (self.b, s.b(self.b), s.k, s.n),
            Operand::D => (self.d, s.d(self.d, false), s.m, s.n),
        };
        let mut places = Vec::with_capacity(runs.len() * side);
        for (at, run) in runs.iter().enumerate() {
            let (block, line) = (at / along, at % along);
            for i in 0..side {
                let element = match operand {
                    Operand::A => (block * side + i, line),
                    Operand::B => (line, block * side + i),
                    Operand::D => (block * s.m + line, i),
                };
                places.push((element, usize::from(run.lane) + i, usize::from(run.reg), u32::from(run.shift)));
            }
        }
        // A 16-bit result of gfx11 leaves every other half of a register alone.
        let spacing = match (operand, s.layout) {
            (Operand::D, Layout::Wmma11) => 32,
            _ => elem.bits(),
        };
        Fragment::from_places(&places, s.lanes, elem.bits(), spacing)
    }
}
