//! Why a model cannot be compiled.

/// Why a model cannot be turned into a fused graph. Each message says where and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// No such operator.
    #[error("node `{node}`: operator {op} is not supported{hint}")]
    Operator {
        /// The node's name.
        node: String,
        /// The operator, with its domain.
        op: String,
        /// What could be meant or done instead; empty, or starts with a semicolon.
        hint: String,
    },
    /// An operator is used in a way that is wrong or not supported.
    #[error("node `{node}` ({op}): {what}")]
    Node {
        /// The node's name.
        node: String,
        /// The operator.
        op: String,
        /// What is wrong, and what is supported.
        what: String,
    },
    /// Something about the model as a whole.
    #[error("{0}")]
    Model(String),
    /// A fused graph that breaks its own rules: a mistake in barewave.
    #[error("internal error after {pass}: {what}; please report it with the model")]
    Internal {
        /// The pass that made it.
        pass: &'static str,
        /// The broken rule.
        what: String,
    },
}

/// What operators report; the node's name is added by their caller.
pub(crate) type Res<T> = Result<T, String>;
