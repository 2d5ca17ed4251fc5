//! The driver's functions and parts, called directly.

#[path = "../common/mod.rs"]
mod common;

#[allow(non_snake_case)]
mod api;
mod printf;
