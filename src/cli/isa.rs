//! `barewave isa`: reads the instruction tables.

use super::{Failure, Result};
use barewave_isa::{Op, Target};

/// Reads the instruction tables.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Lists the targets.
    Targets,
    /// Lists the instructions of a target. Example: barewave isa list gfx942
    List {
        /// Target (gfx942, mi300x, cdna3).
        target: String,
    },
}

pub fn run(command: &Command) -> Result {
    match command {
        Command::Targets => {
            for t in Target::all() {
                let i = t.info();
                println!("{:8} {:10} wave{}  {}", i.name, i.code_name, i.wave_size, i.products.join(" "));
            }
        }
        Command::List { target } => {
            let t = Target::parse(target).map_err(Failure::usage)?;
            for n in 0..Op::COUNT {
                if let Some(info) = t.op(Op(n as u16)) {
                    println!("{:40} {:?}", info.name, info.pipe);
                }
            }
        }
    }
    Ok(())
}
