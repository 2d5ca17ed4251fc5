//! Resolved operands.

/// Where an operand is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// No operand.
    #[default]
    None,
    /// Register row; `at` is the offset in elements.
    Vector,
    /// Scalar file; `at` is the index.
    Scalar,
    /// `value`.
    Const,
    /// `vccz`.
    Vccz,
    /// `execz`.
    Execz,
}

/// A resolved operand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Src {
    /// Where.
    pub kind: Kind,
    /// Offset or index.
    pub at: u32,
    /// Constant.
    pub value: u64,
}
