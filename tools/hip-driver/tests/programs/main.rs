//! Programs in HIP C++, compiled by clang and linked against the driver.

#[path = "../common/mod.rs"]
mod common;

mod declared;
mod features;
mod program;
mod standard;
