//! Assembly text to instructions and back.

pub(crate) mod alias;
pub(crate) mod constants;
pub(crate) mod legal;
pub(crate) mod lex;
pub(crate) mod modifiers;
pub(crate) mod numbers;
pub(crate) mod parse;
pub(crate) mod print;
pub(crate) mod register_text;
pub(crate) mod syntax;
pub(crate) mod syntax_parse;
