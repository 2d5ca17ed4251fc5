//! Shared by the integration tests; each test file uses a part of it.
#![allow(dead_code)]

pub mod build;
pub mod device;
pub mod generate;
pub mod reference;
