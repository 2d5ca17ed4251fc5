//! What the compiler's spans (`tracing`) say, collected for `run --profile`.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct Pass {
    /// Its name.
    pub name: &'static str,
    /// What it worked on; empty where the name says all.
    pub detail: String,
    /// Number of the thread.
    pub thread: u32,
    /// Microseconds from the collector's start to its own.
    pub start: f64,
    /// Microseconds that it took.
    pub took: f64,
}

/// A span that has begun.
struct Open {
    name: &'static str,
    detail: String,
    entered: Option<Instant>,
}

/// Collects the spans of this program, of all threads.
pub struct Passes {
    began: Instant,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Open>>,
    done: Mutex<Vec<Pass>>,
}

impl Passes {
    /// Starts to collect; there can be one collector in a process.
    pub fn collect() -> Arc<Passes> {
        let passes = Arc::new(Passes {
            began: Instant::now(),
            next: AtomicU64::new(1),
            open: Mutex::default(),
            done: Mutex::default(),
        });
        // Fails when somebody collects already: then these stay empty.
        let _ = tracing::subscriber::set_global_default(passes.clone());
        passes
    }

    /// What has ended so far, by start.
    pub fn done(&self) -> Vec<Pass> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner).clone();
        done.sort_by(|a, b| a.start.total_cmp(&b.start));
        done
    }
}

/// Spans as events of a Chrome trace, a row for each thread.
pub fn events(passes: &[Pass]) -> impl Iterator<Item = Value> + '_ {
    passes.iter().map(|p| {
        let args = if p.detail.is_empty() { json!({}) } else { json!({ "kernel": p.detail }) };
        json!({
            "name": p.name, "cat": "compiler", "ph": "X", "pid": 2, "tid": p.thread, "ts": p.start, "dur": p.took, "args": args,
        })
    })
}

fn thread() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local!(static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|n| *n)
}

/// Takes the field `detail` of a span.
struct Detail<'a>(&'a mut String);

impl Visit for Detail<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "detail" {
            self.0.push_str(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for Passes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("barewave")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut detail = String::new();
        span.record(&mut Detail(&mut detail));
        let open = Open { name: span.metadata().name(), detail, entered: None };
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id, open);
        Id::from_u64(id)
    }

    fn enter(&self, span: &Id) {
        let now = Instant::now();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = open.get_mut(&span.into_u64()) {
            open.entered = Some(now);
        }
    }

    fn exit(&self, span: &Id) {
        let now = Instant::now();
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&span.into_u64());
        let Some(Open { name, detail, entered: Some(entered) }) = open else { return };
        let us = |a: Instant, b: Instant| (b - a).as_secs_f64() * 1e6;
        let pass = Pass { name, detail, thread: thread(), start: us(self.began, entered), took: us(entered, now) };
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(pass);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
}
