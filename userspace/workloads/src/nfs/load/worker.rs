//! One thread of a load: its runtime, its connections, its processes or arrivals.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use perturb_stats::{HistogramError, SplitMix64};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{DRAIN, LoadError, Shape, Shared};
use crate::{
    nfs::{
        arrivals::{Pace, Poisson},
        client::{CallError, Client},
        planner::Plan,
        record::{Arrivals, Seen},
    },
    timer::Timer,
};

/// Calls of an open load under way on one thread; what comes beyond waits, and its waiting counts.
const UNDER_WAY: usize = 8192;
/// SFS looks at the rate this often in the warm-up and in the run, here at most.
const CHECK_IN_WARMUP: Duration = Duration::from_secs(2);
const CHECK_IN_RUN: Duration = Duration::from_secs(10);
/// Checks in a short warm-up or run.
const CHECKS: u32 = 10;
/// A process has so many calls between two checks: one operation may have 17, and few of them make a count that says nothing.
const CALLS_IN_PERIOD: f64 = 16.0;
/// A process whose call failed waits at least this long, so that a dead server is not hammered.
const AFTER_FAILURE: Duration = Duration::from_millis(10);
/// Between two attempts to connect again.
const BEFORE_RECONNECT: Duration = Duration::from_millis(200);

/// What the tasks of a thread share.
struct Context {
    shared: Arc<Shared>,
    timer: Timer,
    links: Vec<Arc<Link>>,
    seen: Mutex<Seen>,
    trouble: Mutex<Option<HistogramError>>,
}

/// A connection that is made again when it is lost.
struct Link {
    client: Mutex<Client>,
    reconnecting: AtomicBool,
}

/// The part of thread `index` of all threads: indices of what it has to do.
fn part(count: usize, index: usize, threads: usize) -> impl Iterator<Item = usize> {
    (index..count).step_by(threads)
}

/// Connects, says so, and puts load on the server when told to start.
pub(super) fn run(
    shape: &Shape,
    index: usize,
    connected: &mpsc::Sender<Result<(), LoadError>>,
    started: &mpsc::Receiver<Arc<Shared>>,
) -> Result<Option<Seen>, LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|reason| LoadError::System {
            what: "runtime",
            reason,
        })?;
    runtime.block_on(async {
        let timer = Timer::start().map_err(|reason| LoadError::System {
            what: "timer",
            reason,
        })?;
        let mut links = Vec::new();
        for _ in part(shape.connections, index, shape.threads) {
            let client = match Client::connect(shape.server, &shape.options).await {
                Ok(client) => client,
                Err(error) => {
                    // Nobody listens if another thread has failed before.
                    let _ = connected.send(Err(error.into()));
                    return Ok(None);
                }
            };
            links.push(Arc::new(Link {
                client: Mutex::new(client),
                reconnecting: AtomicBool::new(false),
            }));
        }
        let _ = connected.send(Ok(()));
        let Ok(shared) = started.recv() else {
            return Ok(None);
        };
        let context = Arc::new(Context {
            shared: Arc::clone(&shared),
            timer,
            links,
            seen: Mutex::new(Seen::new(shared.window)?),
            trouble: Mutex::new(None),
        });
        match shared.arrivals {
            Arrivals::Closed => closed(&context, index).await,
            Arrivals::Open => open(&context, index).await,
        }
        for link in &context.links {
            let repeated = lock(&link.client).retransmissions();
            shared.retransmissions.fetch_add(repeated, Ordering::Relaxed);
        }
        if let Some(trouble) = lock(&context.trouble).take() {
            return Err(trouble.into());
        }
        let empty = Seen::new(shared.window)?;
        Ok(Some(std::mem::replace(&mut *lock(&context.seen), empty)))
    })
}

async fn closed(context: &Arc<Context>, index: usize) {
    let shared = &context.shared;
    let mut processes = JoinSet::new();
    for (local, process) in part(shared.shape.processes, index, shared.shape.threads).enumerate() {
        let seed = shared.seed ^ (process as u64 + 1).wrapping_mul(0x2545_f491_4f6c_dd1d);
        processes.spawn(think_and_call(Arc::clone(context), local, SplitMix64::new(seed)));
    }
    let deadline = tokio::time::Instant::from_std(shared.window.end + DRAIN);
    let all = async { while processes.join_next().await.is_some() {} };
    tokio::select! {
        () = all => {}
        () = tokio::time::sleep_until(deadline) => {}
        () = async { shared.over.wait().await; tokio::time::sleep(DRAIN).await } => {}
    }
}

