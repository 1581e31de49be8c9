//! Totals of collectives without a simulation: PlogP's, and PlogPT's for the two all-to-alls.

use super::input::{CollectiveKind, Competitors, Sharing};
use super::parameters::{Network, ParameterError, heights, overflows};

/// A total by formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedForm {
    /// Run time, µs.
    pub total: f64,
    /// Time-outs on the longest path.
    pub timeouts: u32,
}

/// PlogP's run time in µs: no contention, no losses; a processor's messages are `g` apart.
///
/// # Errors
/// When the gap of a message is out of range.
pub fn plogp(network: &Network, kind: CollectiveKind, bytes: f64) -> Result<f64, ParameterError> {
    let others = f64::from(network.nodes - 1);
    let steps = heights(network.nodes);
    let gap = network.gap(bytes)?;
    let latency = network.latency;
    Ok(match kind {
        _ if others == 0.0 => 0.0,
        CollectiveKind::AlltoallA | CollectiveKind::Ring => others * (gap + latency),
        // The root of a gather takes one message per gap, wherever they come from.
        CollectiveKind::AlltoallB | CollectiveKind::Gather => others * gap + latency,
        CollectiveKind::Broadcast => steps as f64 * (gap + latency),
        CollectiveKind::RecursiveDoubling => {
            let mut total = 0.0;
            for step in 0..steps {
                total += network.gap(bytes * 2_f64.powi(step as i32))? + latency;
            }
            total
        }
    })
}

/// PlogPT's run time of alltoall-a (eq. 18, 19) and alltoall-b (eq. 23, 25).
///
/// In the `2^(h-1)` steps of height `h` every edge up to that height carries one transfer of each node
/// below it, so each takes `t_h = b(1) g(m) / min over k <= h of b(k) / 2^(k-1)`:
///
/// ```text
/// A   sum of 2^(h-1) (t_h + L)
/// B   sum of 2^(h-1) t_h + L + RTO * number of heights with P_S(h, h+1) and P_B
/// ```
///
/// where `P_B` (eq. 9) compares `m` with `d(h)` times that narrowest share.
///
/// A step of A starts `L` after the one before, so that it meets nobody unless `J` exceeds `L`.
/// `None` for other collectives, for numbers of nodes that are no power of two, for half-duplex edges,
/// for competitors other than those of eq. 14, and where the jitter spans more than one step.
///
/// # Errors
/// When the gap of a message is out of range.
pub fn closed_form(
    network: &Network,
    kind: CollectiveKind,
    bytes: f64,
) -> Result<Option<ClosedForm>, ParameterError> {
    let (per_step, at_the_end, distance) = match kind {
        CollectiveKind::AlltoallA => (network.latency, 0.0, network.latency),
        CollectiveKind::AlltoallB => (0.0, network.latency, 0.0),
        CollectiveKind::Ring
        | CollectiveKind::RecursiveDoubling
        | CollectiveKind::Broadcast
        | CollectiveKind::Gather => return Ok(None),
    };
    let printed = network.sharing == Sharing::FullDuplex && network.competitors == Competitors::Starting;
    if !network.nodes.is_power_of_two() || network.nodes == 1 || !printed {
        return Ok(None);
    }
    let volume = network.volume(bytes)?;
    let (mut total, mut narrowest) = (at_the_end, f64::INFINITY);
    let mut timeouts = 0;
    for height in 1..=network.heights() {
        narrowest = narrowest.min(network.share_below(height));
        let step = volume / narrowest + per_step;
        if step < network.jitter {
            return Ok(None);
        }
        total += 2_f64.powi(height as i32 - 1) * step;
        let meet = height < network.heights() && distance < network.jitter;
        let lost = |height| {
            network.different_switches(height, height + 1)
                && overflows(network.buffer_delay(height) * narrowest, bytes)
        };
        if meet && lost(height) {
            timeouts += 1;
        }
    }
    total += f64::from(timeouts) * network.rto;
    Ok(Some(ClosedForm { total, timeouts }))
}
