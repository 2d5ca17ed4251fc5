//! In-order queues of work with events between them: the streams of the emulated device and of the emulated driver.
//!
//! A queue owns one thread, started with its first piece of work. Work runs in the order in which it was pushed; after
//! an error what follows is skipped, until somebody who waits for the queue takes the error. Events are markers: they
//! complete also behind an error, so that nobody waits for ever.
//!
//! Kernels of all queues share one pool of threads ([`pool`]) apart from rayon's global one: threads of the global pool
//! may wait for a queue, and work that needed them to go on would never end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// A piece of work.
type Work<E> = Box<dyn FnOnce() -> Result<(), E> + Send>;
type Marker = Box<dyn FnOnce() + Send>;

enum Item<E> {
    /// Skipped after an error.
    Work(Work<E>),
    /// Done in any case.
    Marker(Marker),
    /// An event is reached, with the number of its recording.
    Reached(Event, u64),
}

struct State<E> {
    items: VecDeque<Item<E>>,
    /// Items pushed.
    pushed: u64,
    error: Option<E>,
    started: bool,
    closed: bool,
    /// The queue's thread waits for [`Shared::more`].
    asleep: bool,
}

struct Shared<E> {
    state: Mutex<State<E>>,
    /// There is something to do.
    more: Condvar,
    /// Items finished. Waiting is rare, so the thread of the queue looks at `waiting` before it takes the lock.
    finished: AtomicU64,
    /// Threads in [`Queue::wait`].
    waiting: AtomicU64,
    /// An item was finished.
    done: Condvar,
    /// `State::error` is there.
    failed: AtomicBool,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// A queue. Dropping it lets the work that was pushed finish, without waiting for it.
pub struct Queue<E> {
    shared: Arc<Shared<E>>,
}

impl<E: QueueError> Default for Queue<E> {
    fn default() -> Self {
        Queue::new()
    }
}

/// An error that work in a queue can end with.
pub trait QueueError: Send + 'static {
    /// Work panicked with this message: an internal error, which must reach whoever waits.
    fn panicked(message: String) -> Self;
}

impl<E: QueueError> Queue<E> {
    /// An empty queue.
    pub fn new() -> Queue<E> {
        let state =
            State { items: VecDeque::new(), pushed: 0, error: None, started: false, closed: false, asleep: false };
        Queue {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                more: Condvar::new(),
                finished: AtomicU64::new(0),
                waiting: AtomicU64::new(0),
                done: Condvar::new(),
                failed: AtomicBool::new(false),
            }),
        }
    }

    /// Adds work. It is skipped when earlier work failed.
    pub fn push(&self, work: impl FnOnce() -> Result<(), E> + Send + 'static) {
        self.add(Item::Work(Box::new(work)));
    }

    /// Adds something that is done in any case.
    pub fn push_always(&self, marker: impl FnOnce() + Send + 'static) {
        self.add(Item::Marker(Box::new(marker)));
    }

    fn add(&self, item: Item<E>) {
        let mut s = lock(&self.shared.state);
        s.items.push_back(item);
        s.pushed += 1;
        let wake = s.asleep;
        if !s.started {
            s.started = true;
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("barewave-queue".into()).spawn(move || work(&shared));
            if thread.is_err() {
                // No thread can be had: the caller does the work.
                s.started = false;
                drop(s);
                drain(&self.shared);
                return;
            }
        }
        drop(s);
        if wake {
            self.shared.more.notify_one();
        }
    }

    /// Waits until everything pushed before is finished; the first error, if there was one.
    pub fn wait(&self) -> Result<(), E> {
        let mut s = self.finish();
        self.shared.failed.store(false, Ordering::SeqCst);
        s.error.take().map_or(Ok(()), Err)
    }

    /// Waits like [`Queue::wait`] and leaves the error to who asks for it.
    pub fn settle(&self) {
        drop(self.finish());
    }

    fn finish(&self) -> MutexGuard<'_, State<E>> {
        let shared = &*self.shared;
        let mut s = lock(&shared.state);
        let target = s.pushed;
        shared.waiting.fetch_add(1, Ordering::SeqCst);
        while shared.finished.load(Ordering::SeqCst) < target {
            s = shared.done.wait(s).unwrap_or_else(|e| e.into_inner());
        }
        shared.waiting.fetch_sub(1, Ordering::SeqCst);
        s
    }

    /// True when nothing is left to do.
    pub fn idle(&self) -> bool {
        let s = lock(&self.shared.state);
        self.shared.finished.load(Ordering::SeqCst) == s.pushed
    }

    /// Completes `event` when everything pushed before is finished.
    pub fn record(&self, event: &Event) {
        let ticket = event.begin();
        self.add(Item::Reached(event.clone(), ticket));
    }

    /// Lets what follows wait for the latest recording of `event`.
    pub fn wait_for(&self, event: &Event) {
        let (event, ticket) = (event.clone(), event.latest());
        self.push_always(move || event.wait_ticket(ticket));
    }
}

