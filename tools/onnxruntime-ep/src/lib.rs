//! barewave as an execution provider of onnxruntime: a library that onnxruntime loads at run time.
//!
//! ```text
//! registration -> factory: devices -> provider (one a session) -> groups of nodes -> models of ours -> fused nodes
//! ```
//! `factory` is what onnxruntime calls first. For a session a `provider` reads the graph (`read`), chooses the nodes
//! that compile (`groups`) and compiles each group when onnxruntime has fused it; `fused` runs it. `context` keeps
//! compiled groups in models, `memory` tensors on the card, `streams` the order of work on it. Everything else of a model is run by onnxruntime's other providers.
//!
//! Every function that onnxruntime calls goes through `api::Api::guard` or does nothing that can fail: errors become
//! statuses with the words of the command line, and no panic reaches onnxruntime.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod abi;
mod api;
mod context;
mod devices;
mod error;
mod factory;
mod fused;
mod groups;
mod memory;
mod options;
mod provider;
mod read;
mod streams;

pub use factory::{CreateEpFactories, ReleaseEpFactory};
use std::ffi::CStr;

/// What sessions call the provider.
const NAME: &str = "BarewaveExecutionProvider";
const NAME_C: &CStr = c"BarewaveExecutionProvider";

/// The version, for C.
const VERSION_C: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(v) => v,
    Err(_) => c"",
};
