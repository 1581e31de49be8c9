//! The rounds: a thread in each host, told what to do, and one that tells them.
//!
//! A round's time is from the instant that all ranks were told to begin until the last one's end. Between rounds each
//! rank waits until what it sent is acknowledged, and then for the pause; TCP's counters are read in that silence, so
//! every time-out is counted in the round that caused it.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use perturb_emulator::{
    lab::{self, Lab, Namespace},
    registry::Record,
    status::Report,
};
use perturb_present::LiveLine;
use perturb_profile::Profile;
use perturb_stats::Sample;
use perturb_workloads::collective::{Algorithm, Listening, Rank};
use tokio::sync::oneshot;

use super::{
    counters::TcpCounters,
    prediction::{self, Observed},
    results::{Round, Series},
};

/// Between the order and the beginning of a round: every rank has it by then.
const NOTICE: Duration = Duration::from_millis(5);
/// A round that takes longer has failed: TCP's time-outs double, up to 2 minutes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Tiny rounds before all others. Linux acknowledges the first 16 segments of a connection one by one
/// (TCP_MAX_QUICKACKS); in the rounds that count it should not.
const PRIMING: usize = 20;
/// Round trips that measure the latency.
const PINGS: usize = 41;

/// What to do.
pub struct Plan {
    /// Who sends to whom.
    pub algorithm: Algorithm,
    /// Sizes of messages, bytes.
    pub messages: Vec<u64>,
    /// Rounds that are measured, for each size.
    pub rounds: u32,
    /// Rounds before them, which open TCP's windows.
    pub warmup: u32,
    /// Silence between rounds.
    pub pause: Duration,
    /// PlogPT's J.
    pub jitter: Duration,
    /// As it is written, for the prediction.
    pub profile: Profile,
}

/// What a rank is told.
#[derive(Clone, Copy)]
enum Order {
    Connect,
    Ping { peer: usize },
    Pong { peer: usize },
    Round { message: u64, start: Instant },
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
            worker(rank, namespace, addresses.clone(), plan.algorithm)
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

fn worker(
    rank: usize,
    namespace: Namespace,
    addresses: Vec<IpAddr>,
    algorithm: Algorithm,
) -> anyhow::Result<Worker> {
    let (orders, orders_in) = mpsc::channel();
    let (answers_out, answers) = mpsc::channel();
    thread::Builder::new()
        .name(format!("host {}", rank + 1))
        .spawn(move || {
            let answers = answers_out.clone();
            let entered = namespace.enter(|| {
                let served = serve(rank, &addresses, algorithm, orders_in, &answers);
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
    algorithm: Algorithm,
    orders: mpsc::Receiver<Order>,
    answers: &mpsc::Sender<anyhow::Result<Answer>>,
) -> anyhow::Result<()> {
    let mut listening = Some(Listening::new(rank)?);
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
            Order::Round { message, start } => {
                Answer::Ended(rank.round(algorithm, message, start, PATIENCE)?)
            }
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

fn tell_all(workers: &[Worker], order: Order) -> anyhow::Result<Vec<Answer>> {
    for worker in workers {
        worker.tell(order)?;
    }
    workers.iter().map(Worker::answer).collect()
}

fn conduct(workers: &[Worker], plan: &Plan, record: &Record, line: &LiveLine) -> anyhow::Result<Vec<Series>> {
    // All listen; then they connect.
    for worker in workers {
        worker.answer()?;
    }
    tell_all(workers, Order::Connect)?;
    for _ in 0..PRIMING {
        round(workers, 1)?;
    }
    let latency = latency(workers)?;
    let mut counters = settle(workers, plan.pause)?;
    let mut all = Vec::new();
    for &message in &plan.messages {
        for _ in 0..plan.warmup {
            round(workers, message)?;
            counters = settle(workers, plan.pause)?;
        }
        let dropped = drops(record)?;
        let mut rounds = Vec::new();
        for number in 1..=plan.rounds {
            let time = round(workers, message)?;
            let now = settle(workers, plan.pause)?;
            rounds.push(Round {
                ms: time.as_secs_f64() * 1e3,
                tcp: now - counters,
            });
            counters = now;
            line.show(format_args!(
                "{} of {message} bytes: round {number} of {}",
                plan.algorithm.name(),
                plan.rounds
            ));
        }
        line.keep();
        let mut drops_by_server = drops(record)?;
        for (server, before) in dropped {
            if let Some(count) = drops_by_server.get_mut(&server) {
                *count -= before.min(*count);
            }
        }
        drops_by_server.retain(|_, count| *count > 0);
        let observed = Observed {
            hosts: workers.len() as u32,
            message,
            latency,
            jitter: plan.jitter,
        };
        let prediction = prediction::predict(&plan.profile, plan.algorithm, observed)?;
        all.push(Series::new(
            plan.algorithm.name(),
            observed,
            rounds,
            drops_by_server,
            prediction,
        ));
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

fn round(workers: &[Worker], message: u64) -> anyhow::Result<Duration> {
    let start = Instant::now() + NOTICE;
    let answers = tell_all(workers, Order::Round { message, start })?;
    let ends = answers.iter().filter_map(|answer| match answer {
        Answer::Ended(end) => Some(*end),
        _ => None,
    });
    let last = ends.max().context("a round without ranks")?;
    Ok(last.saturating_duration_since(start))
}

/// Waits until everything has been acknowledged, and the pause after it; the counters of all hosts.
fn settle(workers: &[Worker], pause: Duration) -> anyhow::Result<TcpCounters> {
    let answers = tell_all(workers, Order::Settle)?;
    thread::sleep(pause);
    Ok(answers
        .iter()
        .map(|answer| match answer {
            Answer::Counters(counters) => *counters,
            _ => TcpCounters::default(),
        })
        .sum())
}

/// Drops so far, by server.
fn drops(record: &Record) -> anyhow::Result<BTreeMap<String, u64>> {
    let report = Report::of(record)?.context("the emulation has ended")?;
    Ok(report
        .servers
        .into_iter()
        .map(|server| (server.name, server.tail_drops + server.losses))
        .collect())
}