impl<E> Drop for Queue<E> {
    fn drop(&mut self) {
        lock(&self.shared.state).closed = true;
        self.shared.more.notify_all();
    }
}

/// What the thread of a queue does.
fn work<E: QueueError>(shared: &Shared<E>) {
    loop {
        drain(shared);
        let mut s = lock(&shared.state);
        while s.items.is_empty() {
            if s.closed {
                return;
            }
            s.asleep = true;
            s = shared.more.wait(s).unwrap_or_else(|e| e.into_inner());
            s.asleep = false;
        }
    }
}

/// Takes all items that are there, does them, and looks again.
fn drain<E: QueueError>(shared: &Shared<E>) {
    let mut batch = VecDeque::new();
    loop {
        std::mem::swap(&mut batch, &mut lock(&shared.state).items);
        if batch.is_empty() {
            return;
        }
        for item in batch.drain(..) {
            let mut reached = None;
            let error = match item {
                Item::Work(f) if shared.failed.load(Ordering::SeqCst) => {
                    // What it holds is given back before anybody is told that it is finished.
                    drop(f);
                    None
                }
                Item::Work(f) => guarded(f),
                Item::Marker(f) => guarded(|| {
                    f();
                    Ok(())
                }),
                Item::Reached(event, ticket) => {
                    reached = Some((event, ticket));
                    None
                }
            };
            if let Some(e) = error {
                let mut s = lock(&shared.state);
                s.error.get_or_insert(e);
                shared.failed.store(true, Ordering::SeqCst);
            }
            // Whoever begins to wait counts itself before it looks at this number: one of the two sees the other.
            match reached {
                // Both at once for who looks: an event is never complete in a queue that is not idle yet, nor a queue
                // idle whose event is not complete.
                Some((event, ticket)) => {
                    let state = lock(&shared.state);
                    shared.finished.fetch_add(1, Ordering::SeqCst);
                    event.complete(ticket);
                    drop(state);
                }
                None => drop(shared.finished.fetch_add(1, Ordering::SeqCst)),
            }
            if shared.waiting.load(Ordering::SeqCst) > 0 {
                drop(lock(&shared.state));
                shared.done.notify_all();
            }
        }
    }
}

fn guarded<E: QueueError>(f: impl FnOnce() -> Result<(), E>) -> Option<E> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(result) => result.err(),
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            Some(E::panicked(text.unwrap_or_else(|| "unknown panic".into())))
        }
    }
}

#[derive(Default)]
struct EventState {
    recorded: u64,
    completed: u64,
    at: Option<Instant>,
}

/// A marker in a queue, with the time at which it was reached. It can be recorded many times; who waits, waits for the
/// recording that was the latest when they asked.
#[derive(Clone, Default)]
pub struct Event(Arc<(Mutex<EventState>, Condvar)>);

impl Event {
    /// An event that was never recorded: waiting for it does nothing.
    pub fn new() -> Event {
        Event::default()
    }

    fn begin(&self) -> u64 {
        let mut s = lock(&self.0.0);
        s.recorded += 1;
        s.recorded
    }

    fn latest(&self) -> u64 {
        lock(&self.0.0).recorded
    }

