//! A progress bar on a terminal; nothing on a pipe, and nothing for work that is done at once.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Nothing is shown before.
const QUIET: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(100);
const WIDTH: u64 = 30;

/// Shows how far something is until it is dropped.
pub struct Progress {
    done: Arc<AtomicU64>,
    painter: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Starts work of so many parts; 0 when there is no telling.
    pub fn start(what: &str, parts: u64) -> Progress {
        let done = Arc::new(AtomicU64::new(0));
        let painter = stderr().is_terminal().then(|| {
            let (stop, stopped) = channel::<()>();
            let (what, done, start) = (what.to_string(), done.clone(), Instant::now());
            let paint = move || {
                let mut shown = false;
                let mut wait = QUIET;
                while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    let line = line(&what, done.load(Ordering::Relaxed), parts, start.elapsed());
                    let _ = write!(stderr(), "\r{line}\x1b[K");
                    (shown, wait) = (true, STEP);
                }
                if shown {
                    let _ = write!(stderr(), "\r\x1b[K");
                }
            };
            (stop, std::thread::spawn(paint))
        });
        Progress { done, painter }
    }

    /// So many parts are done.
    pub fn set(&self, parts: u64) {
        self.done.store(parts, Ordering::Relaxed);
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

fn line(what: &str, done: u64, parts: u64, time: Duration) -> String {
    let seconds = time.as_secs();
    if parts < 2 {
        return format!("{what}, {seconds} s");
    }
    let full = WIDTH * done.min(parts) / parts;
    let bar: String = (0..WIDTH).map(|i| if i < full { '#' } else { '.' }).collect();
    format!("{what} [{bar}] {done}/{parts}, {seconds} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fill_up() {
        let s = Duration::from_secs(3);
        assert_eq!(line("running", 0, 0, s), "running, 3 s");
        assert_eq!(line("cases", 5, 10, s), format!("cases [{}{}] 5/10, 3 s", "#".repeat(15), ".".repeat(15)));
        assert!(line("cases", 20, 10, s).contains(&"#".repeat(30)));
    }
}
