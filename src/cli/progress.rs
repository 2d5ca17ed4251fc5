//! A progress bar on a terminal; nothing on a pipe, and nothing for work that is done at once.

use super::terminal::has_colours;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Nothing is shown before.
const QUIET: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(100);

/// Shows how far something is until it is dropped.
pub struct Progress {
    done: Arc<AtomicU64>,
    /// Ends when the sender is dropped.
    painter: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Starts work of so many parts; 0 when there is no telling.
    pub fn start(what: &str, parts: u64) -> Progress {
        Progress::counted(what, parts, Arc::default())
    }

    /// The same, with parts that somebody else counts; what is counted already counts.
    pub fn counted(what: &str, parts: u64, done: Arc<AtomicU64>) -> Progress {
        let painter = stderr().is_terminal().then(|| {
            let (stop, stopped) = channel::<()>();
            let (what, done) = (what.to_string(), done.clone());
            (stop, std::thread::spawn(move || paint(what, parts, &done, &stopped)))
        });
        Progress { done, painter }
    }

    /// One more part is done.
    pub fn advance(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, painter)) = self.painter.take() {
            drop(stop);
            let _ = painter.join();
        }
    }
}

fn paint(what: String, parts: u64, done: &AtomicU64, stopped: &Receiver<()>) {
    let bounded = parts > 1;
    let bar = ProgressBar::with_draw_target(bounded.then_some(parts), ProgressDrawTarget::stderr());
    bar.set_style(style(bounded, has_colours()));
    bar.set_prefix(what);
    let mut wait = QUIET;
    while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        bar.set_position(done.load(Ordering::Relaxed));
        bar.tick();
        wait = STEP;
    }
    bar.finish_and_clear();
}

/// How a bar looks: with its end in sight, or only with the time.
fn style(bounded: bool, colours: bool) -> ProgressStyle {
    let template = match (bounded, colours) {
        (true, true) => "{prefix} [{bar:30.green}] {pos}/{len}, {elapsed}, {eta} left",
        (true, false) => "{prefix} [{bar:30}] {pos}/{len}, {elapsed}, {eta} left",
        (false, true) => "{spinner:.green} {prefix}, {elapsed}",
        (false, false) => "{spinner} {prefix}, {elapsed}",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("##.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_one() {
        for (bounded, colours) in [(true, true), (true, false), (false, true), (false, false)] {
            let bar = ProgressBar::hidden();
            bar.set_style(style(bounded, colours));
            bar.set_position(1);
        }
        assert!(ProgressStyle::with_template("{prefix} [{bar:30.green}] {pos}/{len}, {elapsed}, {eta} left").is_ok());
        assert!(ProgressStyle::with_template("{spinner:.green} {prefix}, {elapsed}").is_ok());
    }
}
