//! The sources themselves: who may import whom, what makes cargo compile a crate once.

mod layering;
mod workspace;
