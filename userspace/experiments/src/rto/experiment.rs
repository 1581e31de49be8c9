//! The rounds: a thread in each host, told what to do, and one that tells them.
//!
//! A round's time is from the instant that all ranks were told to begin until the last one's end. Between rounds each
//! rank waits until what it sent is acknowledged, and then for the pause; TCP's counters are read in that silence, so
//! every time-out is counted in the round that caused it.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use perturb_emulator::{
    lab::{self, Lab, Namespace},
    registry::Record,
    status::{Report, ServerReport},
};
use perturb_models::plogpt::{Beside, ProgramInput};
use perturb_present::{LiveLine, Parts};
use perturb_profile::Profile;
use perturb_stats::Sample;
use perturb_workloads::collective::{Algorithm, Listening, Rank, Step};
use tokio::sync::oneshot;

use super::{
    counters::TcpCounters,
    prediction::Case,
    results::{Round, Series},
    steps::steps,
};

/// Between the order and the beginning of a round: every rank has it by then.
const NOTICE: Duration = Duration::from_millis(5);
/// A round that takes longer has failed: TCP's time-outs double, up to 2 minutes.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Tiny rounds before all others. Linux acknowledges the first 16 segments of a connection one by one
/// (TCP_MAX_QUICKACKS); in the rounds that count it should not.
const PRIMING: usize = 20;
/// Round trips that measure the latency.
const PINGS: usize = 41;

/// What to do.
pub struct Plan {
    /// What it is called.
    pub name: &'static str,
    /// What the hosts do, one after the other.
    pub programs: Vec<ProgramInput>,
    /// Rounds that are measured, for each program.
    pub rounds: u32,
    /// Rounds before them, which open TCP's windows.
    pub warmup: u32,
    /// Silence between rounds.
    pub pause: Duration,
    /// What PlogPT takes and the profile does not say, J for one.
    pub beside: Beside,
    /// As it is written, for the prediction.
    pub profile: Profile,
}

/// What each rank does.
type Steps = Arc<[Vec<Step>]>;

/// What a rank is told.
#[derive(Clone)]
enum Order {
    Connect,
    Ping { peer: usize },
    Pong { peer: usize },
    Round { steps: Steps, start: Instant },
    Settle,
}

/// What it answers.
enum Answer {
    Done,
    Times(Vec<Duration>),
    Ended(Instant),
    Counters(TcpCounters),
}

/// A rank's thread.
struct Worker {
    orders: mpsc::Sender<Order>,
    answers: mpsc::Receiver<anyhow::Result<Answer>>,
}

