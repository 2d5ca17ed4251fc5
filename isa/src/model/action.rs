//! What operations mean: every row of the tables says it, and the emulator matches on it totally.

use crate::Op;
use crate::model::generated;
pub use crate::model::generated::{Convert, Cross, Float, Float8, Flow, Fork, Int, Lds, Packed, Salu, Sync};
use crate::model::schema::effect;
pub use crate::model::schema::{
    Address, Atomic, Comparison, Elem, Memory, Number, Part, Product, Scaled, Space, Transfer,
};

/// What an operation does. The enums inside are made of the rows: one variant for each meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Integers and bits, lane by lane.
    Int(Int),
    /// Floats, lane by lane.
    Float(Float),
    /// Another number format, lane by lane.
    Convert(Convert),
    /// Pairs of numbers and dot products, lane by lane.
    Packed(Packed),
    /// 8-bit floats, lane by lane.
    Float8(Float8),
    /// A lane bit from two numbers.
    Compare {
        /// What must hold.
        relation: Comparison,
        /// Of what.
        number: Number,
        /// EXEC is written too.
        exec: bool,
    },
    /// A lane bit from the class of a float and a mask of classes.
    Classify {
        /// Float type.
        number: Number,
        /// EXEC is written too.
        exec: bool,
    },
    /// Lanes exchange values, or registers are chosen when it runs.
    Cross(Cross),
    /// Scaled conversion.
    Scaled(Scaled),
    /// Scalar arithmetic.
    Salu(Salu),
    /// SCC from two scalars.
    ScalarCompare {
        /// What must hold.
        relation: Comparison,
        /// Of what.
        number: Number,
    },
    /// Where the wave goes on, state and hardware registers.
    Flow(Flow),
    /// Barriers and global wave sync.
    Sync(Sync),
    /// Forks, subvector loops, skipping.
    Fork(Fork),
    /// Loads, stores and atomics.
    Memory(Memory),
    /// Other uses of LDS and its crossbar.
    Lds(Lds),
    /// Matrix product.
    Matrix(Product),
    /// Dual issue of two operations; one that exists only as a half has no number.
    Pair(Option<Op>, Option<Op>),
    /// Of use to graphics only; not emulated.
    Graphics,
    /// Not emulated yet.
    Later,
}

impl Op {
    /// What the operation does.
    pub fn action(self) -> &'static Action {
        generated::OP_ACTIONS.get(usize::from(self.0)).unwrap_or(&Action::Later)
    }

    /// What it does to memory, if that is what it does.
    pub fn memory(self) -> Option<&'static Memory> {
        match self.action() {
            Action::Memory(m) => Some(m),
            _ => None,
        }
    }

    fn effect(self, bit: u8) -> bool {
        generated::OP_EFFECTS.get(usize::from(self.0)).is_some_and(|e| e & bit != 0)
    }

    /// Writes a part of its destination: one lane, or half a register.
    pub fn is_partial(self) -> bool {
        self.effect(effect::PARTIAL)
    }

    /// The low dword of its 64-bit result comes from low dwords only.
    pub fn is_split(self) -> bool {
        self.effect(effect::SPLIT)
    }

    /// Its 16-bit result leaves the upper half alone on targets where others clear it.
    pub fn keeps_half(self) -> bool {
        self.effect(effect::KEEP_HALF)
    }

    /// M0 is added to the number of one of its registers.
    pub fn is_indexed(self) -> bool {
        self.effect(effect::INDEXED)
    }

    /// Bitwise logic of scalars: what one source leaves undefined another can take out.
    pub fn is_bitwise(self) -> bool {
        self.effect(effect::BITWISE)
    }

    /// The same value in both sources gives a constant.
    pub fn cancels(self) -> bool {
        self.effect(effect::CANCELS)
    }
}
