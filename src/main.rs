//! The `barewave` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A reader that closes the pipe (`barewave ... | head`) ends the process quietly, as with other tools.
    #[cfg(unix)]
    // SAFETY: no other thread runs yet, and the default action is always valid.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
    barewave::cli::main()
}