    fn complete(&self, ticket: u64) {
        let mut s = lock(&self.0.0);
        if ticket > s.completed {
            s.completed = ticket;
            s.at = Some(Instant::now());
        }
        drop(s);
        self.0.1.notify_all();
    }

    fn wait_ticket(&self, ticket: u64) {
        let mut s = lock(&self.0.0);
        while s.completed < ticket {
            s = self.0.1.wait(s).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Waits for the latest recording.
    pub fn wait(&self) {
        self.wait_ticket(self.latest());
    }

    /// True when the latest recording was reached, or there was none.
    pub fn done(&self) -> bool {
        let s = lock(&self.0.0);
        s.completed == s.recorded
    }

    /// True when it was recorded at least once.
    pub fn recorded(&self) -> bool {
        self.latest() > 0
    }

    /// Time between two completed events, negative when `end` came first; `None` while one of them is not complete.
    pub fn seconds_until(&self, end: &Event) -> Option<f64> {
        let time = |e: &Event| {
            let s = lock(&e.0.0);
            s.at.filter(|_| s.completed == s.recorded)
        };
        let (a, b) = (time(self)?, time(end)?);
        let span = |d: Duration| d.as_secs_f64();
        Some(if b >= a { span(b - a) } else { -span(a - b) })
    }
}

/// The threads that run the kernels of all queues.
pub fn pool() -> &'static rayon::ThreadPool {
    static POOL: OnceLock<rayon::ThreadPool> = OnceLock::new();
    POOL.get_or_init(|| {
        let builder = rayon::ThreadPoolBuilder::new().thread_name(|i| format!("barewave-emu-{i}"));
        // A machine that gives no threads at all runs kernels on the queue's own thread.
        builder.build().unwrap_or_else(|_| {
            let one = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
            one.build().expect("the current thread is there")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    impl QueueError for String {
        fn panicked(message: String) -> String {
            message
        }
    }

    #[test]
    fn work_runs_in_order_and_errors_stop_it() {
        let q: Queue<String> = Queue::new();
        assert!(q.idle() && q.wait().is_ok());
        let log = Arc::new(Mutex::new(Vec::new()));
        for i in 0..100 {
            let log = log.clone();
            q.push(move || {
                lock(&log).push(i);
                if i == 50 { Err(i.to_string()) } else { Ok(()) }
            });
        }
        let e = Event::new();
        q.record(&e);
        assert_eq!(q.wait(), Err("50".into()));
        assert_eq!(*lock(&log), (0..=50).collect::<Vec<_>>());
        // The error was taken: the queue goes on.
        assert!(e.done());
        q.push(|| panic!("no {}", 1));
        assert_eq!(q.wait(), Err("no 1".into()));
        q.push(|| Ok(()));
        assert_eq!(q.wait(), Ok(()));
    }

    #[test]
    fn events_order_queues() {
        let (a, b): (Queue<String>, Queue<String>) = (Queue::new(), Queue::new());
        let n = Arc::new(AtomicU32::new(0));
        let (start, end) = (Event::new(), Event::new());
        a.record(&start);
        b.wait_for(&start);
        for i in 0..50 {
            let e = Event::new();
            let m = n.clone();
            a.push(move || {
                std::thread::yield_now();
                m.fetch_add(1, Ordering::SeqCst);
                Ok(())
            });
            a.record(&e);
            b.wait_for(&e);
            let seen = n.clone();
            b.push(move || if seen.load(Ordering::SeqCst) > i { Ok(()) } else { Err(format!("too early at {i}")) });
        }
        b.record(&end);
        end.wait();
        assert_eq!(b.wait(), Ok(()));
        assert!(start.seconds_until(&end).is_some_and(|s| s > 0.0));
        assert!(end.seconds_until(&start).is_some_and(|s| s < 0.0));
        assert_eq!(start.seconds_until(&Event::new()), None);
    }

    #[test]
    fn a_dropped_queue_finishes_its_work() {
        let e = Event::new();
        let q: Queue<String> = Queue::new();
        q.push(|| {
            std::thread::sleep(Duration::from_millis(5));
            Ok(())
        });
        q.record(&e);
        drop(q);
        e.wait();
    }
}
