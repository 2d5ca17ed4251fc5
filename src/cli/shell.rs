//! `barewave completions` and `barewave man`: what shells and `man` know of the command, made from its own definition.

use super::{Failure, Result};
use clap_complete::Shell;
use std::io::Write;
use std::path::PathBuf;

/// Prints completions for a shell.
///
/// Example: barewave completions bash > ~/.local/share/bash-completion/completions/barewave
#[derive(clap::Args)]
pub struct CompletionArgs {
    /// The shell.
    shell: Shell,
}

/// Writes man pages, one for each command.
///
/// Example: barewave man ~/.local/share/man/man1
#[derive(clap::Args)]
pub struct ManArgs {
    /// Folder to write to; it is made when it is not there.
    folder: PathBuf,
}

pub fn completions(args: &CompletionArgs, mut command: clap::Command) -> Result {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "barewave", &mut text);
    Ok(std::io::stdout().lock().write_all(&text)?)
}

pub fn man(args: &ManArgs, command: clap::Command) -> Result {
    let folder = args.folder.display();
    let made = std::fs::create_dir_all(&args.folder);
    let made = made.and_then(|()| clap_mangen::generate_to(command.disable_help_subcommand(true), &args.folder));
    made.map_err(|e| Failure::new(format!("cannot write man pages to {folder}: {e}")))
}