async fn think_and_call(context: Arc<Context>, local: usize, mut random: SplitMix64) {
    let shared = &context.shared;
    let link = &context.links[local % context.links.len()];
    let rate = shared.rate / shared.shape.processes as f64;
    let mut next = shared.begin + Duration::from_secs_f64(random.fraction() / rate);
    let mut pace = Pace::new(rate, shared.begin);
    let (mut plans, mut running) = (VecDeque::new(), false);
    let run = shared.window.length();
    let warmup = shared.window.start.saturating_duration_since(shared.begin);
    while next < shared.window.end {
        tokio::select! {
            biased;
            () = shared.over.wait() => return,
            () = context.timer.until(next) => {}
        }
        lock(&shared.planner).plan(&mut plans);
        let calls = plans.len();
        let (mut intended, mut failed) = (next, false);
        for plan in plans.drain(..) {
            match context.call(link, plan, intended).await {
                Some(at) => intended = at,
                None => (intended, failed) = (Instant::now(), true),
            }
            if shared.over.is_set() || intended >= shared.window.end {
                return;
            }
        }
        pace.count(calls, intended.saturating_duration_since(next));
        let think = pace.think(calls, &mut random);
        next = intended + if failed { think.max(AFTER_FAILURE) } else { think };
        next = pace.not_before().map_or(next, |instant| next.max(instant));
        if !running && next >= shared.window.start {
            running = true;
            // From its next call on: the thinking before it belongs to calls of the warm-up.
            pace.restart(next);
        }
        let (all, longest) = if running {
            (run, CHECK_IN_RUN)
        } else {
            (warmup, CHECK_IN_WARMUP)
        };
        let enough = Duration::from_secs_f64(CALLS_IN_PERIOD / rate);
        let period = (all / CHECKS).max(enough).min(longest);
        // The thinking belongs to the calls before it, so the count is compared at its end.
        pace.check(next, period);
    }
}

async fn open(context: &Arc<Context>, index: usize) {
    let shared = &context.shared;
    let room = Arc::new(Semaphore::new(UNDER_WAY));
    let mut plans = VecDeque::new();
    let mut links = context.links.iter().cycle();
    let warmup = shared.window.start.saturating_duration_since(shared.begin);
    for (start, span, phase) in [
        (shared.begin, warmup, 0),
        (shared.window.start, shared.window.length(), 1),
    ] {
        let all = (shared.rate * span.as_secs_f64()).round() as usize;
        let count = part(all, index, shared.shape.threads).count() as u64;
        let seed = shared.seed ^ (2 * index as u64 + phase + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for intended in Poisson::new(start, span, count, seed) {
            tokio::select! {
                biased;
                () = shared.over.wait() => return,
                () = context.timer.until(intended) => {}
            }
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                return;
            };
            if Instant::now() >= shared.window.end {
                // Saturated: what could not even start is known to the record as unanswered.
                lock(&context.seen).starts(intended);
                continue;
            }
            if plans.is_empty() {
                lock(&shared.planner).plan(&mut plans);
            }
            let (Some(plan), Some(link)) = (plans.pop_front(), links.next()) else {
                return;
            };
            let (context, link) = (Arc::clone(context), Arc::clone(link));
            tokio::spawn(async move {
                context.call(&link, plan, intended).await;
                drop(permit);
            });
        }
    }
    // Wait for what is under way, but not for ever.
    let drained = tokio::time::timeout(DRAIN, room.acquire_many(UNDER_WAY as u32));
    tokio::select! {
        _ = drained => {}
        () = shared.over.wait() => {}
    }
}

impl Context {
    /// Executes one request and counts it; returns when its reply came if it succeeded.
    async fn call(&self, link: &Arc<Link>, plan: Plan, intended: Instant) -> Option<Instant> {
        let shared = &self.shared;
        lock(&self.seen).starts(intended);
        let procedure = plan.request.procedure();
        let client = lock(&link.client).clone();
        let outcome = plan.request.execute(&client).await;
        match &outcome {
            Ok(at) => {
                shared.answered.fetch_add(1, Ordering::Relaxed);
                shared
                    .last_reply
                    .fetch_max(shared.since_begin(*at), Ordering::Relaxed);
                if let Some(created) = plan.creates {
                    lock(&shared.planner).exists(created);
                }
            }
            Err(failure) => {
                shared.failed.fetch_add(1, Ordering::Relaxed);
                // An error status is an answer: the server is not gone.
                let clock = if failure.is_answer() {
                    &shared.last_reply
                } else {
                    &shared.last_failure
                };
                clock.fetch_max(shared.since_begin(Instant::now()), Ordering::Relaxed);
                if client.is_lost() && !link.reconnecting.swap(true, Ordering::Relaxed) {
                    tokio::spawn(reconnect(Arc::clone(shared), Arc::clone(link)));
                }
            }
        }
        if let Err(trouble) = lock(&self.seen).ends(procedure, intended, &outcome) {
            *lock(&self.trouble) = Some(trouble);
        }
        outcome.ok()
    }
}

async fn reconnect(shared: Arc<Shared>, link: Arc<Link>) {
    loop {
        let connected: Result<Client, CallError> =
            Client::connect(shared.shape.server, &shared.shape.options).await;
        if let Ok(client) = connected {
            let old = std::mem::replace(&mut *lock(&link.client), client);
            shared
                .retransmissions
                .fetch_add(old.retransmissions(), Ordering::Relaxed);
            link.reconnecting.store(false, Ordering::Relaxed);
            return;
        }
        tokio::time::sleep(BEFORE_RECONNECT).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