/// Starts the experiment; its result comes when it ends. Its threads end with this process.
pub(super) fn start(
    lab: &Lab,
    plan: Plan,
    record: Record,
    line: LiveLine,
) -> anyhow::Result<oneshot::Receiver<anyhow::Result<Vec<Series>>>> {
    let addresses: Vec<IpAddr> = lab
        .hosts
        .iter()
        .map(|host| lab::addresses(host.number).0.into())
        .collect();
    let workers = lab
        .hosts
        .iter()
        .enumerate()
        .map(|(rank, host)| {
            let namespace = host.namespace.try_clone()?;
            worker(rank, namespace, addresses.clone())
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let (sender, receiver) = oneshot::channel();
    thread::Builder::new()
        .name("rounds".into())
        .spawn(move || {
            // Nobody waits any more if the command was interrupted.
            let _ = sender.send(conduct(&workers, &plan, &record, &line));
        })
        .context("starting the experiment's thread")?;
    Ok(receiver)
}

fn worker(rank: usize, namespace: Namespace, addresses: Vec<IpAddr>) -> anyhow::Result<Worker> {
    let (orders, orders_in) = mpsc::channel();
    let (answers_out, answers) = mpsc::channel();
    thread::Builder::new()
        .name(format!("host {}", rank + 1))
        .spawn(move || {
            let answers = answers_out.clone();
            let entered = namespace.enter(|| {
                let served = serve(rank, &addresses, orders_in, &answers);
                if let Err(error) = served {
                    // Nobody waits any more if another rank failed first.
                    let _ = answers.send(Err(error));
                }
            });
            if let Err(error) = entered {
                let entering = Err(error).with_context(|| format!("entering {}", lab::name(rank as u32 + 1)));
                let _ = answers_out.send(entering);
            }
        })
        .context("starting a host's thread")?;
    Ok(Worker { orders, answers })
}

/// A rank's life.
fn serve(
    rank: usize,
    addresses: &[IpAddr],
    orders: mpsc::Receiver<Order>,
    answers: &mpsc::Sender<anyhow::Result<Answer>>,
) -> anyhow::Result<()> {
    let mut listening = Some(Listening::new(rank)?);
    let own = rank;
    let mut connected: Option<Rank> = None;
    answers.send(Ok(Answer::Done))?;
    for order in orders {
        if let Some(listening) = listening.take() {
            connected = Some(listening.connect(addresses)?);
        }
        let Some(rank) = &mut connected else {
            bail!("a rank without connections")
        };
        let answer = match order {
            Order::Connect => Answer::Done,
            Order::Ping { peer } => Answer::Times(rank.ping(peer, PINGS)?),
            Order::Pong { peer } => {
                rank.pong(peer, PINGS)?;
                Answer::Done
            }
            Order::Round { steps, start } => Answer::Ended(rank.round(&steps[own], start, PATIENCE)?),
            Order::Settle => {
                rank.settle(PATIENCE)?;
                Answer::Counters(TcpCounters::here()?)
            }
        };
        answers.send(Ok(answer))?;
    }
    Ok(())
}

impl Worker {
    fn tell(&self, order: Order) -> anyhow::Result<()> {
        // A rank that has ended has said why; its answer is still there.
        if self.orders.send(order).is_err() {
            self.answer()?;
            bail!("a host's thread has ended");
        }
        Ok(())
    }

    fn answer(&self) -> anyhow::Result<Answer> {
        self.answers.recv().context("a host's thread has ended")?
    }
}

fn tell_all(workers: &[Worker], order: &Order) -> anyhow::Result<Vec<Answer>> {
    for worker in workers {
        worker.tell(order.clone())?;
    }
    workers.iter().map(Worker::answer).collect()
}

fn conduct(workers: &[Worker], plan: &Plan, record: &Record, line: &LiveLine) -> anyhow::Result<Vec<Series>> {
    // All listen; then they connect.
    for worker in workers {
        worker.answer()?;
    }
    tell_all(workers, &Order::Connect)?;
    let ranks = workers.len();
    let tiny: Steps = (0..ranks)
        .map(|rank| Algorithm::AlltoallB.steps(rank, ranks, 1))
        .collect();
    for _ in 0..PRIMING {
        round(workers, &tiny)?;
    }
    let latency = latency(workers)?;
    let mut counters = settle(workers, plan.pause)?;
    let each = (plan.warmup + plan.rounds) as usize;
    let parts = Parts::new(line, plan.programs.len() * each);
    let mut all = Vec::new();
    for (place, program) in plan.programs.iter().enumerate() {
        let case = Case {
            profile: &plan.profile,
            hosts: ranks as u32,
            beside: &plan.beside,
            program,
        };
        let steps: Steps = steps(&case.operations()?).into();
        let message = case.longest();
        let begin = |number: u32, what: &str| {
            let done = place * each + number as usize;
            parts.begin(done, format_args!("{} of {message} bytes{what}", plan.name));
        };
        for number in 0..plan.warmup {
            begin(number, ", warming up");
            round(workers, &steps)?;
            counters = settle(workers, plan.pause)?;
        }
        let dropped = drops(&servers(record)?);
        let mut rounds = Vec::new();
        for number in 0..plan.rounds {
            begin(plan.warmup + number, "");
            let ranks_ms = round(workers, &steps)?;
            let now = settle(workers, plan.pause)?;
            rounds.push(Round {
                ranks_ms,
                tcp: now - counters,
            });
            counters = now;
        }
        let drops_by_server = since(drops(&servers(record)?), &dropped);
        let prediction = case.predict(latency)?;
        let of = (plan.name, case.hosts, message);
        all.push(Series::new(of, latency, rounds, drops_by_server, prediction));
    }
    Ok(all)
}

/// One way between the first and the last host, which are as far apart as any: half the median round trip.
fn latency(workers: &[Worker]) -> anyhow::Result<Duration> {
    let last = workers.len() - 1;
    workers[last].tell(Order::Pong { peer: 0 })?;
    workers[0].tell(Order::Ping { peer: last })?;
    let answer = workers[0].answer()?;
    workers[last].answer()?;
    let Answer::Times(times) = answer else {
        bail!("a rank answered something else than it was asked")
    };
    let sample = Sample::new(times.iter().map(Duration::as_secs_f64).collect())?;
    Ok(Duration::from_secs_f64(sample.median() / 2.0))
}

/// Until each rank's end, ms.
fn round(workers: &[Worker], steps: &Steps) -> anyhow::Result<Vec<f64>> {
    let start = Instant::now() + NOTICE;
    let steps = Arc::clone(steps);
    let answers = tell_all(workers, &Order::Round { steps, start })?;
    let ends = answers.iter().filter_map(|answer| match answer {
        Answer::Ended(end) => Some(end.saturating_duration_since(start).as_secs_f64() * 1e3),
        _ => None,
    });
    Ok(ends.collect())
}

/// Waits until everything has been acknowledged, and the pause after it; the counters of all hosts.
fn settle(workers: &[Worker], pause: Duration) -> anyhow::Result<TcpCounters> {
    let answers = tell_all(workers, &Order::Settle)?;
    thread::sleep(pause);
    Ok(answers
        .iter()
        .map(|answer| match answer {
            Answer::Counters(counters) => *counters,
            _ => TcpCounters::default(),
        })
        .sum())
}

/// What the network's servers have done so far.
pub(super) fn servers(record: &Record) -> anyhow::Result<Vec<ServerReport>> {
    Ok(Report::of(record)?.context("the emulation has ended")?.servers)
}

/// Drops, by server.
pub(super) fn drops(servers: &[ServerReport]) -> BTreeMap<String, u64> {
    let dropped = servers
        .iter()
        .map(|server| (server.name.clone(), server.dropped()));
    dropped.collect()
}

/// Those since a moment, where there are any.
pub(super) fn since(mut now: BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    for (server, count) in &mut now {
        *count -= before.get(server).copied().unwrap_or(0).min(*count);
    }
    now.retain(|_, count| *count > 0);
    now
}
