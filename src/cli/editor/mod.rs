//! What editors get: the language server, and the grammar for highlighting.

pub mod grammar;
pub mod lsp;
mod text;
