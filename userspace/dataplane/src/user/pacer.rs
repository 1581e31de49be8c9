//! The pacer's threads, and who tells them what to serve.

use std::{
    io::{self, Write as _},
    num::NonZero,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use perturb_common::abi::MAX_PACER_THREADS;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::{
    figures::{Figures, TellWakeUp, UserPacerStats},
    held::Tickets,
    processors,
    tap::{Queue, Tap},
    worker::{Course, Order, WAKE, Worker},
};

/// So many TAPs at once have a queue for each thread; those that come when there are so many have one queue, for they spread
/// over the threads themselves, and a queue takes memory.
const WIDE_TAPS: usize = 16;

/// How long before a departure a thread stops sleeping and polls: processor time for accuracy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpinBudget(pub Duration);

/// Why the pacer could not be started, or could not serve a TAP.
#[derive(Debug, thiserror::Error)]
#[error("the user pacer: {0}")]
pub struct UserPacerError(#[from] io::Error);

/// The pacer: threads that serve the queues of TAPs.
pub struct UserPacer {
    threads: Vec<Thread>,
    figures: Arc<Figures>,
    /// TAPs that it serves.
    taps: AtomicUsize,
    /// TAPs that it was given so far.
    given: AtomicUsize,
}

/// How many threads a pacer has that starts now: one for every two processors that this process may use, within bounds. On two
/// processors, whose programs send and receive as well, two threads let through less than one does.
#[must_use]
pub fn usual_threads() -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    (processors / 2).clamp(1, MAX_PACER_THREADS as usize)
}

impl UserPacer {
    /// Starts so many threads; `limit` is the memory that held packets may take, bytes.
    pub fn start(
        threads: usize,
        spin: SpinBudget,
        limit: u64,
        tell: TellWakeUp,
    ) -> Result<Self, UserPacerError> {
        Self::start_with(threads, spin, limit, tell, |_, figures| Tickets::new(figures))
    }

    /// The same, where each thread does with packets what its own course says.
    pub(crate) fn start_with<C: Course + 'static>(
        threads: usize,
        spin: SpinBudget,
        limit: u64,
        tell: TellWakeUp,
        course: impl Fn(usize, &Arc<Figures>) -> C,
    ) -> Result<Self, UserPacerError> {
        let threads = threads.clamp(1, MAX_PACER_THREADS as usize);
        let figures = Arc::new(Figures::new(threads, limit, tell));
        let chosen = processors::choose(threads);
        Ok(Self {
            threads: (0..threads)
                .map(|number| {
                    let course = course(number, &figures);
                    Thread::start(number, chosen.get(number).copied(), spin, &figures, course)
                })
                .collect::<io::Result<_>>()?,
            figures,
            taps: AtomicUsize::default(),
            given: AtomicUsize::default(),
        })
    }

    /// How many threads it has.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.threads.len() as u32
    }

    /// How many queues the next TAP is to have.
    #[must_use]
    pub fn queues(&self) -> usize {
        if self.taps.load(Ordering::Relaxed) < WIDE_TAPS {
            self.threads.len()
        } else {
            1
        }
    }

    /// Serves one more TAP, each queue by a thread; its index.
    pub fn add(&self, tap: Tap) -> Result<u32, UserPacerError> {
        let index = tap.index();
        self.taps.fetch_add(1, Ordering::Relaxed);
        let first = self.given.fetch_add(1, Ordering::Relaxed);
        let threads = self.threads.iter().cycle().skip(first % self.threads.len());
        for (queue, thread) in tap.into_queues().into_iter().zip(threads) {
            if let Err(error) = thread.add(queue) {
                self.remove(index);
                return Err(error.into());
            }
        }
        Ok(index)
    }

    /// Lets go of a TAP that was added and of what is held for it, which counts as dropped; the device is gone when this
    /// returns.
    pub fn remove(&self, index: u32) {
        self.taps.fetch_sub(1, Ordering::Relaxed);
        let (done, wait) = mpsc::channel();
        for thread in &self.threads {
            thread.order(Order::Remove(index, done.clone()));
        }
        drop(done);
        // Nothing is ever sent: the error says that every thread has done it, or has ended, and its queue with it.
        let _ = wait.recv();
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> UserPacerStats {
        self.figures.stats()
    }

    /// Changes the memory that held packets may take, bytes.
    pub fn set_limit(&self, limit: u64) {
        self.figures.set_limit(limit);
    }

    /// The index of a TAP that cannot be read any more, if there is one: somebody has deleted the device.
    #[must_use]
    pub fn dead(&self) -> Option<u32> {
        self.figures.dead()
    }
}

struct Thread {
    orders: Mutex<mpsc::Sender<Order>>,
    wake: Arc<EventFd>,
    ready: Arc<OwnedFd>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts the thread of this number, on a processor or wherever the scheduler wants it.
    fn start<C: Course + 'static>(
        number: usize,
        processor: Option<u32>,
        spin: SpinBudget,
        figures: &Arc<Figures>,
        course: C,
    ) -> io::Result<Self> {
        let (orders, receiver) = mpsc::channel();
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC,
        )?);
        let ready = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        epoll::add(&ready, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let spin = u64::try_from(spin.0.as_nanos()).unwrap_or(u64::MAX);
        let worker = Worker::new(
            number,
            receiver,
            Arc::clone(&wake),
            Arc::clone(&ready),
            Arc::clone(figures),
            spin,
            course,
        )?;
        let builder = Builder::new().name(processors::THREAD.into());
        let handle = builder.spawn(move || {
            if let Some(processor) = processor {
                // It may have gone since it was chosen: the scheduler then finds another one.
                let _ = processors::stay_on(processor);
            }
            worker.run();
        })?;
        Ok(Self {
            orders: Mutex::new(orders),
            wake,
            ready,
            handle: Some(handle),
        })
    }

    fn add(&self, queue: Queue) -> io::Result<()> {
        let interface = EventData::new_u64(queue.interface().into());
        epoll::add(&self.ready, &queue, interface, EventFlags::IN)?;
        self.order(Order::Add(Arc::new(queue)));
        Ok(())
    }

    fn order(&self, order: Order) {
        // The thread ends only on `End`; a send can fail only after that.
        let _ = self
            .orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(order);
        let _ = self.wake.write(1);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.order(Order::End);
        if let Some(handle) = self.handle.take()
            && handle.join().is_err()
        {
            let _ = writeln!(io::stderr(), "perturb: a thread of the pacer has panicked");
        }
    }
}
