//! The `barewave` command: one file per subcommand.
//!
//! Exit status: 0 on success, 2 for wrong usage, 1 for any other failure. Results go to stdout, messages to stderr.

#[macro_use]
mod terminal;

mod bench;
mod check;
mod compile;
mod conformance;
mod cycles;
mod devices;
mod disasm;
mod editor;
mod inputs;
mod isa;
mod launch;
mod limits;
mod made;
mod page;
mod profile;
mod progress;
mod report;
mod run;
mod shell;
mod snippets;
mod stats;
mod trace;
mod tune;
mod ubench;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// A failed command: the message, and whether the command line itself was wrong.
#[derive(Debug)]
pub struct Failure {
    message: String,
    usage: bool,
    /// The message is what the terminal is to show, colours and all.
    rendered: bool,
}

impl Failure {
    /// Something went wrong.
    pub fn new(message: impl std::fmt::Display) -> Failure {
        Failure { message: message.to_string(), usage: false, rendered: false }
    }
    /// Mistakes in a text, as [`snippets`] draws them.
    pub fn rendered(message: String) -> Failure {
        Failure { message, usage: false, rendered: true }
    }
    /// The command line makes no sense.
    pub fn usage(message: impl std::fmt::Display) -> Failure {
        Failure { message: message.to_string(), usage: true, rendered: false }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(e: E) -> Failure {
        Failure::new(barewave::text::with_sources(&e))
    }
}

type Result<T = ()> = std::result::Result<T, Failure>;

/// Compiles neural networks straight to AMD GPU machine code and runs them.
#[derive(Parser)]
#[command(name = "barewave", version, about, max_term_width = 110, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  barewave run model.onnx --input cat.png                     compile for the GPU (or an emulated one) and run
  barewave run model.onnx --input @all.npz --output out.npz   every input and output by name
  barewave compile model.onnx --target gfx1100 --stats        one ELF file: code, launch plan, weights
  barewave launch add.hsaco --kernel add --grid 16 --block 64 --arg in:@a.npy --arg out:1000xf32@c.npy
  barewave disasm model.hsaco | less                          any compiler's code objects and bundles
  barewave isa show v_fma_f32                                 an instruction on every target
  barewave devices                                            what there is to run on

Each command explains itself: barewave run --help";

#[derive(Subcommand)]
enum Command {
    Devices(devices::Args),
    Compile(compile::Args),
    Run(run::Args),
    Launch(launch::Args),
    Check(check::Args),
    Conformance(conformance::Args),
    #[command(subcommand)]
    Bench(bench::Command),
    Ubench(ubench::Args),
    Asm(disasm::AsmArgs),
    Disasm(disasm::DisasmArgs),
    #[command(subcommand)]
    Isa(isa::Command),
    Lsp(editor::lsp::Args),
    Completions(shell::CompletionArgs),
    Man(shell::ManArgs),
}

/// More threads than this are a mistake.
const MOST_THREADS: usize = 1024;

impl Command {
    /// True when it compiles, checks or runs code, for which all cores are used.
    fn shares_work(&self) -> bool {
        matches!(
            self,
            Command::Compile(_)
                | Command::Run(_)
                | Command::Launch(_)
                | Command::Check(_)
                | Command::Conformance(_)
                | Command::Bench(_)
                | Command::Ubench(_)
        )
    }
}

/// The command with values that may be negative numbers: whoever reads a value says what is wrong with it.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|a| if a.get_action().takes_values() { a.allow_negative_numbers(true) } else { a });
    command.mut_subcommands(with_negative_numbers)
}

/// Starts the threads that work is shared among, where a lack of them can still be told; the error has the exit status.
fn start_threads() -> std::result::Result<(), (u8, String)> {
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse::<usize>().ok());
    if let Some(n) = asked.filter(|n| *n > MOST_THREADS) {
        return Err((2, format!("RAYON_NUM_THREADS={n}: at most {MOST_THREADS} threads share the work")));
    }
    let started = rayon::ThreadPoolBuilder::new().build_global();
    started.map_err(|e| (1, format!("the system gives no threads ({e}): set RAYON_NUM_THREADS to fewer")))
}

fn main() -> ExitCode {
    // A reader that closes the pipe (`barewave ... | head`) ends the process quietly, as with other tools.
    #[cfg(unix)]
    // SAFETY: no other thread runs yet, and the default action is always valid.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
    barewave::output::clean_up_on_signals();
    barewave::mapped::explain_lost_files();
    let cli = match with_negative_numbers(Cli::command()).try_get_matches().and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(e) => {
            let shown = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { shown.is_err() as u8 });
        }
    };
    let environment = barewave::emu::check_environment().map_err(|e| e.to_string());
    if let Err(e) = environment.and_then(|()| barewave::passes::dumped().map(drop).map_err(|e| e.to_string())) {
        eprintln!("error: {e}");
        return ExitCode::from(2);
    }
    if cli.command.shares_work()
        && let Err((status, e)) = start_threads()
    {
        eprintln!("error: {e}");
        return ExitCode::from(status);
    }
    let result = match cli.command {
        Command::Devices(args) => devices::run(&args),
        Command::Compile(args) => compile::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Launch(args) => launch::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Conformance(args) => conformance::run(&args),
        Command::Bench(command) => bench::run(&command),
        Command::Ubench(args) => ubench::run(&args),
        Command::Asm(args) => disasm::asm(&args),
        Command::Disasm(args) => disasm::disasm(&args),
        Command::Isa(command) => isa::run(&command),
        Command::Lsp(args) => editor::lsp::run(&args),
        Command::Completions(args) => shell::completions(&args, Cli::command()),
        Command::Man(args) => shell::man(&args, Cli::command()),
    };
    terminal::flush();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(f) => {
            if f.rendered {
                terminal::drawn(&f.message);
            } else {
                eprintln!("error: {}", f.message);
            }
            ExitCode::from(if f.usage { 2 } else { 1 })
        }
    }
}
