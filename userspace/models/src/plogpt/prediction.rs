//! From an input to the times of all operations.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::closed_form::{closed_form, plogp};
use super::input::{Competitors, PlogptInput};
use super::parameters::Network;
use super::program::{Op, Program};
use super::simulation::{OpTimes, Timeouts, Timing, simulate};
use super::{PlogptError, ProgramError};

/// Messages simulated at most for an expectation, over all draws. Where one rank is delayed nothing is
/// symmetric any more, and every message becomes an event of its own.
const EXPECTATION_BUDGET: u64 = 250_000;

/// Draws of an expectation at most.
const MOST_DRAWS: u64 = 64;

/// Draws of an expectation at least; a program too large for them gets none.
const LEAST_DRAWS: u64 = 8;

/// Times of a program; the keys of `perturb predict plogpt --json`.
#[derive(Clone, Debug, Serialize)]
pub struct PlogptPrediction {
    /// When the last operation finishes.
    pub total_us: f64,
    /// PlogP's estimate, for collectives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plogp_us: Option<f64>,
    /// The closed form, for collectives that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_form_us: Option<f64>,
    /// Time-outs that follow one another on the longest path.
    pub retransmission_timeouts: u32,
    /// Transfers that are delayed by a time-out.
    pub delayed_transfers: u64,
    /// The total without any time-out, if there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_without_timeouts_us: Option<f64>,
    /// The total if only one of the transfers that qualify together is delayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expectation: Option<Expectation>,
    /// Messages sent.
    pub messages: u64,
    /// Which transfers can cost another one a time-out: eq. 14's, or all that overlap.
    pub competitors: Competitors,
    /// `P_S` by the two heights, as in `1-2`: whether they belong to different switches.
    pub switch_between_heights: BTreeMap<String, bool>,
    /// By rank, the times of its operations.
    pub operations: Operations,
}

/// The mean over draws of which transfer is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expectation {
    /// Mean total.
    pub total_us: f64,
    /// Standard error of that mean.
    pub standard_error_us: f64,
    /// Mean number of time-outs on the longest path.
    pub retransmission_timeouts: f64,
    /// Number of draws.
    pub draws: u64,
}

/// The operations of all ranks with their times; written out as they are, without a copy.
#[derive(Clone, Debug)]
pub struct Operations {
    program: Program,
    times: Vec<OpTimes>,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Operation {
    /// `isend`, `irecv`, `wait` or `compute`.
    pub op: &'static str,
    /// When its rank came to it.
    pub enter_us: f64,
    /// When its rank went on.
    pub leave_us: f64,
    /// When it was done: of an isend the transfer, of an irecv the arrival, of the others the leave.
    /// Absent for an irecv that nothing is sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_us: Option<f64>,
    /// Whether it is an isend that waited for a retransmission time-out.
    pub rto: bool,
}

impl Operations {
    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.program.ranks()
    }

    /// The operations of a rank.
    pub fn of_rank(&self, rank: u32) -> impl Iterator<Item = Operation> {
        self.program.range(rank).map(|index| {
            let op = self.program.ops()[index];
            let times = self.times[index];
            Operation {
                op: op.name(),
                enter_us: times.enter,
                leave_us: match op {
                    // Neither blocks.
                    Op::Isend { .. } | Op::Irecv { .. } => times.enter,
                    Op::Wait(_) | Op::Compute(_) => times.finish,
                },
                finish_us: Some(times.finish).filter(|finish| finish.is_finite()),
                rto: times.timed_out,
            }
        })
    }
}

impl Serialize for Operations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..self.ranks()).map(|rank| OfRank {
            operations: self,
            rank,
        }))
    }
}

struct OfRank<'all> {
    operations: &'all Operations,
    rank: u32,
}

impl Serialize for OfRank<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.operations.of_rank(self.rank))
    }
}

pub(super) fn predict(input: &PlogptInput) -> Result<PlogptPrediction, PlogptError> {
    let collective = input.program.collective.zip(input.program.message);
    let one_way = collective.is_some_and(|(kind, _)| kind.one_way());
    let network = Network::new(&input.parameters, one_way)?;
    let program = Program::new(&input.program, &network)?;
    let timing = simulate(&network, &program, Timeouts::AllThatQualify)?;
    let (mut plogp_us, mut closed_form_us) = (None, None);
    if let Some((kind, message)) = collective {
        let gap = |error| PlogptError::Program(ProgramError::Gap(error));
        plogp_us = Some(plogp(&network, kind, message.0).map_err(gap)?);
        closed_form_us = closed_form(&network, kind, message.0)
            .map_err(gap)?
            .map(|form| form.total);
    }
    let mut total_without_timeouts_us = None;
    let mut expectation = None;
    if timing.timeouts > 0 {
        total_without_timeouts_us = Some(simulate(&network, &program, Timeouts::Never)?.total);
        expectation = expect(&network, &program)?;
    }
    let Timing {
        ops,
        total,
        path_timeouts,
        timeouts,
    } = timing;
    Ok(PlogptPrediction {
        total_us: total,
        plogp_us,
        closed_form_us,
        retransmission_timeouts: path_timeouts,
        delayed_transfers: timeouts,
        total_without_timeouts_us,
        expectation,
        messages: program.messages(),
        competitors: network.competitors,
        switch_between_heights: (1..network.links())
            .map(|height| (heights(height), network.different_switches(height, height + 1)))
            .collect(),
        operations: Operations { program, times: ops },
    })
}

/// The key of two heights.
fn heights(lower: usize) -> String {
    format!("{lower}-{}", lower + 1)
}

/// Draws which transfer is delayed; `None` for programs too large to repeat.
fn expect(network: &Network, program: &Program) -> Result<Option<Expectation>, PlogptError> {
    let draws = (EXPECTATION_BUDGET / program.messages().max(1)).min(MOST_DRAWS);
    if draws < LEAST_DRAWS {
        return Ok(None);
    }
    let (mut totals, mut timeouts) = (Vec::new(), 0.0);
    for seed in 0..draws {
        let timing = simulate(network, program, Timeouts::OneOfThem { seed })?;
        totals.push(timing.total);
        timeouts += f64::from(timing.path_timeouts);
    }
    let count = draws as f64;
    let mean = totals.iter().sum::<f64>() / count;
    let variance = totals.iter().map(|total| (total - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Ok(Some(Expectation {
        total_us: mean,
        standard_error_us: (variance / count).sqrt(),
        retransmission_timeouts: timeouts / count,
        draws,
    }))
}
