//! The `barewave` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    barewave::cli::main()
}
