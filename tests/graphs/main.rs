//! Whole models: what import and fusion make of them, what sessions compute, what damaged ones lead to.

#[path = "../support/mod.rs"]
mod support;

mod as_exported;
mod attention;
mod contributed;
mod device_models;
mod device_random;
mod extremes;
mod fusion;
mod hostile;
mod in_place;
mod inference;
mod known;
mod large;
mod launches;
mod library;
mod models;
mod nothing;
mod operators;
mod paged;
mod quantised;
mod random;
mod recorded;
mod scattered;
mod sequences;
mod sessions;
mod settled;
mod stages;
mod strings;
