//! `barewave bench`: modelled time of kernels, and the model beside hardware.

mod kernels;
mod mca;
mod network;
mod peers;
mod search;
mod shape;
mod validate;
mod vendor;

use super::Result;

/// Modelled time of kernels on a target, what bounds them, and the model compared with hardware.
///
/// Example: barewave bench gemm --target mi300x --shape 4096x4096x4096
#[derive(clap::Subcommand)]
pub enum Command {
    /// Matrix products.
    Gemm(kernels::Args),
    /// Convolutions.
    Conv(kernels::Args),
    /// Attention of one layer.
    Attention(kernels::Args),
    /// One operator element by element (addition).
    Elementwise(kernels::Args),
    /// Sums over the last dimension.
    Reduce(kernels::Args),
    /// Softmax over the last dimension.
    Softmax(kernels::Args),
    /// Layer normalisation over the last dimension, with scale and bias.
    Normalize(kernels::Args),
    /// Products of few rows with 4-bit weights in blocks of 32 (MatMulNBits)
    Packed(kernels::Args),
    /// A whole model.
    Model(network::Args),
    Validate(validate::Args),
}

/// Runs the command.
pub fn run(command: &Command) -> Result {
    use shape::Family;
    match command {
        Command::Gemm(args) => kernels::run(Family::Gemm, args),
        Command::Conv(args) => kernels::run(Family::Conv, args),
        Command::Attention(args) => kernels::run(Family::Attention, args),
        Command::Elementwise(args) => kernels::run(Family::Elementwise, args),
        Command::Reduce(args) => kernels::run(Family::Reduce, args),
        Command::Softmax(args) => kernels::run(Family::Softmax, args),
        Command::Normalize(args) => kernels::run(Family::Normalize, args),
        Command::Packed(args) => kernels::run(Family::Packed, args),
        Command::Model(args) => network::run(args),
        Command::Validate(args) => validate::run(args),
    }
}
